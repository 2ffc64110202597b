// SPDX-License-Identifier: Apache-2.0
#include "rdc/parts.h"

#include "conformance.h"

__device__ int doubled(int value) { return 2 * value; }
__device__ int weighted(int value, int weight) { return value * weight * 100; }
__device__ float scaled(float value, int which) { return value * shared_factors[which]; }

static __global__ void other(int* out) {
  atomicAdd(&shared_counter, 1000);
  *out = doubled(21);
}

int launchOther() {
  conformance::Device<int> out(1);
  other<<<1, 1>>>(out);
  return out.take()[0];
}
