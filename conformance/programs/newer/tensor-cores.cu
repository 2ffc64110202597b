// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp16.h>
#include <mma.h>

#include "conformance.h"

namespace wmma = nvcuda::wmma;

static __global__ void multiply(const __half* a, const __half* b, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 1.0f);
  wmma::load_matrix_sync(left, a, 16);
  wmma::load_matrix_sync(right, b, 16);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

PROGRAM("tensor-cores", "a product of small matrices on the tensor cores, with exact values") {
  std::vector<__half> a(256), b(256);
  for (int i = 0; i < 256; ++i) {
    a[static_cast<size_t>(i)] = __float2half(static_cast<float>(i % 7 - 3));
    b[static_cast<size_t>(i)] = __float2half(static_cast<float>(i % 5) * 0.5f);
  }
  conformance::Device<__half> deviceA(a), deviceB(b);
  conformance::Device<float> c(256);
  multiply<<<1, 32>>>(deviceA, deviceB, c);
  SEE(cudaGetLastError());
  const std::vector<float> found = c.take();
  int wrong = 0;
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 16; ++j) {
      float exact = 1;
      for (size_t k = 0; k < 16; ++k) exact += __half2float(a[i * 16 + k]) * __half2float(b[j * 16 + k]);
      wrong += found[i * 16 + j] != exact;
    }
  say("%d wrong, first %g, last %g", wrong, static_cast<double>(found[0]), static_cast<double>(found[255]));
}
