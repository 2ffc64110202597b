// SPDX-License-Identifier: Apache-2.0
// In this form, so that the others need no managed memory: a binary with one such variable brings it up for all.
#include "conformance.h"

static __managed__ int counter = 40;
static __managed__ float table[100] = {1.0f, 2.0f};

static __global__ void use() {
  counter += 2;
  table[99] = table[0] + table[1];
}

PROGRAM("managed-variables", "variables that host and device share: initial values, turns of both") {
  if (!conformance::attribute(cudaDevAttrManagedMemory)) conformance::skip("no managed memory");
  say("at first: %d", counter);
  for (int round = 1; round <= 3; ++round) {
    use<<<1, 1>>>();
    CHECK(cudaDeviceSynchronize());
    say("round %d: counter %d, last of the table %g", round, counter, static_cast<double>(table[99]));
    table[0] += 1;
  }
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, &counter));
  say("type %d", static_cast<int>(attributes.type));
}
