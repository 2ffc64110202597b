// SPDX-License-Identifier: Apache-2.0
// Tests the committed resolver with names that applications request from a real driver.
#include "client/gen/resolver.h"

#include <string>

#include "testing/check.h"

using millpond::client::resolve;

namespace {

struct Request {
  const char* name;
  int version;
  uint64_t flags;
};
const Request kRequests[] = {
#include "requests.inc"
};

void* find(const char* name, int version, uint64_t flags) {
  void* fn = nullptr;
  CHECK_EQ(resolve(name, version, flags, 13000, &fn, nullptr), CUDA_SUCCESS);
  return fn;
}

#define CHECK_FINDS(symbol, name, version, flags) \
  CHECK_EQ(find(name, version, flags), reinterpret_cast<void*>(&symbol))

}  // namespace

TEST("every request of the applications is answered with a function") {
  for (const Request& request : kRequests) {
    void* fn = nullptr;
    CUdriverProcAddressQueryResult status{};
    CHECK_EQ(resolve(request.name, request.version, request.flags, 13000, &fn, &status), CUDA_SUCCESS);
    if (fn == nullptr) std::fprintf(stderr, "%s@%d flags %d\n", request.name, request.version, int(request.flags));
    CHECK(fn != nullptr);
    CHECK_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  }
}

TEST("versions and flavours as cuda.h 13.0 maps them") {
  CHECK_FINDS(cuInit, "cuInit", 2000, 0);
  CHECK_FINDS(cuGetProcAddress, "cuGetProcAddress", 11030, 0);
  CHECK_FINDS(cuGetProcAddress_v2, "cuGetProcAddress", 12000, 0);
  CHECK_FINDS(cuMemAlloc, "cuMemAlloc", 2000, 0);
  CHECK_FINDS(cuMemAlloc_v2, "cuMemAlloc", 3020, 0);
  CHECK_FINDS(cuMemAlloc_v2, "cuMemAlloc", 13000, 2);
  CHECK_FINDS(cuCtxCreate_v2, "cuCtxCreate", 3020, 0);
  CHECK_FINDS(cuCtxCreate_v3, "cuCtxCreate", 11040, 0);
  CHECK_FINDS(cuCtxCreate_v4, "cuCtxCreate", 13000, 0);
  CHECK_FINDS(cuCtxGetDevice, "cuCtxGetDevice", 12080, 0);
  CHECK_FINDS(cuCtxGetDevice_v2, "cuCtxGetDevice", 13000, 0);
  CHECK_FINDS(cuCtxSynchronize_v2, "cuCtxSynchronize", 13000, 0);
  CHECK_FINDS(cuEventElapsedTime_v2, "cuEventElapsedTime", 12080, 0);
  CHECK_FINDS(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 13000, 0);
  CHECK_FINDS(cuMemcpyHtoD_v2_ptds, "cuMemcpyHtoD", 7000, 2);
  CHECK_FINDS(cuMemcpyHtoDAsync_v2_ptsz, "cuMemcpyHtoDAsync", 13000, 2);
  CHECK_FINDS(cuMemcpyBatchAsync_ptsz, "cuMemcpyBatchAsync", 12080, 2);
  CHECK_FINDS(cuMemcpyBatchAsync_v2_ptsz, "cuMemcpyBatchAsync", 13000, 2);
  CHECK_FINDS(cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo", 10010, 0);
  CHECK_FINDS(cuStreamGetCaptureInfo_v2, "cuStreamGetCaptureInfo", 11030, 0);
  CHECK_FINDS(cuStreamGetCaptureInfo_v3_ptsz, "cuStreamGetCaptureInfo", 12030, 2);
  CHECK_FINDS(cuStreamWaitValue32_v2_ptsz, "cuStreamWaitValue32", 11070, 2);
  CHECK_FINDS(cuDeviceGetUuid_v2, "cuDeviceGetUuid", 11040, 0);
  CHECK_FINDS(cuGraphInstantiate_v2, "cuGraphInstantiate", 13000, 0);
  CHECK_FINDS(cuLaunchKernel, "cuLaunchKernel", 4000, 1);
  CHECK_FINDS(cuLaunchKernel_ptsz, "cuLaunchKernel", 7000, 2);
  CHECK_FINDS(cuProfilerStart, "cuProfilerStart", 4000, 0);
}

TEST("the first request of the CUDA runtime is the empty name") {
  CHECK(find("", 0, 0) == nullptr);
}
