// SPDX-License-Identifier: Apache-2.0
// Programs with errors that `millpond sanitize` finds, and one without errors. They print the driver's final result,
// and leak only what they intend to leak.
#include "testing/programs/program.h"

namespace millpond::programs {
namespace {

constexpr uint32_t kThreads = 64;
constexpr uint32_t kWords = 1000;

// fill(out): each thread writes its word. exchange(out): through shared memory, without a barrier, and with one.
constexpr char kKernels[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry _Z4fillPj(.param .u64 p)
{
  .reg .b32 %r<4>;
  .reg .b64 %d<4>;
  .loc 1 10 3
  ld.param.u64 %d1, [p];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %d2, %r1, 4;
  add.s64 %d3, %d1, %d2;
  .loc 1 12 3
  st.global.u32 [%d3], %r1;
  ret;
}
.visible .entry racing(.param .u64 p)
{
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  .shared .align 4 .b8 tile[256];
  ld.param.u64 %d1, [p];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, tile;
  shl.b32 %r3, %r1, 2;
  add.u32 %r4, %r2, %r3;
  .loc 1 20 3
  st.shared.u32 [%r4], %r1;
  xor.b32 %r3, %r3, 252;
  add.u32 %r4, %r2, %r3;
  .loc 1 22 3
  ld.shared.u32 %r5, [%r4];
  mul.wide.u32 %d2, %r1, 4;
  add.s64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r5;
  ret;
}
.visible .entry waiting(.param .u64 p)
{
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  .shared .align 4 .b8 tile[256];
  ld.param.u64 %d1, [p];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, tile;
  shl.b32 %r3, %r1, 2;
  add.u32 %r4, %r2, %r3;
  st.shared.u32 [%r4], %r1;
  bar.sync 0;
  xor.b32 %r3, %r3, 252;
  add.u32 %r4, %r2, %r3;
  ld.shared.u32 %r5, [%r4];
  mul.wide.u32 %d2, %r1, 4;
  add.s64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r5;
  ret;
}
.visible .entry summing(.param .u64 p)
{
  .reg .b32 %r<4>;
  .reg .b64 %d<4>;
  ld.param.u64 %d1, [p];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %d2, %r1, 4;
  add.s64 %d3, %d1, %d2;
  .loc 1 30 3
  ld.global.u32 %r2, [%d3];
  add.u32 %r2, %r2, 1;
  st.global.u32 [%d3], %r2;
  ret;
}
.visible .entry parting(.param .u64 p)
{
  .reg .b32 %r<4>;
  .reg .pred %q;
  mov.u32 %r1, %tid.x;
  setp.lt.u32 %q, %r1, 48;
  @%q bra FEW;
  .loc 1 41 5
  bar.sync 0;
  bra END;
FEW:
  .loc 1 43 5
  bar.sync 0;
END:
  ret;
}
.file 1 "bugs.cu"
)";

CUresult run(const char* kernel, CUdeviceptr p) {
  CUlibrary library = nullptr;
  CUkernel found = nullptr;
  OK(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cuLibraryGetKernel(&found, library, kernel));
  void* arguments[] = {&p};
  OK(cuLaunchKernel(reinterpret_cast<CUfunction>(found), 1, 1, 1, kThreads, 1, 1, 0, nullptr, arguments, nullptr));
  return cuCtxSynchronize();
}

CUdeviceptr words(uint32_t count) {
  CUdeviceptr p = 0;
  OK(cuMemAlloc_v2(&p, count * sizeof(uint32_t)));
  return p;
}

}  // namespace

void bugNone() {
  useDevice();
  const CUdeviceptr p = words(kThreads);
  OK(run("_Z4fillPj", p));
  OK(run("waiting", p));
  OK(cuMemFree_v2(p));
}

void bugUnreadable() {
  useDevice();
  CUmodule module;
  // The result does not matter to a program that ignores it.
  REQUIRE(cuModuleLoadData(&module, ".version 7.0\n.target sm_75\n.address_size 64\nno PTX at all\n") != CUDA_SUCCESS);
}

void bugBehind() {
  useDevice();
  const CUdeviceptr p = words(kWords);
  const CUdeviceptr neighbour = words(kWords);
  // Sixteen words beyond the end, where nothing else is; no card detects it.
  OK(run("_Z4fillPj", p + (kWords - 48) * sizeof(uint32_t)));
  OK(cuMemFree_v2(neighbour));
  OK(cuMemFree_v2(p));
}

void bugFreed() {
  useDevice();
  const CUdeviceptr kept = words(kWords);
  const CUdeviceptr p = words(kWords);
  OK(cuMemFree_v2(p));
  // The driver may answer either way: the memory may still be mapped.
  run("_Z4fillPj", p);
  cuMemFree_v2(kept);
}

void bugNull() {
  useDevice();
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, run("_Z4fillPj", 0));
}

void bugUnwritten() {
  useDevice();
  const CUdeviceptr p = words(kThreads);
  const CUdeviceptr copy = words(kThreads);
  // All but the last eight words.
  OK(cuMemsetD32_v2(p, 1, kThreads - 8));
  // A copy counts as written exactly if its source does.
  OK(cuMemcpyDtoD_v2(copy, p, kThreads * sizeof(uint32_t)));
  OK(run("summing", copy));
  // Stores by a kernel count.
  OK(run("summing", copy));
  OK(cuMemFree_v2(copy));
  OK(cuMemFree_v2(p));
}

void bugBarrier() {
  useDevice();
  const CUdeviceptr p = words(kThreads);
  OK(run("parting", p));
  OK(cuMemFree_v2(p));
}

void bugTwice() {
  useDevice();
  const CUdeviceptr p = words(kThreads);
  OK(run("_Z4fillPj", p));
  OK(cuMemFree_v2(p));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p));
}

void bugCopy() {
  useDevice();
  const CUdeviceptr p = words(kThreads);
  OK(run("_Z4fillPj", p));
  uint32_t host[kThreads + 1] = {};
  // One word more than exists: a card may perform it, because it rounds sizes up, or refuse it.
  cuMemcpyHtoD_v2(p, host, sizeof(host));
  OK(cuMemFree_v2(p));
}

void bugRace() {
  useDevice();
  const CUdeviceptr p = words(kThreads);
  OK(run("racing", p));
  OK(cuMemFree_v2(p));
}

void bugLeak() {
  useDevice();
  OK(run("_Z4fillPj", words(kThreads)));
}

void bugLeft() {
  useDevice();
  OK(run("_Z4fillPj", words(2 * kThreads)));
  OK(cuDevicePrimaryCtxReset_v2(0));
}

}  // namespace millpond::programs
