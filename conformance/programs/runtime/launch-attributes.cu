// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void add(int* data, int value) { data[threadIdx.x] += value; }
static __global__ void large(int* out, const __grid_constant__ int4 extra, double d) { *out = extra.x + extra.w + static_cast<int>(d); }

PROGRAM("launch-attributes", "launches with attributes, of streams and kernels; extended launches that are wrong") {
  conformance::Device<int> data(32);
  data.clear();
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int low = 0, high = 0;
  CHECK(cudaDeviceGetStreamPriorityRange(&low, &high));
  cudaLaunchAttribute attributes[4] = {};
  attributes[0].id = cudaLaunchAttributePriority;
  attributes[0].val.priority = high;
  attributes[1].id = cudaLaunchAttributeIgnore;
  attributes[2].id = cudaLaunchAttributeMemSyncDomain;
  attributes[2].val.memSyncDomain = cudaLaunchMemSyncDomainDefault;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.stream = stream;
  config.attrs = attributes;
  for (unsigned count = 0; count <= 3; ++count) {
    config.numAttrs = count;
    const cudaError_t status = cudaLaunchKernelEx(&config, add, data.get(), 1);
    say("%u attributes: %s", count, cudaGetErrorName(status));
  }
  CHECK(cudaStreamSynchronize(stream));
  say("added: %d", data.take()[31]);
  config.numAttrs = 1;
  attributes[0].id = cudaLaunchAttributeCooperative;
  attributes[0].val.cooperative = 1;
  if (conformance::attribute(cudaDevAttrCooperativeLaunch)) SEE(cudaLaunchKernelEx(&config, add, data.get(), 10));
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  attributes[0] = {};
  attributes[0].id = cudaLaunchAttributeLaunchCompletionEvent;
  attributes[0].val.launchCompletionEvent.event = event;
  SEE(cudaLaunchKernelEx(&config, add, data.get(), 100));
  SEE(cudaEventSynchronize(event));
  CHECK(cudaStreamSynchronize(stream));
  config.numAttrs = 0;
  SEE(cudaLaunchKernelEx(&config, large, data.get(), make_int4(1, 2, 3, 4), 95.5));
  CHECK(cudaStreamSynchronize(stream));
  say("by value: %d", data.take()[0]);
  config.blockDim = dim3(5000);
  SEE(cudaLaunchKernelEx(&config, add, data.get(), 1));
  cudaGetLastError();
  cudaLaunchAttributeValue value = {};
  value.priority = high;
  SEE(cudaStreamSetAttribute(stream, cudaStreamAttributePriority, &value));
  value.priority = 99;
  SEE(cudaStreamGetAttribute(stream, cudaStreamAttributePriority, &value));
  say("priority set: %s", value.priority == high ? "yes" : "no");
  value = {};
  value.syncPolicy = cudaSyncPolicyYield;
  SEE(cudaStreamSetAttribute(stream, cudaLaunchAttributeSynchronizationPolicy, &value));
  value = {};
  SEE(cudaStreamGetAttribute(stream, cudaLaunchAttributeSynchronizationPolicy, &value));
  say("policy %d", static_cast<int>(value.syncPolicy));
  cudaStream_t other;
  CHECK(cudaStreamCreate(&other));
  SEE(cudaStreamCopyAttributes(other, stream));
  value = {};
  CHECK(cudaStreamGetAttribute(other, cudaLaunchAttributeSynchronizationPolicy, &value));
  say("copied policy %d", static_cast<int>(value.syncPolicy));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(other));
  CHECK(cudaStreamDestroy(stream));
}
