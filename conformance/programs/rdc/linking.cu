// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

#include "rdc/parts.h"

__device__ int shared_counter = 5;
__constant__ float shared_factors[4] = {1, 2, 4, 8};

static __global__ void use(int* out, float* reals, int (*operation)(int)) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = doubled(i) + weighted(i, 2) + operation(i);
  reals[i % 4] = scaled(1.5f, i % 4);
  atomicAdd(&shared_counter, 1);
}

static __global__ void choose(int (**out)(int)) { *out = doubled; }

PROGRAM("linking", "device code of several files linked together: functions, variables, constants, pointers") {
  conformance::Device<int (*)(int)> pointer(1);
  choose<<<1, 1>>>(pointer);
  CHECK(cudaGetLastError());
  conformance::Device<int> out(8);
  conformance::Device<float> reals(4);
  use<<<1, 8>>>(out, reals, pointer.take()[0]);
  conformance::list("results", out.take());
  conformance::list("scaled", reals.take());
  int counter = 0;
  CHECK(cudaMemcpyFromSymbol(&counter, shared_counter, sizeof counter));
  say("counter %d", counter);
  say("of the other file: %d", launchOther());
  CHECK(cudaMemcpyFromSymbol(&counter, shared_counter, sizeof counter));
  say("counter %d", counter);
}
