// SPDX-License-Identifier: Apache-2.0
// Entry points: error texts, finding entry points, the profiler.
#include <cstring>

#include "cuda/known_error.h"
#include "cuda/program_calls_table.h"
#include "cuda/sanitizer_table.h"
#include "softgpu/driver/api/api.h"
#include "softgpu/driver/program/symbol_resolver.h"

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

// Called only through the table, which is returned only if there is a sanitizer.
Sanitizer& sanitizer() { return *Driver::instance().sanitizer(); }

constexpr millpond::SanitizerTable kSanitizerTable{
    .bytes = sizeof(millpond::SanitizerTable),
    .redzone = kAllocationAlignment,
    .manage = [](uint64_t address, uint64_t bytes) { sanitizer().allocations().manage(address, bytes); },
    .allocated = [](uint64_t address, uint64_t bytes, const char* by) { sanitizer().allocated(address, bytes, by); },
    .freed = [](uint64_t address, const char* by) { sanitizer().allocations().freed(address, by); },
    .left = [](uint64_t address) { sanitizer().left(address); },
    .ended = [] { sanitizer().end(); },
};

constexpr millpond::ProgramCallsTable kProgramCallsTable{
    .bytes = sizeof(millpond::ProgramCallsTable),
    .client = [](uint32_t pid) { sanitizer().client(pid); },
    .command =
        [](uint32_t thread, uint64_t offset) {
          sanitizer().command({static_cast<uint16_t>(thread), offset});
        },
    .failed = [](const char* name, int32_t result) { sanitizer().failed(name, result); },
};

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

// The runtime uses Millpond's client library, which has its own tables. Two tables are for that library's worker.
CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (!ppExportTable) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = nullptr;
  if (!pExportTableId || !Driver::instance().sanitizer()) return CUDA_ERROR_INVALID_VALUE;
  const auto is = [pExportTableId](const char* id) {
    return std::memcmp(pExportTableId->bytes, id, sizeof(pExportTableId->bytes)) == 0;
  };
  if (is(millpond::kSanitizerTableId))
    *ppExportTable = &kSanitizerTable;
  else if (is(millpond::kProgramCallsTableId))
    *ppExportTable = &kProgramCallsTable;
  return *ppExportTable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuProfilerStart(void) {
  return withContext([](Driver&, const ContextPtr&) { return CUDA_SUCCESS; });
}

CUresult cuProfilerStop(void) {
  return withContext([](Driver&, const ContextPtr&) { return CUDA_SUCCESS; });
}

}  // extern "C"
