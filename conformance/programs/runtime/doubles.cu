// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

#include <cmath>

static __global__ void rounding(const double* a, const double* b, double* out) {
  const int i = static_cast<int>(threadIdx.x);
  double* to = out + i * 18;
  const double x = a[i], y = b[i];
  int n = 0;
  to[n++] = __dadd_rn(x, y), to[n++] = __dadd_rz(x, y), to[n++] = __dadd_ru(x, y), to[n++] = __dadd_rd(x, y);
  to[n++] = __dmul_rn(x, y), to[n++] = __dmul_rz(x, y), to[n++] = __dmul_ru(x, y), to[n++] = __dmul_rd(x, y);
  to[n++] = __fma_rn(x, y, 1.0), to[n++] = __fma_rd(x, y, -1.0), to[n++] = __ddiv_rn(x, y), to[n++] = __ddiv_ru(x, y);
  to[n++] = __dsqrt_rn(fabs(x)), to[n++] = __drcp_rn(y), to[n++] = fmin(x, y), to[n++] = fmax(x, y);
  to[n++] = rint(x), to[n++] = static_cast<double>(__double2float_rz(x));
}

static __global__ void convert(const double* a, long long* out) {
  const int i = static_cast<int>(threadIdx.x);
  long long* to = out + i * 8;
  const double x = a[i];
  int n = 0;
  to[n++] = __double2int_rn(x), to[n++] = __double2int_rz(x), to[n++] = __double2ll_ru(x);
  to[n++] = static_cast<long long>(__double2ull_rd(x)), to[n++] = __double2uint_rn(x);
  to[n++] = __double2hiint(x), to[n++] = __double_as_longlong(__ll2double_rz((1LL << 62) + 12345 + i));
  to[n++] = __double_as_longlong(__hiloint2double(1072693248 + i, i));
}

PROGRAM("doubles", "double precision: rounding modes, denormals, infinities, NaN, conversions") {
  const std::vector<double> a = {1.0, -2.5, 1.0 / 3, 1e-308, 5e-324, 1.7e308, INFINITY, -INFINITY, NAN, -0.0, 0.5, 2.5, 1e19, -7e9};
  const std::vector<double> b = {3.0, 7.1, -1e-17, 1e-5, 0.5, 2.0, 1.0, INFINITY, 1.0, 0.0, 1.5, -1.5, 3.0, 1e-9};
  const auto n = static_cast<unsigned>(a.size());
  conformance::Device<double> deviceA(a), deviceB(b), out(a.size() * 18);
  conformance::Device<long long> converted(a.size() * 8);
  rounding<<<1, n>>>(deviceA, deviceB, out);
  convert<<<1, n>>>(deviceA, converted);
  const std::vector<double> results = out.take();
  const std::vector<long long> integers = converted.take();
  for (size_t i = 0; i < a.size(); ++i) {
    std::printf("%g and %g:", a[i], b[i]);
    for (size_t j = 0; j < 18; ++j) {
      uint64_t bits;
      std::memcpy(&bits, &results[i * 18 + j], 8);
      if (std::isnan(results[i * 18 + j])) std::printf(" nan");
      else std::printf(" %llx", static_cast<unsigned long long>(bits));
    }
    for (size_t j = 0; j < 8; ++j) {
      if (std::isnan(a[i]) && j == 5) std::printf(" nan");
      else std::printf(" %lld", integers[i * 8 + j]);
    }
    std::printf("\n");
  }
}
