// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

PROGRAM("copy-batch", "several copies in one call") {
  constexpr size_t count = 4, n = 256;
  std::vector<std::vector<int>> in(count, std::vector<int>(n)), out(count, std::vector<int>(n));
  std::vector<int*> buffers(count);
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < n; ++j) in[i][j] = static_cast<int>(i * 1000 + j);
    CHECK(cudaMalloc(&buffers[i], n * sizeof(int)));
  }
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  std::vector<void*> to(count);
  std::vector<const void*> from(count);
  std::vector<size_t> sizes(count, n * sizeof(int));
  for (size_t i = 0; i < count; ++i) to[i] = buffers[i], from[i] = in[i].data();
  cudaMemcpyAttributes attributes[1] = {};
  attributes[0].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t attributeIndex[1] = {0};
  SEE(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, attributes, attributeIndex, 1, stream));
  for (size_t i = 0; i < count; ++i) to[i] = out[count - 1 - i].data(), from[i] = buffers[i];
  SEE(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, attributes, attributeIndex, 1, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (const std::vector<int>& each : out) say("%d … %d", each.front(), each.back());
  SEE(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, attributes, attributeIndex, 1, nullptr));
  cudaGetLastError();
  for (int* buffer : buffers) CHECK(cudaFree(buffer));
  CHECK(cudaStreamDestroy(stream));
}
