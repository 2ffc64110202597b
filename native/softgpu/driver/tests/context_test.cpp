// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "softgpu/driver/tests/loaded_driver.h"

namespace millpond::softgpu::testing {
namespace {

CUcontext current() {
  CUcontext context = nullptr;
  OK(CU(cuCtxGetCurrent)(&context));
  return context;
}

TEST("a primary context is retained, counted and released") {
  OK(CU(cuInit)(0));
  unsigned flags = 99;
  int active = 1;
  OK(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active));
  CHECK_EQ(active, 0);
  FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuDevicePrimaryCtxRelease_v2)(0));

  CUcontext first = nullptr;
  CUcontext second = nullptr;
  OK(CU(cuDevicePrimaryCtxRetain)(&first, 0));
  OK(CU(cuDevicePrimaryCtxRetain)(&second, 0));
  CHECK(first == second);
  OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
  OK(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active));
  CHECK_EQ(active, 1);
  OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
  OK(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active));
  CHECK_EQ(active, 0);
}

TEST("a primary context can be current before it is retained, and is usable afterwards") {
  OK(CU(cuInit)(0));
  CUcontext context = nullptr;
  OK(CU(cuDevicePrimaryCtxRetain)(&context, 1));
  OK(CU(cuDevicePrimaryCtxRelease_v2)(1));
  OK(CU(cuCtxSetCurrent)(context));
  size_t free = 0;
  size_t total = 0;
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuMemGetInfo_v2)(&free, &total));
  OK(CU(cuDevicePrimaryCtxRetain)(&context, 1));
  OK(CU(cuMemGetInfo_v2)(&free, &total));
  OK(CU(cuDevicePrimaryCtxRelease_v2)(1));
  OK(CU(cuCtxSetCurrent)(nullptr));
}

TEST("each thread has a stack of contexts") {
  PrimaryContext zero(0);
  CHECK(current() == zero.handle());
  {
    PrimaryContext one(1);
    CHECK(current() == one.handle());
    CUdevice device = -1;
    OK(CU(cuCtxGetDevice)(&device));
    CHECK_EQ(device, 1);
    OK(CU(cuCtxGetDevice_v2)(&device, zero.handle()));
    CHECK_EQ(device, 0);
  }
  CHECK(current() == zero.handle());
  std::thread([&] {
    CHECK(current() == nullptr);
    CUdevice device = -1;
    FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxGetDevice)(&device));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxPopCurrent_v2)(nullptr));
    OK(CU(cuCtxSetCurrent)(zero.handle()));
    CHECK(current() == zero.handle());
    OK(CU(cuCtxSynchronize)());
  }).join();
  FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxSetCurrent)(reinterpret_cast<CUcontext>(0x1234)));
  CHECK(current() == zero.handle());
}

TEST("a context of one's own is current when made, and takes its memory with it") {
  PrimaryContext primary;
  size_t before = 0;
  size_t after = 0;
  size_t total = 0;
  OK(CU(cuMemGetInfo_v2)(&before, &total));
  CUcontext own = nullptr;
  OK(CU(cuCtxCreate_v2)(&own, 0, 0));
  CHECK(current() == own);
  CUdeviceptr pointer = 0;
  OK(CU(cuMemAlloc_v2)(&pointer, 1 << 20));
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, 0));
  OK(CU(cuCtxDestroy_v2)(own));
  CHECK(current() == primary.handle());
  OK(CU(cuMemGetInfo_v2)(&after, &total));
  CHECK_EQ(after, before);
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuStreamSynchronize)(stream));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(pointer));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxDestroy_v2)(own));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxDestroy_v2)(primary.handle()));
}

TEST("a context that another thread destroys is of no more use") {
  OK(CU(cuInit)(0));
  CUcontext own = nullptr;
  OK(CU(cuCtxCreate_v2)(&own, 0, 0));
  std::thread([&] { OK(CU(cuCtxDestroy_v2)(own)); }).join();
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuCtxSynchronize)());
  OK(CU(cuCtxPopCurrent_v2)(nullptr));
}

TEST("a reset takes back everything, and the context begins anew") {
  OK(CU(cuInit)(0));
  CUcontext context = nullptr;
  OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
  OK(CU(cuCtxSetCurrent)(context));
  CUdeviceptr pointer = 0;
  OK(CU(cuMemAlloc_v2)(&pointer, 4096));
  CUevent event = nullptr;
  OK(CU(cuEventCreate)(&event, 0));
  OK(CU(cuDevicePrimaryCtxReset_v2)(0));
  FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuCtxSynchronize)());
  CUcontext again = nullptr;
  OK(CU(cuDevicePrimaryCtxRetain)(&again, 0));
  CHECK(again == context);
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuEventQuery)(event));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(pointer));
  OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
  OK(CU(cuCtxSetCurrent)(nullptr));
}

TEST("limits, priorities and flags") {
  PrimaryContext context;
  size_t value = 0;
  OK(CU(cuCtxGetLimit)(&value, CU_LIMIT_STACK_SIZE));
  CHECK_EQ(value, size_t{1024});
  OK(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 4096));
  OK(CU(cuCtxGetLimit)(&value, CU_LIMIT_STACK_SIZE));
  CHECK_EQ(value, size_t{4096});
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCtxGetLimit)(&value, CU_LIMIT_MAX));
  int least = 99;
  int greatest = 99;
  OK(CU(cuCtxGetStreamPriorityRange)(&least, &greatest));
  CHECK_EQ(least, 0);
  CHECK(greatest < least);
  OK(CU(cuDevicePrimaryCtxSetFlags_v2)(0, CU_CTX_SCHED_BLOCKING_SYNC));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuDevicePrimaryCtxSetFlags_v2)(0, 0x1000));
  unsigned flags = 0;
  OK(CU(cuCtxGetFlags)(&flags));
  CHECK_EQ(flags, unsigned{CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST});
  OK(CU(cuDevicePrimaryCtxSetFlags_v2)(0, 0));
}

}  // namespace
}  // namespace millpond::softgpu::testing
