// SPDX-License-Identifier: Apache-2.0
// The kernels of the C programs. Their images are checked in: node scripts/start.mjs build-conformance --kernels
#include <cuda_runtime.h>

extern "C" {

__constant__ int factor = 3;
__device__ int counter = 100;
__device__ float table[16] = {0.5f, 1.5f, 2.5f};
__constant__ int box[64];

__global__ void scale(float* data, float by, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= by;
}

__global__ void fill(int* data, int value, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = value + static_cast<int>(i);
}

__global__ void add(const int* a, const int* b, int* c, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void append(int* log, int value) { log[1 + log[0]++] = value; }

__global__ void count(int* out) {
  if (threadIdx.x == 0) out[blockIdx.x] = atomicAdd(&counter, factor);
}

__global__ void globals(int* out, float* reals) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = box[i];
  if (i < 16) reals[i] = table[i];
}

__global__ void mixed(char c, short s, int i, long long l, float f, double d, const int* p, double* out) {
  out[0] = c, out[1] = s, out[2] = i, out[3] = static_cast<double>(l), out[4] = f, out[5] = d, out[6] = *p;
}

__global__ void spin(long long cycles, int* out, int value) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
  *out = value;
}

__global__ void dynamic(int* out, unsigned words) {
  extern __shared__ int shared[];
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) shared[i] = static_cast<int>(i);
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (unsigned i = 0; i < words; ++i) sum += shared[i];
    *out = sum;
  }
}

__global__ void wait(volatile int* flag, int* out) {
  while (*flag == 0) {
  }
  *out = *flag;
}

__global__ void bounds(int* data, unsigned long long index) { data[index] = 1; }

__global__ void nothing() {}

__global__ void __launch_bounds__(128, 2) bounded(int* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = 1; }

__global__ void stacked(int* out, int n) {
  int local[256];
  for (int i = 0; i < 256; ++i) local[i] = i * n;
  *out = local[(n * 37) & 255] + local[n & 255];
}

}  // extern "C"
