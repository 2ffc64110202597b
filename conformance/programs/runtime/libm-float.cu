// SPDX-License-Identifier: Apache-2.0
// Says for each function whether its error stays within the bound of the CUDA C++ Programming Guide, in units of the
// last place; the values themselves may differ between devices.
#include "conformance.h"

#include <cmath>

enum { kSin, kCos, kTan, kAsin, kAcos, kAtan, kSinh, kCosh, kTanh, kExp, kExp2, kExp10, kExpm1, kLog, kLog2, kLog10, kLog1p, kCbrt, kRsqrt, kErf, kErfc, kTgamma, kLgamma, kAtanh, kAsinh, kAcosh, kSinpi, kFunctions };

static __global__ void evaluate(int function, const float* in, float* out, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = in[i];
  float y = 0;
  switch (function) {
    case kSin: y = sinf(x); break;
    case kCos: y = cosf(x); break;
    case kTan: y = tanf(x); break;
    case kAsin: y = asinf(x); break;
    case kAcos: y = acosf(x); break;
    case kAtan: y = atanf(x); break;
    case kSinh: y = sinhf(x); break;
    case kCosh: y = coshf(x); break;
    case kTanh: y = tanhf(x); break;
    case kExp: y = expf(x); break;
    case kExp2: y = exp2f(x); break;
    case kExp10: y = exp10f(x); break;
    case kExpm1: y = expm1f(x); break;
    case kLog: y = logf(x); break;
    case kLog2: y = log2f(x); break;
    case kLog10: y = log10f(x); break;
    case kLog1p: y = log1pf(x); break;
    case kCbrt: y = cbrtf(x); break;
    case kRsqrt: y = rsqrtf(x); break;
    case kErf: y = erff(x); break;
    case kErfc: y = erfcf(x); break;
    case kTgamma: y = tgammaf(x); break;
    case kLgamma: y = lgammaf(x); break;
    case kAtanh: y = atanhf(x); break;
    case kAsinh: y = asinhf(x); break;
    case kAcosh: y = acoshf(x); break;
    case kSinpi: y = sinpif(x); break;
  }
  out[i] = y;
}

struct Function {
  const char* name;
  double (*exact)(double);
  double bound, low, high;
};

static const Function functions[kFunctions] = {
    {"sin", std::sin, 2, -100, 100},       {"cos", std::cos, 2, -100, 100},
    {"tan", std::tan, 4, -1.5, 1.5},       {"asin", std::asin, 2, -1, 1},
    {"acos", std::acos, 2, -1, 1},         {"atan", std::atan, 2, -50, 50},
    {"sinh", std::sinh, 3, -20, 20},       {"cosh", std::cosh, 2, -20, 20},
    {"tanh", std::tanh, 2, -5, 5},         {"exp", std::exp, 2, -50, 50},
    {"exp2", [](double x) { return std::exp2(x); }, 2, -50, 50},
    {"exp10", [](double x) { return std::pow(10.0, x); }, 2, -20, 20},
    {"expm1", std::expm1, 1, -3, 20},      {"log", std::log, 1, 0.01, 1000},
    {"log2", std::log2, 1, 0.01, 1000},    {"log10", std::log10, 2, 0.01, 1000},
    {"log1p", std::log1p, 1, -0.5, 100},   {"cbrt", std::cbrt, 1, -1000, 1000},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 2, 0.001, 1000},
    {"erf", std::erf, 2, -3, 3},           {"erfc", std::erfc, 4, -3, 6},
    {"tgamma", std::tgamma, 5, 0.1, 20},   {"lgamma", std::lgamma, 6, 3.5, 100},
    {"atanh", std::atanh, 3, -0.9, 0.9},   {"asinh", std::asinh, 3, -100, 100},
    {"acosh", std::acosh, 4, 1.01, 100},   {"sinpi", [](double x) { return std::sin(M_PI * std::remainder(x, 2.0)); }, 1, -0.45, 0.45},
};

PROGRAM("libm-float", "functions of single precision within the guide's error bounds") {
  constexpr unsigned n = 4000;
  for (int f = 0; f < kFunctions; ++f) {
    const Function& function = functions[f];
    std::vector<float> in(n);
    for (unsigned i = 0; i < n; ++i) in[i] = static_cast<float>(function.low + (function.high - function.low) * (i + 0.5) / n);
    conformance::Device<float> deviceIn(in), deviceOut(n);
    evaluate<<<(n + 255) / 256, 256>>>(f, deviceIn, deviceOut, n);
    const std::vector<float> out = deviceOut.take();
    unsigned beyond = 0;
    for (unsigned i = 0; i < n; ++i) {
      const double exact = function.exact(static_cast<double>(in[i]));
      const auto rounded = static_cast<float>(exact);
      const double unit = static_cast<double>(std::nextafterf(std::fabs(rounded), INFINITY)) - static_cast<double>(std::fabs(rounded));
      // Rounding the exact value itself adds half a unit.
      if (!(std::fabs(static_cast<double>(out[i]) - exact) <= (function.bound + 0.5) * unit)) ++beyond;
    }
    say("%s: %u of %u beyond %g units", function.name, beyond, n, function.bound);
  }
}
