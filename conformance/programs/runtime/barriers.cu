// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void reverse(int* data) {
  __shared__ int tile[256];
  const unsigned i = threadIdx.x;
  tile[i] = data[blockIdx.x * 256 + i];
  __syncthreads();
  data[blockIdx.x * 256 + i] = tile[255 - i];
}

static __global__ void votes(int* out) {
  const int i = static_cast<int>(threadIdx.x);
  const int count = __syncthreads_count(i % 3 == 0);
  const int all = __syncthreads_and(i < 200) != 0;
  const int any = __syncthreads_or(i == 77) != 0;
  if (i % 40 == 0) out[i / 40] = count * 100 + all * 10 + any;
}

// Two halves of a block hand values to each other over named barriers.
static __global__ void named(int* out) {
  __shared__ int box[64];
  const int i = static_cast<int>(threadIdx.x);
  int sum = 0;
  for (int round = 0; round < 10; ++round) {
    if (i < 64) {
      box[i] = i * 100 + round;
      asm volatile("bar.arrive 1, 128;" ::: "memory");
      asm volatile("bar.sync 2, 128;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 128;" ::: "memory");
      sum += box[127 - i];
      asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  }
  if (i >= 64) out[i - 64] = sum;
}

// Threads that have left do not hold up those that wait.
static __global__ void leaving(int* out) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  if (threadIdx.x >= 64) return;
  atomicAdd(&count, 1);
  __syncthreads();
  if (threadIdx.x == 63) *out = count;
}

PROGRAM("barriers", "barriers of a block: with votes, named, of a part of the threads") {
  std::vector<int> values(1024);
  for (int i = 0; i < 1024; ++i) values[static_cast<size_t>(i)] = i * i % 1009;
  conformance::Device<int> data(values);
  reverse<<<4, 256>>>(data);
  say("reversed: digest %016llx", static_cast<unsigned long long>(conformance::digest(data.take().data(), 4096)));
  conformance::Device<int> out(5);
  votes<<<1, 200>>>(out);
  conformance::list("with votes", out.take());
  conformance::Device<int> sums(64);
  named<<<1, 128>>>(sums);
  conformance::list("named", sums.take());
  conformance::Device<int> left(1);
  leaving<<<1, 128>>>(left);
  conformance::list("leaving", left.take());
}
