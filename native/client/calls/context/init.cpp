// SPDX-License-Identifier: Apache-2.0
// Initialisation, versions, entry points and error texts: most of it works before cuInit.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/log.h"
#include "client/abi/export_tables.h"
#include "client/gen/api.h"
#include "client/gen/resolver.h"
#include "client/lifecycle/initialisation.h"
#include "client/process/client.h"
#include "client/state/context.h"
#include "cuda/known_error.h"

namespace millpond::client {

namespace {

CUresult describe(CUresult code, const char** out, const char* KnownError::*builtIn, std::string ErrorText::*told) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  const Client& client = Client::instance();
  if (client.knowsErrors()) {
    const ErrorText* error = client.errorText(code);
    if (error) *out = (error->*told).c_str();
  } else if (const KnownError* error = findKnownError(code)) {
    *out = error->*builtIn;  // until the worker's driver has reported its own
  }
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

namespace api {

CUresult cuInit(unsigned int Flags) noexcept {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return Initialisation::instance().initialise();
}

CUresult cuDriverGetVersion(int* driverVersion) noexcept {
  if (!driverVersion) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = Initialisation::instance().driverVersion();
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** pStr) noexcept {
  return describe(error, pStr, &KnownError::name, &ErrorText::name);
}

CUresult cuGetErrorString(CUresult error, const char** pStr) noexcept {
  return describe(error, pStr, &KnownError::text, &ErrorText::text);
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) noexcept {
  // Later variants of a function may have other parameters, so versions that this library does not know are
  // refused, even where the worker's driver knows them.
  int version = CUDA_VERSION;
  if (Client::check() == CUDA_SUCCESS) version = std::min(version, Client::instance().snapshot().driverVersion);
  const CUresult result = resolve(symbol, cudaVersion, flags, version, pfn, symbolStatus);
  if (logs(LogLevel::Debug) && (result != CUDA_SUCCESS || !*pfn)) {
    log(LogLevel::Debug, "cuGetProcAddress: no %s for CUDA %d, flags %llu", symbol ? symbol : "(null)", cudaVersion,
        static_cast<unsigned long long>(flags));
  }
  return result;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) noexcept {
  return api::cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr);
}

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) noexcept {
  if (!ppExportTable || !pExportTableId) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = exportTable(*pExportTableId);
  return *ppExportTable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuProfilerStart() noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  return CurrentContext::get() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuProfilerStop() noexcept { return cuProfilerStart(); }

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  const char* wanted = std::getenv("CUDA_MODULE_LOADING");
  *mode = wanted && std::strcmp(wanted, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

}  // namespace api
}  // namespace millpond::client
