// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __constant__ int factors[16];
static __constant__ float preset[4] = {1.5f, 2.5f, 3.5f, 4.5f};
static __device__ int counters[8] = {10, 20, 30};
static __device__ const char* text = "a string in device memory";
struct Point {
  int x;
  double y;
};
static __device__ Point point = {3, 4.5};

static __global__ void use(int* out, float* reals, char* letters) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = factors[i] * 2 + counters[i % 8];
  if (i < 4) reals[i] = preset[i];
  if (i < 25) letters[i] = text[i];
  if (i == 0) point.x += 1, point.y *= 2;
  atomicAdd(&counters[7], 1);
}

PROGRAM("symbols", "constant and device variables: initial values, copies to and from, addresses, sizes") {
  int values[16];
  for (int i = 0; i < 16; ++i) values[i] = i * i;
  CHECK(cudaMemcpyToSymbol(factors, values, sizeof values));
  const int more[2] = {-1, -2};
  CHECK(cudaMemcpyToSymbol(factors, more, sizeof more, 4 * sizeof(int)));
  conformance::Device<int> out(32);
  conformance::Device<float> reals(4);
  conformance::Device<char> letters(32);
  letters.clear();
  use<<<1, 16>>>(out, reals, letters);
  const std::vector<int> results = out.take();
  conformance::list("used", std::vector<int>(results.begin(), results.begin() + 16));
  conformance::list("preset", reals.take());
  say("text: %.16s", letters.take().data());
  int counted[8];
  CHECK(cudaMemcpyFromSymbol(counted, counters, sizeof counted));
  conformance::list("counters", std::vector<int>(counted, counted + 8));
  Point seen;
  CHECK(cudaMemcpyFromSymbol(&seen, point, sizeof seen));
  say("point %d %g", seen.x, seen.y);
  void* address = nullptr;
  size_t bytes = 0;
  CHECK(cudaGetSymbolAddress(&address, counters));
  CHECK(cudaGetSymbolSize(&bytes, counters));
  int second = 0;
  CHECK(cudaMemcpy(&second, static_cast<int*>(address) + 1, sizeof second, cudaMemcpyDeviceToHost));
  say("size %zu, the second at the address: %d", bytes, second);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, address));
  say("a variable is memory of type %d", static_cast<int>(attributes.type));
  SEE(cudaGetSymbolSize(&bytes, reinterpret_cast<const void*>(&values)));
  SEE(cudaMemcpyToSymbol(factors, values, sizeof values, 4));
}
