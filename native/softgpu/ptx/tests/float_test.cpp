// SPDX-License-Identifier: Apache-2.0
// Floating-point arithmetic in every rounding, flushing, saturation, and the approximations.
#include <cfenv>
#include <cmath>

#include "softgpu/ptx/tests/instruction.h"

using namespace millpond::softgpu::ptx;
using namespace millpond::softgpu::ptx::testing;

namespace {

struct Mode {
  const char* name;
  int host;
};
constexpr Mode kModes[] = {{".rn", FE_TONEAREST}, {".rz", FE_TOWARDZERO}, {".rm", FE_DOWNWARD}, {".rp", FE_UPWARD}};

/// f(sources) in a rounding mode of the host; the volatile copies keep it from being computed elsewhere.
template <typename T, typename F>
auto rounded(int mode, F f) {
  return [=](auto... sources) {
    std::tuple<std::conditional_t<true, volatile T, decltype(sources)>...> kept{sources...};
    int before = std::fegetround();
    std::fesetround(mode);
    volatile T out = std::apply([&](auto&... v) { return f(static_cast<T>(v)...); }, kept);
    std::fesetround(before);
    return static_cast<T>(out);
  };
}

float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
template <typename T>
T clamp01(T x) {
  return x > 0 ? std::min(x, T{1}) : T{0};
}

template <typename T>
void arithmetic(const std::string& t) {
  for (const Mode& mode : kModes) {
    std::string m = mode.name + t;
    auto add = [](T a, T b) { return a + b; };
    auto sub = [](T a, T b) { return a - b; };
    auto mul = [](T a, T b) { return a * b; };
    auto div = [](T a, T b) { return a / b; };
    auto fma = [](T a, T b, T c) { return std::fma(a, b, c); };
    auto rcp = [](T a) { return T{1} / a; };
    auto root = [](T a) { return std::sqrt(a); };
    checkInstruction<T, T, T>("add" + m + " %d, %a, %b;", rounded<T>(mode.host, add));
    checkInstruction<T, T, T>("sub" + m + " %d, %a, %b;", rounded<T>(mode.host, sub));
    checkInstruction<T, T, T>("mul" + m + " %d, %a, %b;", rounded<T>(mode.host, mul));
    checkInstruction<T, T, T>("div" + m + " %d, %a, %b;", rounded<T>(mode.host, div));
    checkInstruction<T, T, T, T>("fma" + m + " %d, %a, %b, %c;", rounded<T>(mode.host, fma));
    checkInstruction<T, T, T, T>("mad" + m + " %d, %a, %b, %c;", rounded<T>(mode.host, fma));
    checkInstruction<T, T>("rcp" + m + " %d, %a;", rounded<T>(mode.host, rcp));
    checkInstruction<T, T>("sqrt" + m + " %d, %a;", rounded<T>(mode.host, root));
  }
  checkInstruction<T, T, T>("add" + t + " %d, %a, %b;", [](T a, T b) { return a + b; });
  checkInstruction<T, T>("abs" + t + " %d, %a;", [](T a) { return std::fabs(a); });
  checkInstruction<T, T>("neg" + t + " %d, %a;", [](T a) { return -a; });
  checkInstruction<T, T, T>("copysign" + t + " %d, %a, %b;", [](T a, T b) { return std::copysign(b, a); });
}

template <typename T>
T smaller(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <typename T>
T larger(T a, T b) {
  return -smaller(-a, -b);
}

/// Within `ulps` of the exact value, or of the same kind if that is not finite.
struct Near {
  std::function<double(double)> exact;
  double ulps;
  double absolute = 0;
  bool operator()(float got, float a) const {
    double want = exact(static_cast<double>(a));
    float nearest = static_cast<float>(want);
    if (want != want) return got != got;
    if (std::isinf(nearest) || nearest == 0)
      return got == nearest || std::fabs(static_cast<double>(got) - want) <= absolute;
    double ulp =
        static_cast<double>(std::nextafter(std::fabs(nearest), INFINITY)) - static_cast<double>(std::fabs(nearest));
    return std::fabs(static_cast<double>(got) - want) <= std::max(ulps * ulp, absolute);
  }
};
void checkNear(const std::string& instruction, std::function<double(double)> exact, double ulps, double absolute = 0) {
  checkInstructionWith<float, float>(instruction, combinations<float>(), Near{std::move(exact), ulps, absolute});
}

}  // namespace

TEST("single precision in every rounding") { arithmetic<float>(".f32"); }
TEST("double precision in every rounding") { arithmetic<double>(".f64"); }

TEST("flushing of subnormal numbers") {
  using T = float;
  // A result below the smallest normal number is flushed even if it rounds up to it: computing it 2^64 times larger
  // detects that.
  auto notTiny = [](T result, T larger) {
    bool isTiny = std::fabs(result) == std::numeric_limits<T>::min() && std::fabs(larger) < 0x1p-62f;
    return isTiny ? std::copysign(T{0}, result) : flush(result);
  };
  constexpr T kLarge = 0x1p64f;
  for (const Mode& mode : kModes) {
    std::string m = std::string(mode.name) + ".ftz.f32";
    int host = mode.host;
    checkInstruction<T, T, T>("add" + m + " %d, %a, %b;", [=](T a, T b) {
      return flush(rounded<T>(host, [](T x, T y) { return x + y; })(flush(a), flush(b)));
    });
    checkInstruction<T, T, T>("mul" + m + " %d, %a, %b;", [=](T a, T b) {
      auto f = rounded<T>(host, [](T x, T y) { return x * y; });
      return notTiny(f(flush(a), flush(b)), f(flush(a) * kLarge, flush(b)));
    });
    checkInstruction<T, T, T>("div" + m + " %d, %a, %b;", [=](T a, T b) {
      auto f = rounded<T>(host, [](T x, T y) { return x / y; });
      return notTiny(f(flush(a), flush(b)), f(flush(a) * kLarge, flush(b)));
    });
    checkInstruction<T, T, T, T>("fma" + m + " %d, %a, %b, %c;", [=](T a, T b, T c) {
      auto f = rounded<T>(host, [](T x, T y, T z) { return std::fma(x, y, z); });
      return notTiny(f(flush(a), flush(b), flush(c)), f(flush(a) * kLarge, flush(b), flush(c) * kLarge));
    });
    checkInstruction<T, T>("sqrt" + m + " %d, %a;",
                           [=](T a) { return flush(rounded<T>(host, [](T x) { return std::sqrt(x); })(flush(a))); });
  }
  checkInstruction<T, T>("abs.ftz.f32 %d, %a;", [](T a) { return std::fabs(flush(a)); });
  checkInstruction<T, T>("neg.ftz.f32 %d, %a;", [](T a) { return -flush(a); });
  checkInstruction<T, T, T>("min.ftz.f32 %d, %a, %b;", [](T a, T b) { return smaller(flush(a), flush(b)); });
}

TEST("results just below the smallest normal number are flushed, though they round to it") {
  using B = uint32_t;
  for (const char* mode : {".rn", ".rz", ".rm", ".rp"}) {
    checkInstructionWith<B, B, B>(std::string("mul") + mode + ".ftz.f32 %d, %a, %b;",
                                  {{0x3f7fffff, 0x00800000}, {0x00800000, 0xbf7fffff}},
                                  [](B got, B a, B b) { return got == ((a ^ b) & 0x80000000); });
    checkInstructionWith<B, B, B>(std::string("mul") + mode + ".ftz.f32 %d, %a, %b;",
                                  {{0x3f800000, 0x00800000}, {0x40000000, 0x00800000}},
                                  [](B got, B a, B) { return got == (a == 0x3f800000 ? 0x00800000 : 0x01000000); });
    checkInstructionWith<B, B, B>(std::string("div") + mode + ".ftz.f32 %d, %a, %b;", {{0x00800000, 0x3f800001}},
                                  [](B got, B, B) { return got == 0; });
    checkInstructionWith<B, B, B>(std::string("fma") + mode + ".ftz.f32 %d, %a, %b, 0f00000000;",
                                  {{0x3f7fffff, 0x00800000}}, [](B got, B, B) { return got == 0; });
  }
}

TEST("saturation") {
  using T = float;
  checkInstruction<T, T, T>("add.sat.f32 %d, %a, %b;", [](T a, T b) { return clamp01(a + b); });
  checkInstruction<T, T, T>("mul.ftz.sat.f32 %d, %a, %b;",
                            [](T a, T b) { return clamp01(flush(flush(a) * flush(b))); });
  checkInstruction<T, T, T, T>("fma.rn.sat.f32 %d, %a, %b, %c;",
                               [](T a, T b, T c) { return clamp01(std::fma(a, b, c)); });
  checkInstruction<T, T, T, T>("fma.rz.sat.f32 %d, %a, %b, %c;", [](T a, T b, T c) {
    return clamp01(rounded<T>(FE_TOWARDZERO, [](T x, T y, T z) { return std::fma(x, y, z); })(a, b, c));
  });
}

TEST("minimum and maximum, with NaN and zeros of both signs") {
  checkInstruction<float, float, float>("min.f32 %d, %a, %b;", smaller<float>);
  checkInstruction<float, float, float>("max.f32 %d, %a, %b;", larger<float>);
  checkInstruction<double, double, double>("min.f64 %d, %a, %b;", smaller<double>);
  checkInstruction<double, double, double>("max.f64 %d, %a, %b;", larger<double>);
  auto isAnyNan = [](float a, float b) { return a != a || b != b; };
  checkInstruction<float, float, float>("min.NaN.f32 %d, %a, %b;",
                                        [=](float a, float b) { return isAnyNan(a, b) ? NAN : smaller(a, b); });
  checkInstruction<float, float, float>("max.NaN.f32 %d, %a, %b;",
                                        [=](float a, float b) { return isAnyNan(a, b) ? NAN : larger(a, b); });
}

TEST("the NaN of a single-precision result is the device's") {
  checkInstructionWith<uint32_t, uint32_t, uint32_t>(
      "add.f32 %d, %a, %b;", {{0x7f800000, 0xff800000}, {0xffc00001, 0}, {0, 0x7f800123}},
      [](uint32_t got, uint32_t, uint32_t) { return got == 0x7fffffff; });
  for (const char* one : {"sqrt.rn.f32 %d, %a;", "abs.f32 %d, %a;", "neg.f32 %d, %a;"}) {
    checkInstructionWith<uint32_t, uint32_t>(one, {{0xffc00001}},
                                             [](uint32_t got, uint32_t) { return got == 0x7fffffff; });
  }
  checkInstructionWith<uint32_t, uint32_t>("cvt.f32.f32 %d, %a;", {{0x7f800001}},
                                           [](uint32_t got, uint32_t a) { return got == a; });
  checkInstructionWith<uint64_t, uint64_t>("abs.f64 %d, %a;", {{0xfff0123456789abc}},
                                           [](uint64_t got, uint64_t a) { return got == (a | uint64_t{1} << 51); });
}

TEST("approximations stay within the guide's bounds") {
  checkNear(
      "rcp.approx.f32 %d, %a;", [](double x) { return 1 / x; }, 1);
  checkNear(
      "sqrt.approx.f32 %d, %a;", [](double x) { return std::sqrt(x); }, 1);
  checkNear(
      "rsqrt.approx.f32 %d, %a;", [](double x) { return 1 / std::sqrt(x); }, 2);
  checkNear(
      "ex2.approx.f32 %d, %a;", [](double x) { return std::exp2(x); }, 2);
  checkNear(
      "lg2.approx.f32 %d, %a;", [](double x) { return std::log2(x); }, 2, 1e-7);
  checkNear(
      "tanh.approx.f32 %d, %a;", [](double x) { return std::tanh(x); }, 4);
  // Sine and cosine within half a turn; beyond it the device divides by turns in single precision.
  std::vector<Sources> angles;
  for (int i = -200; i <= 200; ++i) angles.push_back({toBits(static_cast<float>(i) / 64)});
  checkInstructionWith<float, float>("sin.approx.f32 %d, %a;", angles,
                                     Near{[](double x) { return std::sin(x); }, 0, 0x1p-20});
  checkInstructionWith<float, float>("cos.approx.f32 %d, %a;", angles,
                                     Near{[](double x) { return std::cos(x); }, 0, 0x1p-20});
  checkInstructionWith<uint32_t, uint32_t>("sin.approx.f32 %d, %a;", {{0x7f7fc99e}, {0xff7fc99e}, {0x00800000}},
                                           [](uint32_t got, uint32_t a) { return got == (a & 0x80000000); });
  using T = float;
  checkInstructionWith<T, T, T>("div.full.f32 %d, %a, %b;", combinations<T, T>(), [](T got, T a, T b) {
    return Near{[=](double) { return static_cast<double>(a) / static_cast<double>(b); }, 2, 0}(got, 0);
  });
  using D = double;
  checkInstructionWith<D, D>("rcp.approx.ftz.f64 %d, %a;", combinations<D>(), [](D got, D a) {
    uint64_t bits;
    std::memcpy(&bits, &got, sizeof(bits));
    if (a != a) return got != got;
    bool isCoarse = (bits & 0xffffffff) == 0;
    D want = std::fpclassify(a) == FP_SUBNORMAL ? std::copysign(INFINITY, a) : 1 / a;
    bool isClose = got == want || std::fabs(got - want) <= std::fabs(want) * 1e-5 || std::fabs(want) < 1e-300;
    return isCoarse && isClose;
  });
}

TEST("properties of numbers") {
  const std::pair<const char*, std::function<bool(double)>> kProperties[] = {
      {"finite", [](double x) { return std::isfinite(x); }},
      {"infinite", [](double x) { return std::isinf(x); }},
      {"number", [](double x) { return !std::isnan(x); }},
      {"notanumber", [](double x) { return std::isnan(x); }},
  };
  for (const auto& [property, holds] : kProperties) {
    auto test = holds;
    std::string tail = "; selp.b32 %d, 1, 0, %q; }";
    checkInstruction<uint32_t, float>("{ .reg .pred %q; testp." + std::string(property) + ".f32 %q, %a" + tail,
                                      [test](float a) { return test(static_cast<double>(a)); });
    checkInstruction<uint32_t, double>("{ .reg .pred %q; testp." + std::string(property) + ".f64 %q, %a" + tail,
                                       [test](double a) { return test(a); });
  }
  checkInstruction<uint32_t, float>("{ .reg .pred %q; testp.subnormal.f32 %q, %a; selp.b32 %d, 1, 0, %q; }",
                                    [](float a) { return std::fpclassify(a) == FP_SUBNORMAL; });
  checkInstruction<uint32_t, double>("{ .reg .pred %q; testp.normal.f64 %q, %a; selp.b32 %d, 1, 0, %q; }",
                                     [](double a) { return std::isnormal(a) || a == 0; });
}
