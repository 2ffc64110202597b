// SPDX-License-Identifier: Apache-2.0
// Among few others, because one of the settings loads everything that the binary has.
#include "conformance.h"

static __global__ void set(int* out, int value) { *out = value; }

static void report() {
  int count = -1;
  const cudaError_t status = cudaGetDeviceCount(&count);
  say("devices: %s %d", cudaGetErrorName(status), status == cudaSuccess ? count : -1);
  if (status != cudaSuccess) return;
  int* cell = nullptr;
  CHECK(cudaMalloc(&cell, sizeof(int)));
  set<<<1, 1>>>(cell, 8);
  int value = 0;
  CHECK(cudaMemcpy(&value, cell, sizeof value, cudaMemcpyDeviceToHost));
  say("worked: %d", value);
}

static void with(const char* name, const char* value) {
  setenv(name, value, 1);
  say("%s=%s", name, value);
  conformance::child("report");
  unsetenv(name);
}

PROGRAM("environment", "CUDA_VISIBLE_DEVICES, CUDA_LAUNCH_BLOCKING, CUDA_MODULE_LOADING and their like") {
  if (conformance::isPart("report")) {
    report();
    return;
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
  for (const char* devices : {"0", "-1", "", "0,-1", "99", "0,0", "nonsense", "GPU-00000000-0000-0000-0000-000000000000"})
    with("CUDA_VISIBLE_DEVICES", devices);
  with("CUDA_LAUNCH_BLOCKING", "1");
  with("CUDA_MODULE_LOADING", "EAGER");
  with("CUDA_MODULE_LOADING", "LAZY");
  with("CUDA_DEVICE_MAX_CONNECTIONS", "1");
  with("CUDA_CACHE_DISABLE", "1");
  with("CUDA_FORCE_PTX_JIT", "1");
  with("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
}
