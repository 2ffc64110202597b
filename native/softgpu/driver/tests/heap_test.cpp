// SPDX-License-Identifier: Apache-2.0
// malloc() and free() in kernels.
#include <algorithm>
#include <cstdint>
#include <set>

#include "softgpu/driver/tests/kernels.h"

namespace millpond::softgpu::testing {
namespace {

constexpr unsigned kTakers = 64;

/// One piece for each of kTakers threads; 0 if there was none.
class Pieces {
 public:
  Pieces(const KernelModule& module, unsigned long long bytes) : module_(module), pointers_(kTakers) {
    OK(launch(module.function("take"), 2, kTakers / 2, nullptr, pointers_.pointer(), bytes));
  }
  std::vector<uint64_t> addresses() const { return pointers_.values(); }
  std::vector<int> marks() const {
    const DeviceArray<int> marks(kTakers);
    OK(launch(module_.function("look"), 2, kTakers / 2, nullptr, pointers_.pointer(), marks.pointer()));
    return marks.values();
  }
  CUresult giveBack() const {
    return launch(module_.function("giveBack"), 2, kTakers / 2, nullptr, pointers_.pointer());
  }

 private:
  const KernelModule& module_;
  DeviceArray<uint64_t> pointers_;
};

TEST("what a kernel allocates outlives it, and another one frees it") {
  OwnContext context;
  KernelModule module;
  for (int round = 0; round < 3; ++round) {
    // Together more than half of the heap, so that the next round needs the memory that this one frees.
    const Pieces pieces(module, 70 << 10);
    std::set<uint64_t> distinct;
    for (const uint64_t address : pieces.addresses()) {
      CHECK(address != 0);
      CHECK_EQ(address % 16, 0u);
      distinct.insert(address);
    }
    CHECK_EQ(distinct.size(), size_t{kTakers});
    const std::vector<int> marks = pieces.marks();
    for (unsigned i = 0; i < kTakers; ++i) CHECK_EQ(marks[i], static_cast<int>(i));
    OK(pieces.giveBack());
    OK(CU(cuCtxSynchronize)());
  }
}

TEST("many threads allocate and free at once without getting into each other's way") {
  OwnContext context;
  KernelModule module;
  const DeviceArray<int> spoilt(std::vector<int>{0});
  CUstream streams[2];
  for (CUstream& stream : streams) OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  for (CUstream stream : streams) OK(launch(module.function("churn"), 8, 64, stream, 20, spoilt.pointer()));
  OK(CU(cuCtxSynchronize)());
  CHECK_EQ(spoilt.values()[0], 0);
  // Everything is one piece again.
  const DeviceArray<uint64_t> whole(1);
  OK(launch(module.function("take"), 1, 1, nullptr, whole.pointer(), 8ull << 20));
  CHECK(whole.values()[0] != 0);
  for (CUstream stream : streams) OK(CU(cuStreamDestroy_v2)(stream));
}

TEST("malloc returns null when the heap has not that much left") {
  OwnContext context;
  KernelModule module;
  const Pieces pieces(module, 1 << 20);
  const std::vector<uint64_t> addresses = pieces.addresses();
  CHECK_EQ(std::count(addresses.begin(), addresses.end(), 0u), static_cast<ptrdiff_t>(kTakers - 8));
  OK(pieces.giveBack());  // null pointers too
  const Pieces none(module, ~0ull);
  for (const uint64_t address : none.addresses()) CHECK_EQ(address, 0u);
  const Pieces empty(module, 0);
  for (const uint64_t address : empty.addresses()) CHECK_EQ(address, 0u);
}

TEST("the heap has the size of the limit, which is fixed by the first launch that needs it") {
  OwnContext context;
  size_t bytes = 0;
  OK(CU(cuCtxGetLimit)(&bytes, CU_LIMIT_MALLOC_HEAP_SIZE));
  CHECK_EQ(bytes, size_t{8} << 20);
  OK(CU(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, size_t{64} << 20));
  KernelModule module;
  OK(launch(module.function("nothing"), 1, 1, nullptr));
  OK(CU(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, size_t{65} << 20));
  const size_t before = freeBytes();
  const Pieces pieces(module, 1 << 20);
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, size_t{8} << 20));
  for (const uint64_t address : pieces.addresses()) CHECK(address != 0);
  CHECK(freeBytes() <= before - (size_t{65} << 20));
}

TEST("a context's heap goes with it") {
  OwnContext outer;
  const size_t before = freeBytes();
  {
    OwnContext inner;
    KernelModule module;
    const Pieces pieces(module, 16);
    CHECK(pieces.addresses()[0] != 0);
    CHECK(freeBytes() < before);
  }
  CHECK_EQ(freeBytes(), before);
}

TEST("a primary context that begins a new life has a new heap") {
  for (int life = 0; life < 2; ++life) {
    PrimaryContext context;
    OK(CU(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, size_t{1} << 20));
    KernelModule module;
    const DeviceArray<uint64_t> whole(1);
    OK(launch(module.function("take"), 1, 1, nullptr, whole.pointer(), 1ull << 20));
    CHECK(whole.values()[0] != 0);
  }
}

TEST("the driver's calls do not take memory of the heap") {
  OwnContext context;
  KernelModule module;
  const Pieces pieces(module, 1024);
  const uint64_t address = pieces.addresses()[0];
  int value = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyDtoH_v2)(&value, address, sizeof(value)));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD8_v2)(address, 0, 16));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(address));
}

TEST("a pointer that is freed twice is a launch failure, one to nowhere an illegal address") {
  {
    OwnContext context;
    KernelModule module;
    const Pieces pieces(module, 64);
    OK(pieces.giveBack());
    OK(CU(cuCtxSynchronize)());
    OK(pieces.giveBack());
    FAILS(CUDA_ERROR_LAUNCH_FAILED, CU(cuCtxSynchronize)());
  }
  OwnContext context;
  KernelModule module;
  const DeviceArray<uint64_t> wild(std::vector<uint64_t>{0xDEAD0000});
  OK(launch(module.function("giveBack"), 1, 1, nullptr, wild.pointer()));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuCtxSynchronize)());
}

}  // namespace
}  // namespace millpond::softgpu::testing
