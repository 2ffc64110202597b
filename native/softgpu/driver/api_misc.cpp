// SPDX-License-Identifier: Apache-2.0
// Entry points: error texts, finding entry points, the profiler.
#include "cuda/known_error.h"
#include "softgpu/driver/api.h"
#include "softgpu/driver/symbol_resolver.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

CUresult getProcAddress(const char* symbol, void** pfn, int version, CUdriverProcAddressQueryResult* status) {
  return guarded([&]() -> CUresult {
    if (!symbol || !pfn) return CUDA_ERROR_INVALID_VALUE;
    *pfn = nullptr;
    if (version > CUDA_VERSION) return CUDA_ERROR_INVALID_VALUE;
    const ResolvedSymbol resolved = resolveSymbol(symbol, version);
    *pfn = resolved.address;
    if (status) {
      *status = resolved.address    ? CU_GET_PROC_ADDRESS_SUCCESS
                : resolved.isTooNew ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return resolved.address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  });
}

}  // namespace

extern "C" {

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  if (!pStr) return CUDA_ERROR_INVALID_VALUE;
  const millpond::KnownError* entry = millpond::findKnownError(error);
  *pStr = entry ? entry->text : nullptr;
  return entry ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  if (!pStr) return CUDA_ERROR_INVALID_VALUE;
  const millpond::KnownError* entry = millpond::findKnownError(error);
  *pStr = entry ? entry->name : nullptr;
  return entry ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Per-thread default streams (flag 2) have no variants here: CU_STREAM_PER_THREAD as an argument does the
// same.
CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) return CUDA_ERROR_NOT_SUPPORTED;
  return getProcAddress(symbol, pfn, cudaVersion, nullptr);
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) return CUDA_ERROR_NOT_SUPPORTED;
  return getProcAddress(symbol, pfn, cudaVersion, symbolStatus);
}

// There are no tables: the runtime talks to Millpond's client library, which has its own.
CUresult cuGetExportTable(const void** ppExportTable, const CUuuid*) {
  if (ppExportTable) *ppExportTable = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuProfilerStart(void) {
  return withContext([](Driver&, const ContextPtr&) { return CUDA_SUCCESS; });
}

CUresult cuProfilerStop(void) {
  return withContext([](Driver&, const ContextPtr&) { return CUDA_SUCCESS; });
}

}  // extern "C"
