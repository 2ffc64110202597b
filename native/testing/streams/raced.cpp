// SPDX-License-Identifier: Apache-2.0
// Threads that use the same new pinned memory at the same time: the first kernel that gets its address lets the worker have it,
// while another thread copies to or from another part. Both parts are exact, whichever of the two comes first.
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr size_t kPart = 4096;  ///< bytes of the part that one thread uses
constexpr int kRounds = 60;

/// Each thread copies its word of `from` to the same place of `to`.
constexpr char kKernels[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry words(.param .u64 to, .param .u64 from) {
  .reg .u32 %r<3>;
  .reg .u64 %p<6>;
  mov.u32 %r1, %ctaid.x;
  ld.param.u64 %p1, [to];
  ld.param.u64 %p2, [from];
  mul.wide.u32 %p3, %r1, 4;
  add.u64 %p4, %p1, %p3;
  add.u64 %p5, %p2, %p3;
  ld.u32 %r2, [%p5];
  st.u32 [%p4], %r2;
  ret;
}
)";

CUfunction words() {
  static CUfunction found = [] {
    CUmodule made = nullptr;
    CUfunction function = nullptr;
    OK(CU(cuModuleLoadData)(&made, kKernels));
    OK(CU(cuModuleGetFunction)(&function, made, "words"));
    return function;
  }();
  return found;
}

/// A kernel that copies words one by one, so that it needs the addresses.
void launch(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream in) {
  void* arguments[] = {&to, &from};
  OK(CU(cuLaunchKernel)(words(), static_cast<unsigned>(bytes / sizeof(int)), 1, 1, 1, 1, 1, 0, in, arguments, nullptr));
}

std::vector<int> numbers(int first) {
  std::vector<int> made(kPart / sizeof(int));
  for (size_t i = 0; i < made.size(); ++i) made[i] = first + static_cast<int>(i);
  return made;
}

/// The arguments of a use: parts of the memory, device memory, a stream.
struct Mine {
  std::byte* part;     ///< of pinned memory
  std::byte* more;     ///< a second part
  CUdeviceptr device;  ///< `kPart` bytes, with the numbers from `first` on
  CUdeviceptr result;  ///< `kPart` bytes, for the result of the kernel
  CUstream stream;
  int first;

  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(part); }
  CUdeviceptr moreAddress() const { return reinterpret_cast<CUdeviceptr>(more); }
};

/// Puts the numbers from `first` on into `part`, so that work in the stream sees them.
using Use = std::function<void(const Mine&)>;

/// In each round one thread launches a kernel that reads one part of new memory while another one uses other parts of it.
void race(size_t bytes, const Use& use) {
  context();
  words();
  CUstream first = stream(), second = stream();
  CUdeviceptr seen = allocate(kPart), device = allocate(kPart), result = allocate(kPart);
  for (int round = 0; round < kRounds; ++round) {
    void* place = nullptr;
    OK(CU(cuMemHostAlloc)(&place, bytes, 0));
    auto* memory = static_cast<std::byte*>(place);
    const int number = 1 + round * 10'000;
    const std::vector<int> own = numbers(number + 5000), others = numbers(number);
    std::memset(memory, 0, bytes);
    std::memcpy(memory, own.data(), kPart);
    OK(CU(cuMemcpyHtoD_v2)(device, others.data(), kPart));
    const Mine mine{memory + 2 * kPart, memory + 4 * kPart, device, result, second, number};
    std::atomic<int> ready{0};
    const auto meet = [&](int delay) {
      ready.fetch_add(1);
      while (ready.load() != 2) {
      }
      for (int i = 0; i < delay; ++i) ready.load();
    };
    std::thread other([&] {
      OK(CU(cuCtxSetCurrent)(context()));
      meet(round % 7 * 3000);
      use(mine);
      launch(result, mine.address(), kPart, second);
      OK(CU(cuStreamSynchronize)(second));
    });
    meet(round % 5 * 3000);
    launch(seen, reinterpret_cast<CUdeviceptr>(memory), kPart, first);
    OK(CU(cuStreamSynchronize)(first));
    other.join();
    CHECK(read(seen, own.size()) == own);
    CHECK(read(result, others.size()) == others);
    CHECK(std::memcmp(mine.part, others.data(), kPart) == 0);
    OK(CU(cuMemFreeHost)(place));
  }
  for (CUdeviceptr each : {seen, device, result}) OK(CU(cuMemFree_v2)(each));
  for (CUstream each : {first, second}) OK(CU(cuStreamDestroy_v2)(each));
}

/// Compared as a whole, or traced by pages, if client and worker share no memory.
void raceInBoth(const Use& use) {
  race(8 * kPart, use);
  race(64 * kPart, use);
}

void write(std::byte* to, int first) {
  const std::vector<int> made = numbers(first);
  std::memcpy(to, made.data(), kPart);
}

}  // namespace

TEST("an asynchronous copy from a device lands where kernels read it") {
  raceInBoth([](const Mine& m) { OK(CU(cuMemcpyDtoHAsync_v2)(m.part, m.device, kPart, m.stream)); });
}

TEST("as do several, one behind the other") {
  raceInBoth([](const Mine& m) {
    for (size_t at = 0; at < kPart; at += kPart / 16)
      OK(CU(cuMemcpyDtoHAsync_v2)(m.part + at, m.device + at, kPart / 16, m.stream));
  });
}

TEST("and a copy for which the program waits") {
  raceInBoth([](const Mine& m) { OK(CU(cuMemcpyDtoH_v2)(m.part, m.device, kPart)); });
}

TEST("and one of rows") {
  raceInBoth([](const Mine& m) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = m.device;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = m.part;
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 256;
    copy.Height = kPart / 256;
    OK(CU(cuMemcpy2DAsync_v2)(&copy, m.stream));
  });
}

TEST("and one whose destination is called an address of the device") {
  raceInBoth([](const Mine& m) { OK(CU(cuMemcpyDtoDAsync_v2)(m.address(), m.device, kPart, m.stream)); });
}

TEST("and one that does not say where its memory is") {
  raceInBoth([](const Mine& m) { OK(CU(cuMemcpyAsync)(m.address(), m.device, kPart, m.stream)); });
}

TEST("a copy within the memory is seen by kernels") {
  raceInBoth([](const Mine& m) {
    write(m.more, m.first);
    OK(CU(cuMemcpyAsync)(m.address(), m.moreAddress(), kPart, m.stream));
  });
}

TEST("as is one whose source is called an address of the device") {
  raceInBoth([](const Mine& m) {
    write(m.more, m.first);
    OK(CU(cuMemcpyDtoHAsync_v2)(m.part, m.moreAddress(), kPart, m.stream));
  });
}

TEST("and one whose destination is") {
  raceInBoth([](const Mine& m) {
    write(m.more, m.first);
    OK(CU(cuMemcpyHtoDAsync_v2)(m.address(), m.more, kPart, m.stream));
  });
}

TEST("a bounce through the memory brings the bytes of the copy before") {
  raceInBoth([](const Mine& m) {
    OK(CU(cuMemcpyDtoHAsync_v2)(m.more, m.device, kPart, m.stream));
    OK(CU(cuMemcpyHtoDAsync_v2)(m.result, m.more, kPart, m.stream));
    OK(CU(cuMemcpyDtoHAsync_v2)(m.part, m.result, kPart, m.stream));
  });
}

TEST("what the program itself writes is seen by kernels") {
  raceInBoth([](const Mine& m) { write(m.part, m.first); });
}

TEST("and what a kernel of the other thread wrote by copies") {
  raceInBoth([](const Mine& m) {
    launch(m.moreAddress(), m.device, kPart, m.stream);
    OK(CU(cuMemcpyHtoDAsync_v2)(m.result, m.more, kPart, m.stream));
    OK(CU(cuMemcpyDtoHAsync_v2)(m.part, m.result, kPart, m.stream));
  });
}

TEST("work behind a copy that was under way when a kernel of another stream got the memory sees its bytes") {
  context();
  words();
  for (const size_t bytes : {8 * kPart, 64 * kPart}) {
    CUstream copying = stream(), other = stream(), waiting = stream();
    CUdeviceptr seen = allocate(kPart), device = allocate(kPart), behind = allocate(kPart), ordered = allocate(kPart);
    CUevent copied = event();
    void* place = nullptr;
    OK(CU(cuMemHostAlloc)(&place, bytes, 0));
    auto* memory = static_cast<std::byte*>(place);
    const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(place);
    const std::vector<int> own = numbers(1), others = numbers(5000);
    std::memset(memory, 0, bytes);
    std::memcpy(memory, own.data(), kPart);
    OK(CU(cuMemcpyHtoD_v2)(device, others.data(), kPart));
    Gate gate;
    gate.close(copying);
    gate.awaitArrival();
    OK(CU(cuMemcpyDtoHAsync_v2)(memory + 2 * kPart, device, kPart, copying));
    OK(CU(cuEventRecord)(copied, copying));
    launch(seen, address, kPart, other);
    launch(behind, address + 2 * kPart, kPart, copying);
    OK(CU(cuStreamWaitEvent)(waiting, copied, 0));
    launch(ordered, address + 2 * kPart, kPart, waiting);
    OK(CU(cuStreamSynchronize)(other));
    CHECK(read(seen, own.size()) == own);
    gate.open();
    for (CUstream each : {copying, waiting}) OK(CU(cuStreamSynchronize)(each));
    CHECK(read(behind, others.size()) == others);
    CHECK(read(ordered, others.size()) == others);
    CHECK(std::memcmp(memory + 2 * kPart, others.data(), kPart) == 0);
    OK(CU(cuMemFreeHost)(place));
    OK(CU(cuEventDestroy_v2)(copied));
    for (CUdeviceptr each : {seen, device, behind, ordered}) OK(CU(cuMemFree_v2)(each));
    for (CUstream each : {copying, other, waiting}) OK(CU(cuStreamDestroy_v2)(each));
  }
}

int main(int argc, char** argv) { return run(argc, argv); }
