// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

#include <cmath>

static __global__ void rounding(const float* a, const float* b, float* out) {
  const int i = static_cast<int>(threadIdx.x);
  float* to = out + i * 20;
  const float x = a[i], y = b[i];
  int n = 0;
  to[n++] = __fadd_rn(x, y), to[n++] = __fadd_rz(x, y), to[n++] = __fadd_ru(x, y), to[n++] = __fadd_rd(x, y);
  to[n++] = __fmul_rn(x, y), to[n++] = __fmul_rz(x, y), to[n++] = __fmul_ru(x, y), to[n++] = __fmul_rd(x, y);
  to[n++] = __fmaf_rn(x, y, 1.0f), to[n++] = __fmaf_rz(x, y, -1.0f);
  to[n++] = __fdiv_rn(x, y), to[n++] = __fdiv_rz(x, y);
  to[n++] = __fsqrt_rn(fabsf(x)), to[n++] = __frcp_rn(y), to[n++] = fminf(x, y), to[n++] = fmaxf(x, y);
  to[n++] = truncf(x), to[n++] = rintf(x), to[n++] = floorf(x), to[n++] = ceilf(x);
}

static __global__ void convert(const float* a, long long* out) {
  const int i = static_cast<int>(threadIdx.x);
  long long* to = out + i * 12;
  const float x = a[i];
  int n = 0;
  to[n++] = __float2int_rn(x), to[n++] = __float2int_rz(x), to[n++] = __float2int_ru(x), to[n++] = __float2int_rd(x);
  to[n++] = __float2uint_rn(x), to[n++] = __float2ll_rn(x), to[n++] = static_cast<long long>(__float2ull_rz(x));
  to[n++] = __float_as_int(x), to[n++] = isnan(x), to[n++] = isinf(x), to[n++] = signbit(x) != 0;
  to[n++] = __float_as_int(__int2float_rz(static_cast<int>(0x7fffff7f) - i));
}

PROGRAM("floats", "single precision: rounding modes, denormals, infinities, NaN, conversions") {
  const std::vector<float> a = {1.0f,  -2.5f, 3.3333333f, 1e-38f,  1e-45f, 3e38f,    INFINITY, -INFINITY, NAN,
                                -0.0f, 0.5f,  1.5f,       8388609, 2.6f,   -1e10f, 16777216,  0.1f};
  const std::vector<float> b = {3.0f, 7.1f, -1e-7f, 1e-5f, 0.5f, 2.0f, 1.0f, INFINITY, 1.0f,
                                0.0f, 0.5f, -1.5f,  3.0f,  1e9f, 7.0f, 0.3f, 0.2f};
  conformance::Device<float> deviceA(a), deviceB(b), out(a.size() * 20);
  rounding<<<1, static_cast<unsigned>(a.size())>>>(deviceA, deviceB, out);
  conformance::Device<long long> converted(a.size() * 12);
  convert<<<1, static_cast<unsigned>(a.size())>>>(deviceA, converted);
  const std::vector<float> results = out.take();
  const std::vector<long long> integers = converted.take();
  for (size_t i = 0; i < a.size(); ++i) {
    std::printf("%g and %g:", static_cast<double>(a[i]), static_cast<double>(b[i]));
    for (size_t j = 0; j < 20; ++j) {
      uint32_t bits;
      std::memcpy(&bits, &results[i * 20 + j], 4);
      if (std::isnan(results[i * 20 + j])) std::printf(" nan");
      else std::printf(" %08x", bits);
    }
    std::printf(" |");
    for (size_t j = 0; j < 12; ++j) {
      const bool isNan = std::isnan(a[i]) && j == 7;
      if (isNan) std::printf(" nan");
      else std::printf(" %lld", integers[i * 12 + j]);
    }
    std::printf("\n");
  }
}
