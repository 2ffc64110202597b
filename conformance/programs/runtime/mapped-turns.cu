// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "conformance.h"

static __global__ void add(int* data, int n, int value) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) data[i] += value;
}

struct Pair {
  int* from;
  int* to;
};
static __global__ void move(Pair pair, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) pair.to[i] = pair.from[i] * 3;
}

static int blocks(int n) { return (n + 255) / 256; }

static long long total(const int* data, int n) {
  long long sum = 0;
  for (int i = 0; i < n; ++i) sum += data[i];
  return sum;
}

// Through its host address, in alternation with copies of every kind.
static void pinned(int n) {
  int* host = nullptr;
  const size_t bytes = static_cast<size_t>(n) * sizeof(int);
  CHECK(cudaMallocHost(reinterpret_cast<void**>(&host), bytes));
  conformance::Device<int> device(static_cast<size_t>(n));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (int i = 0; i < n; ++i) host[i] = i;
  CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
  add<<<blocks(n), 256, 0, stream>>>(device, n, 1);
  CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
  add<<<blocks(n), 256, 0, stream>>>(host, n, 10);
  CHECK(cudaStreamSynchronize(stream));
  say("pinned, %d: %lld", n, total(host, n));
  host[n - 1] = 0;
  add<<<blocks(n), 256, 0, stream>>>(host, n, 100);
  CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
  CHECK(cudaStreamSynchronize(stream));
  say("copied from it: %lld, there: %lld", total(device.take().data(), n), total(host, n));
  CHECK(cudaMemset(device, 0, bytes));
  CHECK(cudaMemcpy(host, device, bytes / 2, cudaMemcpyDeviceToHost));
  say("copied to half of it: %lld", total(host, n));
  CHECK(cudaMemset(host, 1, 40));
  say("set: %x %x", static_cast<unsigned>(host[9]), static_cast<unsigned>(host[10]));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFreeHost(host));
}

// Two parts of one allocation that begin and end within pages.
static void registered() {
  constexpr int n = 5000;
  constexpr int apart = 4096;
  // Mapped directly, without an allocator: a sanitizer's allocator uses the same addresses in every process, and therefore in
  // the worker too.
  constexpr size_t count = 2 * n + apart + 2;
  void* pages = mmap(nullptr, count * sizeof(int), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) std::abort();
  int* const memory = static_cast<int*>(pages);
  int* const last = memory + count - 1;
  std::fill(memory, last + 1, 7);
  int* first = memory + 1;
  int* second = first + n + apart;
  CHECK(cudaHostRegister(first, n * sizeof(int), cudaHostRegisterDefault));
  CHECK(cudaHostRegister(second, n * sizeof(int), cudaHostRegisterMapped));
  Pair pair = {first, nullptr};
  CHECK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&pair.to), second, 0));
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < n; ++i) first[i] = i + round;
    move<<<blocks(n), 256>>>(pair, n);
    *memory = *last = round;  // in the same pages, in the meantime
    CHECK(cudaDeviceSynchronize());
    say("registered, round %d: %lld, at the border %d %d", round, total(second, n), *memory, *last);
  }
  SEE(cudaHostUnregister(first));
  add<<<blocks(n), 256>>>(second, n, 1);
  SEE(cudaHostUnregister(second));
  say("the content stays: %lld %lld", total(first, n), total(second, n));
  munmap(pages, count * sizeof(int));
}

PROGRAM("mapped-turns", "pinned and registered memory that kernels reach by its address, in turns with the host and with copies") {
  if (!conformance::attribute(cudaDevAttrCanUseHostPointerForRegisteredMem)) conformance::skip("host pointers are no device pointers");
  pinned(1000);
  pinned(300000);
  registered();
}
