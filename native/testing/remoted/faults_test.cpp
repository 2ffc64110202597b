// SPDX-License-Identifier: Apache-2.0
// Copies of memory that cannot be read or written: they fault, as any other access of the program does.
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBytes = size_t{1} << 20;

std::byte* partOfCopy = nullptr;
std::atomic<int> faults = 0;

/// Like garbage collectors.
void makeUsable(int, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr) / kPage * kPage;
  const auto start = reinterpret_cast<uintptr_t>(partOfCopy);
  if (at < start || at >= start + kBytes || ::mprotect(reinterpret_cast<void*>(at), kPage, PROT_READ | PROT_WRITE) != 0)
    ::signal(SIGSEGV, SIG_DFL);
  ++faults;
}

void mapMemory() {
  void* mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  partOfCopy = static_cast<std::byte*>(mapped);
}

void withholdLastPages() { CHECK(::mprotect(partOfCopy + kBytes - 2 * kPage, 2 * kPage, PROT_NONE) == 0); }

CUdeviceptr start() {
  CUcontext context = nullptr;
  OK(CU(cuInit)(0));
  OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
  OK(CU(cuCtxSetCurrent)(context));
  CUdeviceptr device = 0;
  OK(CU(cuMemAlloc_v2)(&device, kBytes));
  mapMemory();
  return device;
}

}  // namespace

TEST("a program that makes memory usable when it faults copies it") {
  everywhere([] {
    const CUdeviceptr device = start();
    struct sigaction action {};
    action.sa_sigaction = &makeUsable;
    action.sa_flags = SA_SIGINFO;
    CHECK(::sigaction(SIGSEGV, &action, nullptr) == 0);
    for (int round = 0; round < 3; ++round) {
      std::memset(partOfCopy, 17 + round, kBytes);
      withholdLastPages();
      OK(CU(cuMemcpyHtoD_v2)(device, partOfCopy, kBytes));
      std::memset(partOfCopy, 0, kBytes);
      withholdLastPages();
      OK(CU(cuMemcpyDtoH_v2)(partOfCopy, device, kBytes));
      for (size_t i = 0; i < kBytes; ++i) CHECK_EQ(std::to_integer<int>(partOfCopy[i]), 17 + round);
    }
    CHECK(faults > 0);
  });
}

TEST("any other ends at once") {
  const std::array<std::function<CUresult(CUdeviceptr)>, 2> copies = {
      [](CUdeviceptr device) { return CU(cuMemcpyHtoD_v2)(device, partOfCopy, kBytes); },
      [](CUdeviceptr device) { return CU(cuMemcpyDtoH_v2)(partOfCopy, device, kBytes); }};
  for (const auto& copy : copies)
    for (const Way way : {Way::kSharedMemory, Way::kTcp}) {
      const int status = runProgram(way, [&] {
        const CUdeviceptr device = start();
        withholdLastPages();
        // The sanitizer's handler would report it.
        ::signal(SIGSEGV, SIG_DFL);
        copy(device);
      });
      CHECK_EQ(status, 128 + SIGSEGV);
    }
}
