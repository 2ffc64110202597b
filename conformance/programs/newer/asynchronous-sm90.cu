// SPDX-License-Identifier: Apache-2.0
#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline_primitives.h>

#include "conformance.h"

/// Threads copy the next tile while they read the present one, which other threads have copied.
static __global__ void ahead(const int4* from, int* sums, int tiles) {
  __shared__ int4 tile[2][64];
  const unsigned thread = threadIdx.x;
  __pipeline_memcpy_async(&tile[0][thread], &from[thread], sizeof(int4));
  __pipeline_commit();
  int sum = 0;
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles)
      __pipeline_memcpy_async(&tile[(t + 1) % 2][thread], &from[(t + 1) * 64 + static_cast<int>(thread)], sizeof(int4));
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    const int4 other = tile[t % 2][63 - thread];
    sum += other.x + 2 * other.y + 3 * other.z + 4 * other.w;
    __syncthreads();
  }
  sums[thread] = sum;
}

static __global__ void partly(const int4* from, int4* to) {
  __shared__ int4 tile[32];
  tile[threadIdx.x] = make_int4(-1, -1, -1, -1);
  // The rest becomes zero.
  __pipeline_memcpy_async(&tile[threadIdx.x], &from[threadIdx.x], sizeof(int4), threadIdx.x % 2 ? 8 : 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  to[threadIdx.x] = tile[threadIdx.x];
}

static __global__ void phases(int* out) {
  __shared__ __mbarrier_t barrier;
  __shared__ int values[96];
  if (threadIdx.x == 0) __mbarrier_init(&barrier, blockDim.x);
  __syncthreads();
  int sum = 0;
  for (int round = 0; round < 7; ++round) {
    values[threadIdx.x] = static_cast<int>(threadIdx.x) * round;
    __mbarrier_token_t token = __mbarrier_arrive(&barrier);
    while (!__mbarrier_test_wait(&barrier, token)) continue;
    sum += values[(threadIdx.x + 33) % 96];
    token = __mbarrier_arrive(&barrier);
    while (!__mbarrier_test_wait(&barrier, token)) continue;
  }
  out[threadIdx.x] = sum;
}

static __global__ void reduced(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __reduce_add_sync(~0u, lane) + 1000 * __reduce_max_sync(~0u, lane ^ 5) +
              100000 * static_cast<int>(__reduce_xor_sync(~0u, static_cast<unsigned>(lane * lane)));
}

PROGRAM("asynchronous", "copies to shared memory ahead of time, barriers in shared memory, reductions across a warp") {
  constexpr int tiles = 9;
  std::vector<int4> from(64 * tiles);
  for (int i = 0; i < 64 * tiles; ++i) from[static_cast<size_t>(i)] = make_int4(i, i * 7 % 13, -i, i % 5);
  conformance::Device<int4> device(from), part(32);
  conformance::Device<int> out(96);
  reduced<<<1, 32>>>(out);
  if (cudaGetLastError() == cudaErrorNoKernelImageForDevice) conformance::skip("the device lacks these instructions");
  const std::vector<int> sums = out.take();
  say("reduced: %d in lane 0, %d in lane 31", sums[0], sums[31]);
  ahead<<<1, 64>>>(device, out, tiles);
  SEE(cudaGetLastError());
  const std::vector<int> seen = out.take();
  int wrong = 0;
  for (size_t t = 0; t < 64; ++t) {
    int sum = 0;
    for (size_t k = 0; k < tiles; ++k) {
      const int4& other = from[k * 64 + 63 - t];
      sum += other.x + 2 * other.y + 3 * other.z + 4 * other.w;
    }
    wrong += seen[t] != sum;
  }
  say("ahead: %d wrong", wrong);
  partly<<<1, 32>>>(device, part);
  SEE(cudaGetLastError());
  const std::vector<int4> parts = part.take();
  say("partly: %d %d %d %d", parts[9].x, parts[9].y, parts[9].z, parts[9].w);
  phases<<<1, 96>>>(out);
  SEE(cudaGetLastError());
  const std::vector<int> phased = out.take();
  say("phases: %d %d %d", phased[0], phased[62], phased[63]);
}
