// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void shuffle(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const int value = lane * lane + 1;
  int* to = out + lane * 8;
  to[0] = __shfl_sync(0xffffffff, value, (lane * 5 + 3) % 32);
  to[1] = __shfl_up_sync(0xffffffff, value, 3);
  to[2] = __shfl_down_sync(0xffffffff, value, 5);
  to[3] = __shfl_xor_sync(0xffffffff, value, 9);
  to[4] = __shfl_sync(0xffffffff, value, 11, 8);
  to[5] = __shfl_up_sync(0xffffffff, value, 2, 16);
  to[6] = __shfl_down_sync(0xffffffff, value, 3, 4);
  to[7] = __shfl_xor_sync(0xffffffff, value, 6, 8);
}

static __global__ void wide(double* d, long long* l) {
  const int lane = static_cast<int>(threadIdx.x);
  d[lane] = __shfl_xor_sync(0xffffffff, lane + 0.5, 1);
  l[lane] = __shfl_down_sync(0xffffffff, (1LL << 40) + lane, 16);
}

static __global__ void some(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = -1;
  if (lane % 3 == 0) out[lane] = __shfl_sync(0x49249249, lane * 10, (lane + 3) % 33);
}

static __global__ void reduce(const int* in, int* out, int n) {
  int sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) sum += in[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}

PROGRAM("shuffles", "warp shuffles of every kind, width and type; partial warps") {
  conformance::Device<int> out(256);
  shuffle<<<1, 32>>>(out);
  const std::vector<int> values = out.take();
  for (int kind = 0; kind < 8; ++kind) {
    std::vector<int> lanes;
    for (int lane = 0; lane < 32; ++lane) lanes.push_back(values[static_cast<size_t>(lane * 8 + kind)]);
    conformance::list("shuffle", lanes);
  }
  conformance::Device<double> d(32);
  conformance::Device<long long> l(32);
  wide<<<1, 32>>>(d, l);
  conformance::list("double", d.take());
  conformance::list("long long", l.take());
  conformance::Device<int> partial(32);
  some<<<1, 32>>>(partial);
  conformance::list("every third", partial.take());
  std::vector<int> many(10000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int>(i % 97);
  conformance::Device<int> in(many), sum(1);
  sum.clear();
  reduce<<<1, 256>>>(in, sum, 10000);
  conformance::list("sum", sum.take());
}
