// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

#include <cassert>

static __global__ void outOfBounds(int* data) { data[size_t{1} << 40] = 1; }
static __global__ void null(int** data) { *data[threadIdx.x] = 1; }
static __global__ void misaligned(char* data) { *reinterpret_cast<int*>(data + 1) = 1; }
static __global__ void asserts(int value) { assert(value == 1 && "as it is called"); }
static __global__ void traps() { asm volatile("trap;"); }
static __global__ void sharedBeyond(unsigned offset, int* out) {
  __shared__ int box[4];
  box[threadIdx.x & 3] = 1;
  *out = *(reinterpret_cast<volatile int*>(box) + offset);
}
static __global__ void nothing() {}

static void aftermath(const char* what) {
  say("%s: at the launch %s", what, cudaGetErrorName(cudaPeekAtLastError()));
  SEE(cudaDeviceSynchronize());
  SEE(cudaDeviceSynchronize());
  void* memory = nullptr;
  SEE(cudaMalloc(&memory, 16));
  cudaStream_t stream;
  SEE(cudaStreamCreate(&stream));
  nothing<<<1, 1>>>();
  SEE(cudaGetLastError());
  SEE(cudaGetLastError());
  int device = -1;
  SEE(cudaGetDevice(&device));
}

PROGRAM("errors-sticky", "illegal addresses, misalignment, asserts and traps, each in a process of its own") {
  using conformance::isPart;
  if (conformance::part[0] == '\0') {
    for (const char* which : {"illegal address", "null pointer", "misaligned", "assert", "trap", "shared"})
      conformance::child(which);
    return;
  }
  char* data;
  CHECK(cudaMalloc(&data, 64));
  CHECK(cudaMemset(data, 0, 64));
  if (isPart("illegal address")) outOfBounds<<<1, 1>>>(reinterpret_cast<int*>(data));
  if (isPart("null pointer")) null<<<1, 1>>>(reinterpret_cast<int**>(data));
  if (isPart("misaligned")) misaligned<<<1, 1>>>(data);
  if (isPart("assert")) asserts<<<1, 1>>>(2);
  if (isPart("trap")) traps<<<1, 1>>>();
  if (isPart("shared")) sharedBeyond<<<1, 1>>>(1u << 20, reinterpret_cast<int*>(data));
  aftermath(conformance::part);
}
