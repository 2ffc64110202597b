// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

using Wide = unsigned __int128;
using SignedWide = __int128;

static __host__ __device__ void compute(uint64_t a, uint64_t b, uint64_t* out) {
  const Wide product = static_cast<Wide>(a) * b;
  const Wide mixed = product + (static_cast<Wide>(b) << 64 | a);
  const SignedWide negative = -static_cast<SignedWide>(mixed >> 3);
  const Wide results[] = {
      product,
      mixed / b,
      mixed % b,
      mixed / 1000003,
      mixed / (product | 1),
      static_cast<Wide>(negative / static_cast<SignedWide>(b >> 1)),
      static_cast<Wide>(negative % 12345),
      static_cast<Wide>(negative >> (a & 127)),
      mixed << (b & 127),
      product - mixed,
      static_cast<Wide>(negative < static_cast<SignedWide>(a)),
  };
  for (const Wide result : results) {
    *out++ = static_cast<uint64_t>(result);
    *out++ = static_cast<uint64_t>(result >> 64);
  }
}
static constexpr int kWords = 22;

static __global__ void computeAll(const uint64_t* values, int count, uint64_t* out) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) compute(values[i], values[(i + 3) % count], out + i * kWords);
}

PROGRAM("wide-integers", "integers of 128 bits: products, quotients and remainders, shifts, comparisons") {
  const std::vector<uint64_t> values = {3, 0xdeadbeefcafebabe, 7, 98765432123, ~uint64_t{0}, uint64_t{1} << 63, 1000003, 0x100000001};
  const conformance::Device<uint64_t> in(values);
  const conformance::Device<uint64_t> out(values.size() * kWords);
  computeAll<<<1, 32>>>(in, static_cast<int>(values.size()), out);
  CHECK(cudaGetLastError());
  const std::vector<uint64_t> got = out.take();
  for (size_t i = 0; i < values.size(); ++i) {
    uint64_t expected[kWords];
    compute(values[i], values[(i + 3) % values.size()], expected);
    const bool isSame = std::memcmp(expected, &got[i * kWords], sizeof(expected)) == 0;
    say("%zu: %016llx, as on the host: %s", i,
        static_cast<unsigned long long>(conformance::digest(&got[i * kWords], sizeof(expected))), isSame ? "yes" : "no");
  }
}
