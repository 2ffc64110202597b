// SPDX-License-Identifier: Apache-2.0
// Sharing with other APIs and other processes on the GPU's own machine. Nothing can be registered or imported, so calls
// that take such an object report an invalid one.
#include "client/call/call.h"
#include "client/gen/api.h"

namespace millpond::client::api {
namespace {

CUresult unknownResource(const char* name) {
  Call call(name, Needs::kCurrent);
  const CUresult entry = call.entry();
  return entry == CUDA_SUCCESS ? CUDA_ERROR_INVALID_HANDLE : entry;
}

CUresult unknownImport(const char* name) {
  Call call(name, Needs::kNothing);
  const CUresult entry = call.entry();
  return entry == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : entry;
}

CUresult unknownResources(const char* name, unsigned count, const CUgraphicsResource* resources) {
  const CUresult r = unknownResource(name);
  return r == CUDA_ERROR_INVALID_HANDLE && (count == 0 || resources == nullptr) ? CUDA_ERROR_INVALID_VALUE : r;
}

}  // namespace

CUresult cuGraphicsUnregisterResource(CUgraphicsResource) noexcept {
  return unknownResource("cuGraphicsUnregisterResource");
}
CUresult cuGraphicsMapResources(Flavour, unsigned int count, CUgraphicsResource* resources, CUstream) noexcept {
  return unknownResources("cuGraphicsMapResources", count, resources);
}
CUresult cuGraphicsUnmapResources(Flavour, unsigned int count, CUgraphicsResource* resources, CUstream) noexcept {
  return unknownResources("cuGraphicsUnmapResources", count, resources);
}
CUresult cuGraphicsSubResourceGetMappedArray(CUarray*, CUgraphicsResource, unsigned int, unsigned int) noexcept {
  return unknownResource("cuGraphicsSubResourceGetMappedArray");
}
CUresult cuGraphicsResourceGetMappedMipmappedArray(CUmipmappedArray*, CUgraphicsResource) noexcept {
  return unknownResource("cuGraphicsResourceGetMappedMipmappedArray");
}
CUresult cuGraphicsResourceGetMappedPointer_v2(CUdeviceptr*, size_t*, CUgraphicsResource) noexcept {
  return unknownResource("cuGraphicsResourceGetMappedPointer_v2");
}
CUresult cuGraphicsResourceSetMapFlags_v2(CUgraphicsResource, unsigned int) noexcept {
  return unknownResource("cuGraphicsResourceSetMapFlags_v2");
}

CUresult cuDestroyExternalMemory(CUexternalMemory) noexcept { return unknownImport("cuDestroyExternalMemory"); }
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr*, CUexternalMemory,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC*) noexcept {
  return unknownImport("cuExternalMemoryGetMappedBuffer");
}
CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray*, CUexternalMemory,
                                                 const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC*) noexcept {
  return unknownImport("cuExternalMemoryGetMappedMipmappedArray");
}
CUresult cuDestroyExternalSemaphore(CUexternalSemaphore) noexcept {
  return unknownImport("cuDestroyExternalSemaphore");
}
CUresult cuSignalExternalSemaphoresAsync(Flavour, const CUexternalSemaphore*,
                                         const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS*, unsigned int,
                                         CUstream) noexcept {
  return unknownImport("cuSignalExternalSemaphoresAsync");
}
CUresult cuWaitExternalSemaphoresAsync(Flavour, const CUexternalSemaphore*, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS*,
                                       unsigned int, CUstream) noexcept {
  return unknownImport("cuWaitExternalSemaphoresAsync");
}

// As on a device whose attributes report no support for such files.
CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
                                       unsigned long long) noexcept {
  Call call("cuMemGetHandleForAddressRange", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (handle == nullptr || dptr == 0 || size == 0 || handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_SUPPORTED;
}

// As on a device whose attributes report no engine for it.
CUresult cuMemBatchDecompressAsync(Flavour, CUmemDecompressParams*, size_t, unsigned int, size_t*, CUstream) noexcept {
  Call call("cuMemBatchDecompressAsync", Needs::kCurrent);
  const CUresult entry = call.entry();
  return entry == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : entry;
}

}  // namespace millpond::client::api
