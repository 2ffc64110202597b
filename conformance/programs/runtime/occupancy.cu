// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void plain(int* out) { out[threadIdx.x] = 1; }
static __global__ void __launch_bounds__(256) bounded(int* out) { out[threadIdx.x] = 1; }
static __global__ void sharing(int* out) {
  __shared__ int box[8192];
  box[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = box[(threadIdx.x + 1) % blockDim.x];
}

PROGRAM("occupancy", "how many blocks fit: by threads and shared memory, suggested sizes, what is wrong") {
  const int threads = conformance::attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  const int most = conformance::attribute(cudaDevAttrMaxBlocksPerMultiprocessor);
  for (const int block : {1, 32, 64, 128, 256, 512, 1024}) {
    int blocks = -1;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, block, 0));
    const int byThreads = threads / ((block + 31) / 32 * 32);
    say("%d threads: what the threads allow: %s", block, blocks == (byThreads < most ? byThreads : most) ? "yes" : "no");
  }
  int with = 0, without = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&without, sharing, 32, 0));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&with, sharing, 32, 16384));
  say("32 KiB of shared memory: fewer than of none: %s, with more: no more: %s", without < most ? "yes" : "no", with <= without ? "yes" : "no");
  int flagged = 0;
  SEE(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&flagged, plain, 128, 0, cudaOccupancyDisableCachingOverride));
  int grid = 0, block = 0;
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, plain, 0, 0));
  say("suggested: a block of some warps: %s, a grid that fills the device: %s", block % 32 == 0 && block >= 32 ? "yes" : "no",
      grid >= conformance::attribute(cudaDevAttrMultiProcessorCount) ? "yes" : "no");
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, bounded, 0, 0));
  say("within the launch bounds: %s", block <= 256 ? "yes" : "no");
  size_t bytes = 0;
  CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, plain, 1, 128));
  say("dynamic shared memory for one block: %s", bytes >= 48 * 1024 ? "48 KiB or more" : "less");
  int blocks = -1;
  SEE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 512, 0));
  // How many depends on the device; that the bounds are ignored does not.
  say("beyond the launch bounds: %s", blocks > 0 ? "some" : "none");
  SEE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, 0, 0));
  SEE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, 2000, 0));
  SEE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, plain, 128, 0));
}
