// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp16.h>

#include "conformance.h"

/// A product of 16 × 8 by 8 × 8, whose fragments the PTX ISA defines element by element.
static __global__ void multiply(const __half* a, const __half* b, float* c) {
  __shared__ __align__(16) __half left[16 * 8];
  __shared__ __align__(16) __half right[8 * 8];
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < 16 * 8; i += 32) left[i] = a[i];
  for (unsigned i = lane; i < 8 * 8; i += 32) right[i] = b[i];
  __syncwarp();
  unsigned low, high, columns;
  const auto leftRow = static_cast<unsigned>(__cvta_generic_to_shared(&left[lane % 16 * 8]));
  const auto rightRow = static_cast<unsigned>(__cvta_generic_to_shared(&right[lane % 8 * 8]));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(leftRow));
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(columns) : "r"(rightRow));
  float sum[4] = {0.5f, 0.5f, 0.5f, 0.5f};
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(low), "r"(high), "r"(columns));
  for (unsigned e = 0; e < 4; ++e) c[(lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = sum[e];
}

static __global__ void multiplyBytes(int* c) {
  const int lane = static_cast<int>(threadIdx.x);
  int sum[2] = {lane, -lane};
  // Every element of a is -2, every one of b is 200: a sum of 16 products.
  asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+r"(sum[0]), "+r"(sum[1])
               : "r"(0xfefefefe), "r"(0xc8c8c8c8));
  c[2 * lane] = sum[0];
  c[2 * lane + 1] = sum[1];
}

PROGRAM("fragments", "matrix instructions by their PTX names: rows from shared memory, products of halves and bytes") {
  std::vector<__half> a(16 * 8), b(8 * 8);
  for (size_t i = 0; i < a.size(); ++i) a[i] = __float2half(static_cast<float>(static_cast<int>(i * 5 % 11) - 5));
  for (size_t i = 0; i < b.size(); ++i) b[i] = __float2half(static_cast<float>(static_cast<int>(i * 3 % 7) - 3));
  conformance::Device<__half> deviceA(a), deviceB(b);
  conformance::Device<float> c(16 * 8);
  multiply<<<1, 32>>>(deviceA, deviceB, c);
  SEE(cudaGetLastError());
  const std::vector<float> found = c.take();
  int wrong = 0;
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 8; ++j) {
      float exact = 0.5f;
      for (size_t k = 0; k < 8; ++k) exact += __half2float(a[i * 8 + k]) * __half2float(b[k * 8 + j]);
      wrong += found[i * 8 + j] != exact;
    }
  say("%d wrong, first %g, last %g", wrong, static_cast<double>(found.front()), static_cast<double>(found.back()));
  conformance::Device<int> sums(64);
  multiplyBytes<<<1, 32>>>(sums);
  SEE(cudaGetLastError());
  const std::vector<int> bytes = sums.take();
  say("of bytes: %d %d, %d %d", bytes[0], bytes[1], bytes[62], bytes[63]);
}
