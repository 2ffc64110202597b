// SPDX-License-Identifier: Apache-2.0
// Says for each function whether its error stays within the bound of the CUDA C++ Programming Guide, measured against
// the host's long double functions.
#include "conformance.h"

#include <cmath>

using Exact = long double (*)(long double);

#define FUNCTIONS(X)                                                                                              \
  X(sin, 2, -100, 100) X(cos, 2, -100, 100) X(tan, 2, -1.5, 1.5) X(asin, 2, -1, 1) X(acos, 2, -1, 1)              \
  X(atan, 2, -50, 50) X(sinh, 2, -20, 20) X(cosh, 1, -20, 20) X(tanh, 1, -5, 5) X(exp, 1, -50, 50)                \
  X(exp2, 1, -50, 50) X(expm1, 1, -3, 20) X(log, 1, 0.01, 1000) X(log2, 1, 0.01, 1000) X(log10, 1, 0.01, 1000)    \
  X(log1p, 1, -0.5, 100) X(cbrt, 1, -1000, 1000) X(erf, 2, -3, 3) X(erfc, 5, -3, 6) X(atanh, 2, -0.9, 0.9)        \
  X(asinh, 3, -100, 100) X(acosh, 3, 1.01, 100) X(sqrt, 0, 0, 1000) X(fabs, 0, -10, 10) X(floor, 0, -10, 10)      \
  X(trunc, 0, -10, 10) X(rint, 0, -10, 10) X(round, 0, -10, 10)

#define KERNEL(name, bound, low, high)                                                  \
  static __global__ void device_##name(const double* in, double* out, unsigned n) {     \
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                           \
    if (i < n) out[i] = ::name(in[i]);                                                  \
  }
FUNCTIONS(KERNEL)

struct Function {
  const char* name;
  void (*kernel)(const double*, double*, unsigned);
  Exact exact;
  double bound, low, high;
};
#define ROW(name, bound, low, high) {#name, device_##name, static_cast<Exact>(std::name), bound, low, high},
static const Function functions[] = {FUNCTIONS(ROW)};

static __global__ void two(const double* a, const double* b, double* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i * 5] = fmod(a[i], b[i]), out[i * 5 + 1] = remainder(a[i], b[i]), out[i * 5 + 2] = copysign(a[i], b[i]);
  int exponent = 0;
  out[i * 5 + 3] = frexp(a[i], &exponent);
  out[i * 5 + 4] = ldexp(b[i], exponent) + scalbn(a[i], 3);
}

PROGRAM("libm-double", "functions of double precision within the guide's error bounds") {
  constexpr unsigned n = 2000;
  for (const Function& function : functions) {
    std::vector<double> in(n);
    for (unsigned i = 0; i < n; ++i) in[i] = function.low + (function.high - function.low) * (i + 0.5) / n;
    conformance::Device<double> deviceIn(in), deviceOut(n);
    function.kernel<<<(n + 127) / 128, 128>>>(deviceIn, deviceOut, n);
    const std::vector<double> out = deviceOut.take();
    unsigned beyond = 0;
    for (unsigned i = 0; i < n; ++i) {
      const long double exact = function.exact(static_cast<long double>(in[i]));
      const double rounded = std::fabs(static_cast<double>(exact));
      const long double unit = static_cast<long double>(std::nextafter(rounded, INFINITY)) - static_cast<long double>(rounded);
      if (!(std::fabs(static_cast<long double>(out[i]) - exact) <= (static_cast<long double>(function.bound) + 0.5L) * unit)) ++beyond;
    }
    say("%s: %u of %u beyond %g units", function.name, beyond, n, function.bound);
  }
  conformance::Device<double> a(std::vector<double>{5.3, -7.75, 1e10, 0.1}), b(std::vector<double>{2.1, 3.0, 7.0, -0.03}), out(20);
  two<<<1, 4>>>(a, b, out);
  conformance::list("of two", out.take());
}
