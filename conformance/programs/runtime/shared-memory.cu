// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void dynamic(int* out, unsigned words) {
  extern __shared__ int box[];
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) box[i] = static_cast<int>(i * 3 + 1);
  __syncthreads();
  int sum = 0;
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) sum += box[words - 1 - i];
  atomicAdd(out, sum);
}

static __global__ void mixed(double* out) {
  __shared__ double fixed[33];
  extern __shared__ char bytes[];
  auto* doubles = reinterpret_cast<double*>(bytes);
  fixed[threadIdx.x] = threadIdx.x * 0.5;
  doubles[threadIdx.x] = threadIdx.x * 2.0;
  __syncthreads();
  out[threadIdx.x] = fixed[(threadIdx.x + 1) % blockDim.x] + doubles[(threadIdx.x + 2) % blockDim.x];
}

static __global__ void sizes(unsigned* out) {
  unsigned dynamicBytes, totalBytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamicBytes));
  asm("mov.u32 %0, %%total_smem_size;" : "=r"(totalBytes));
  out[0] = dynamicBytes;
  out[1] = totalBytes >= dynamicBytes;
}

PROGRAM("shared-memory", "shared memory, fixed and dynamic, up to and beyond 48 KiB") {
  for (const unsigned bytes : {0u, 4u, 1000u, 20000u, 49152u}) {
    conformance::Device<int> out(1);
    out.clear();
    dynamic<<<3, 128, bytes>>>(out, bytes / 4);
    say("%u bytes: %s, sum %d", bytes, cudaGetErrorName(cudaGetLastError()), out.take()[0]);
  }
  conformance::Device<int> out(1);
  out.clear();
  dynamic<<<1, 128, 60000>>>(out, 15000);
  say("60000 bytes without leave: %s", cudaGetErrorName(cudaGetLastError()));
  SEE(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000));
  dynamic<<<1, 128, 60000>>>(out, 15000);
  say("60000 bytes with leave: %s, sum %d", cudaGetErrorName(cudaGetLastError()), out.take()[0]);
  const int most = conformance::attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  SEE(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  say("more than there is: %s",
      cudaGetErrorName(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1)));
  cudaGetLastError();
  SEE(cudaFuncSetAttribute(dynamic, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, dynamic));
  say("carveout %d, most is the most: %s", attributes.preferredShmemCarveout,
      attributes.maxDynamicSharedSizeBytes == most ? "yes" : "no");
  conformance::Device<double> values(33);
  mixed<<<1, 33, 33 * sizeof(double)>>>(values);
  conformance::list("fixed and dynamic", values.take());
  conformance::Device<unsigned> size(2);
  sizes<<<1, 1, 1234>>>(size);
  conformance::list("sizes", size.take());
}
