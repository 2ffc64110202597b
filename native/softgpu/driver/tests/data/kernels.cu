// SPDX-License-Identifier: Apache-2.0
// The kernels of the driver's tests. kernels.ptx and kernels.fatbin are made from this file, with nvcc 13:
//   nvcc -ptx -arch=compute_75 -o kernels.ptx kernels.cu
//   nvcc -fatbin -gencode arch=compute_75,code=compute_75 -o kernels.fatbin kernels.cu
#include <assert.h>

struct Pair {
  char tag;
  double weight;
};

extern "C" {

__device__ int counter = 41;
__device__ int table[16] = {1, 2, 3};
__constant__ float factor = 2.0f;
static __device__ int launches = 5;

__global__ void add(const float* a, const float* b, float* sum, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];
}

__global__ void scale(float* values, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] *= factor;
}

__global__ void count(int times) {
  for (int i = 0; i < times; ++i) atomicAdd(&counter, 1);
  atomicAdd(&launches, 1);
}

__global__ void reverse(int* values) {
  extern __shared__ int shared[];
  shared[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void staticShared(int* values) {
  __shared__ int shared[1024];
  shared[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}

__global__ void mixed(char a, Pair pair, short b, double* out) { *out = a + pair.tag + pair.weight + b; }

__global__ void __launch_bounds__(128) bounded(int* out) { *out = blockDim.x; }

__global__ void nothing() {}

// Waits until the host, or another kernel, writes `flag`.
__global__ void await(volatile int* flag, int* out) {
  while (*flag == 0) {
  }
  *out = *flag;
}

__global__ void store(volatile int* address, int value) { *address = value; }
__global__ void fill(int* values, int n, int value) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) values[i] = value;
}
__global__ void trap() { asm volatile("trap;"); }
__global__ void check(int value) { assert(value == 7); }

// One piece of malloc()'s memory for each thread, which it marks as its own.
__global__ void take(int** pieces, unsigned long long bytes) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  pieces[i] = static_cast<int*>(malloc(bytes));
  if (pieces[i]) *pieces[i] = i;
}
__global__ void look(int** pieces, int* marks) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  marks[i] = pieces[i] ? *pieces[i] : -1;
}
__global__ void giveBack(int** pieces) { free(pieces[blockIdx.x * blockDim.x + threadIdx.x]); }
// Every thread allocates and frees many times, and counts changes of its memory by others.
__global__ void churn(int times, int* spoilt) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int t = 0; t < times; ++t) {
    int words = 1 + (i * 7 + t * 13) % 40;
    int* memory = static_cast<int*>(malloc(words * sizeof(int)));
    if (!memory) {
      atomicAdd(spoilt, 1);
      continue;
    }
    for (int w = 0; w < words; ++w) memory[w] = i;
    for (int w = 0; w < words; ++w)
      if (memory[w] != i) atomicAdd(spoilt, 1);
    free(memory);
  }
}
}
