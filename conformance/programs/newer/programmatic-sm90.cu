// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void primary(int* data, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  cudaTriggerProgrammaticLaunchCompletion();
  if (i < n) data[i] = i * 2;
}

static __global__ void secondary(const int* data, int* out, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  cudaGridDependencySynchronize();
  if (i < n) out[i] = data[n - 1 - i] + 1;
}

PROGRAM("programmatic-launch", "kernels that start before the one ahead of them has ended, and wait for it") {
  conformance::needCapability(9, 0);
  constexpr int n = 20000;
  conformance::Device<int> data(n), out(n);
  data.clear(), out.clear();
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((n + 255) / 256);
  config.blockDim = dim3(256);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  for (int round = 0; round < 20; ++round) {
    primary<<<(n + 255) / 256, 256, 0, stream>>>(data, n);
    CHECK(cudaLaunchKernelEx(&config, secondary, static_cast<const int*>(data.get()), out.get(), n));
  }
  CHECK(cudaStreamSynchronize(stream));
  say("digest %016llx", static_cast<unsigned long long>(conformance::digest(out.take().data(), n * sizeof(int))));
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticEvent;
  attribute.val.programmaticEvent.event = event;
  SEE(cudaLaunchKernelEx(&config, primary, data.get(), static_cast<int>(n)));
  SEE(cudaEventSynchronize(event));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
}
