// SPDX-License-Identifier: Apache-2.0
// Device memory.
#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/state/context.h"

namespace millpond::client::api {
namespace {

/// cuMemAllocPitch: rows start at multiples of this.
constexpr size_t kPitch = 512;
constexpr size_t roundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) noexcept {
  Call call("cuMemAlloc_v2", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  cmd::MemAlloc wire{};
  wire.bytes = bytesize;
  cmd::MemAllocReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  call.remote().memory.add({reply.address, bytesize, MemoryKind::kDevice, call.context(), 0, 0});
  *dptr = reply.address;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) noexcept {
  if (pPitch == nullptr || WidthInBytes == 0 || Height == 0 || WidthInBytes > SIZE_MAX - kPitch)
    return CUDA_ERROR_INVALID_VALUE;
  if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16) return CUDA_ERROR_INVALID_VALUE;
  const size_t pitch = roundUp(WidthInBytes, kPitch);
  size_t bytes = 0;
  if (__builtin_mul_overflow(pitch, Height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult r = cuMemAlloc_v2(dptr, bytes); r != CUDA_SUCCESS) return r;
  *pPitch = pitch;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) noexcept {
  Call call("cuMemFree_v2", Needs::kAny);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (dptr == 0) return CUDA_SUCCESS;
  const auto run = call.remote().memory.find(dptr);
  if (run)
    if (const CUresult r = call.adopt(run->context); r != CUDA_SUCCESS) return r;
  if (run && run->address == dptr && (run->flags & MemoryRun::kManaged) && !(run->flags & MemoryRun::kBorrowed)) {
    call.remote().managed.drop(run->address);
    if (!call.remote().memory.take(dptr)) return CUDA_ERROR_INVALID_VALUE;
    return call.remote().managedHeap.free(CallSink(call), dptr, run->context);
  }
  if (run && run->address == dptr && (run->flags & MemoryRun::kOfGraph)) {
    call.waitForResult();
    cmd::MemFree wire{};
    wire.address = dptr;
    return call.post(wire);
  }
  if (!run || !run->isFreedByAddress(dptr) || !call.remote().memory.take(dptr)) return CUDA_ERROR_INVALID_VALUE;
  // The driver waits for the device here, and programs rely on that.
  if (Mirror::exists()) call.remote().mirror.settle();
  call.useContext(run->context);
  cmd::MemFree wire{};
  wire.address = dptr;
  return call.post(wire);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) noexcept {
  Call call("cuMemGetAddressRange_v2", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const auto run = call.remote().memory.find(dptr);
  if (!run) return CUDA_ERROR_NOT_FOUND;
  if (pbase) *pbase = run->address;
  if (psize) *psize = run->bytes;
  return CUDA_SUCCESS;
}

}  // namespace millpond::client::api
