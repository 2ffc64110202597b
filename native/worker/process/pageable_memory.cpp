// SPDX-License-Identifier: Apache-2.0
#include "worker/process/pageable_memory.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstring>

namespace millpond::worker {
namespace {

/// Request and flag of NVIDIA's open kernel modules (uvm_linux_ioctl.h, uvm_types.h). Seen on driver 580.159.04 with an H200:
/// one such request in a process, which succeeds with the flag.
constexpr unsigned long kUvmInitialize = 0x30000001;
constexpr uint64_t kDisableHmm = 1;

std::atomic<bool> off{false};

}  // namespace

bool isPageableMemoryOff() { return off.load(std::memory_order_relaxed); }

}  // namespace millpond::worker

extern "C" [[gnu::visibility("default")]] int ioctl(int file, unsigned long request, ...) noexcept {
  va_list rest;
  va_start(rest, request);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  if (request == millpond::worker::kUvmInitialize && argument) {
    uint64_t flags;
    std::memcpy(&flags, argument, sizeof(flags));
    flags |= millpond::worker::kDisableHmm;
    std::memcpy(argument, &flags, sizeof(flags));
    millpond::worker::off.store(true, std::memory_order_relaxed);
  }
  return static_cast<int>(::syscall(SYS_ioctl, file, request, argument));
}
