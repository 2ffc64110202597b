// SPDX-License-Identifier: Apache-2.0
// Half of a program that is linked when it runs.
extern "C" {
__device__ int twice(int value);
extern __device__ int shift;
__global__ void linked(int* out) { out[threadIdx.x] = twice(static_cast<int>(threadIdx.x)) + shift; }
}
