// SPDX-License-Identifier: Apache-2.0
// The other half.
extern "C" {
__device__ int shift = 1000;
__device__ int twice(int value) { return 2 * value; }
}
