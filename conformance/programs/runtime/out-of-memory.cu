// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

PROGRAM("out-of-memory", "allocations until nothing is left: the error, and that all goes on afterwards") {
  std::vector<void*> blocks;
  cudaError_t status = cudaSuccess;
  size_t size = size_t{256} << 20;
  // More than any device has, so that the loop ends.
  while (blocks.size() < 4096) {
    void* block = nullptr;
    status = cudaMalloc(&block, size);
    if (status != cudaSuccess) break;
    blocks.push_back(block);
  }
  say("at the end: %s, some blocks: %s", cudaGetErrorName(status), blocks.empty() ? "no" : "yes");
  say("last error: %s, then %s", cudaGetErrorName(cudaGetLastError()), cudaGetErrorName(cudaGetLastError()));
  void* after = nullptr;
  if (!blocks.empty()) {
    CHECK(cudaFree(blocks.back()));
    blocks.pop_back();
    SEE(cudaMalloc(&after, size));
    SEE(cudaMemset(after, 1, size));
    SEE(cudaFree(after));
  }
  for (void* block : blocks) CHECK(cudaFree(block));
  SEE(cudaDeviceSynchronize());
}
