// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __constant__ int constants[100];
static __global__ void plain(int* out) { *out = constants[threadIdx.x]; }
static __global__ void __launch_bounds__(320) bounded(int* out) { out[threadIdx.x] = 1; }
static __global__ void shared(int* out) {
  __shared__ double box[200];
  box[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = static_cast<int>(box[199 - threadIdx.x]);
}

template <class F>
static void about(const char* name, F function) {
  cudaFuncAttributes a;
  CHECK(cudaFuncGetAttributes(&a, function));
  const char* own = nullptr;
  CHECK(cudaFuncGetName(&own, reinterpret_cast<const void*>(function)));
  say("%s (%s): shared %zu, threads %d, dynamic %d, cache mode %d, registers some: %s, PTX %d", name, std::strstr(own, name) ? "named so" : own,
      a.sharedSizeBytes, a.maxThreadsPerBlock, a.maxDynamicSharedSizeBytes, a.cacheModeCA, a.numRegs > 0 ? "yes" : "no", a.ptxVersion);
}

PROGRAM("function-attributes", "attributes of kernels, read and set; parameters of kernels") {
  about("plain", plain);
  about("bounded", bounded);
  about("shared", shared);
  SEE(cudaFuncSetCacheConfig(plain, cudaFuncCachePreferShared));
  SEE(cudaFuncSetAttribute(plain, cudaFuncAttributeMaxDynamicSharedMemorySize, 40000));
  SEE(cudaFuncSetAttribute(plain, cudaFuncAttributeMaxDynamicSharedMemorySize, -1));
  SEE(cudaFuncSetAttribute(plain, cudaFuncAttributePreferredSharedMemoryCarveout, 101));
  SEE(cudaFuncSetAttribute(plain, static_cast<cudaFuncAttribute>(0), 5));
  about("plain", plain);
  cudaGetLastError();
  bounded<<<1, 352>>>(nullptr);
  say("beyond the launch bounds: %s", cudaGetErrorName(cudaGetLastError()));
  size_t offset = 9, size = 9;
  SEE(cudaFuncGetParamInfo(reinterpret_cast<const void*>(plain), 0, &offset, &size));
  say("parameter at %zu of %zu bytes", offset, size);
  SEE(cudaFuncGetParamInfo(reinterpret_cast<const void*>(plain), 1, &offset, &size));
}
