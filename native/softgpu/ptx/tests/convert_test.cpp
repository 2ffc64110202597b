// SPDX-License-Identifier: Apache-2.0
// Conversions between all types, comparisons, and half precision.
#include <cfenv>
#include <cmath>
#include <limits>
#include <random>

#include "softgpu/ptx/tests/instruction.h"

using namespace millpond::softgpu::ptx;
using namespace millpond::softgpu::ptx::testing;

namespace {

template <typename T>
std::string name() {
  std::string bits = std::to_string(sizeof(T) * 8);
  return (std::is_floating_point_v<T> ? ".f" : std::is_signed_v<T> ? ".s" : ".u") + bits;
}
template <typename D, typename S>
D clampTo(S v) {
  using Wide = __int128;
  Wide low = std::numeric_limits<D>::min();
  Wide high = std::numeric_limits<D>::max();
  Wide x = v;
  return static_cast<D>(x < low ? low : x > high ? high : x);
}

template <typename D, typename S>
void integers() {
  // Registers have at least 16 bits; wider ones are truncated before and extended after the conversion.
  using RegD = std::conditional_t<sizeof(D) == 1, std::conditional_t<std::is_signed_v<D>, int16_t, uint16_t>, D>;
  using RegS = std::conditional_t<sizeof(S) == 1, uint16_t, S>;
  checkInstruction<RegD, RegS>("cvt" + name<D>() + name<S>() + " %d, %a;",
                               [](RegS a) { return static_cast<RegD>(static_cast<D>(static_cast<S>(a))); });
  checkInstruction<RegD, RegS>("cvt.sat" + name<D>() + name<S>() + " %d, %a;",
                               [](RegS a) { return static_cast<RegD>(clampTo<D>(static_cast<S>(a))); });
}
template <typename D>
void integersTo() {
  integers<D, uint8_t>();
  integers<D, int8_t>();
  integers<D, uint16_t>();
  integers<D, int16_t>();
  integers<D, uint32_t>();
  integers<D, int32_t>();
  integers<D, uint64_t>();
  integers<D, int64_t>();
}

struct IntegerMode {
  const char* name;
  double (*apply)(double);
};
const IntegerMode kIntegerModes[] = {{".rni", [](double x) { return std::nearbyint(x); }},
                                     {".rzi", [](double x) { return std::trunc(x); }},
                                     {".rmi", [](double x) { return std::floor(x); }},
                                     {".rpi", [](double x) { return std::ceil(x); }}};

template <typename D, typename S>
void floatToInteger() {
  for (const IntegerMode& mode : kIntegerModes) {
    auto apply = mode.apply;
    checkInstruction<D, S>(std::string("cvt") + mode.name + name<D>() + name<S>() + " %d, %a;", [=](S a) {
      if (a != a) return sizeof(S) == 8 || sizeof(D) == 8 ? static_cast<D>(uint64_t{1} << (sizeof(D) * 8 - 1)) : D{0};
      long double x = apply(static_cast<double>(a));
      if (x >= static_cast<long double>(std::numeric_limits<D>::max())) return std::numeric_limits<D>::max();
      if (x <= static_cast<long double>(std::numeric_limits<D>::min())) return std::numeric_limits<D>::min();
      return static_cast<D>(x);
    });
  }
}
template <typename S>
void floatToIntegers() {
  floatToInteger<uint16_t, S>();
  floatToInteger<int16_t, S>();
  floatToInteger<uint32_t, S>();
  floatToInteger<int32_t, S>();
  floatToInteger<uint64_t, S>();
  floatToInteger<int64_t, S>();
}

struct Mode {
  const char* name;
  int host;
};
constexpr Mode kModes[] = {{".rn", FE_TONEAREST}, {".rz", FE_TOWARDZERO}, {".rm", FE_DOWNWARD}, {".rp", FE_UPWARD}};

/// The nearest D in the direction of the mode, found from the exact value without the host's conversion.
template <typename D>
D roundTo(long double exact, int mode) {
  D near = static_cast<D>(exact);  // at most one step away
  D down = static_cast<long double>(near) > exact ? std::nextafter(near, -std::numeric_limits<D>::infinity()) : near;
  D up = static_cast<long double>(near) < exact ? std::nextafter(near, std::numeric_limits<D>::infinity()) : near;
  if (mode == FE_DOWNWARD) return down;
  if (mode == FE_UPWARD) return up;
  if (mode == FE_TOWARDZERO) return exact < 0 ? up : down;
  return near;
}
template <typename D, typename S>
void toFloat() {
  for (const Mode& mode : kModes) {
    int host = mode.host;
    checkInstruction<D, S>(std::string("cvt") + mode.name + name<D>() + name<S>() + " %d, %a;",
                           [=](S a) { return roundTo<D>(static_cast<long double>(a), host); });
  }
}
template <typename D>
void integersToFloat() {
  toFloat<D, uint16_t>();
  toFloat<D, int16_t>();
  toFloat<D, uint32_t>();
  toFloat<D, int32_t>();
  toFloat<D, uint64_t>();
  toFloat<D, int64_t>();
}

// Half precision by search: all numbers of the format, in order.

struct Format {
  int exponentBits;
  int mantissaBits;
  double value(uint16_t bits) const {
    int exponent = bits >> mantissaBits & ((1 << exponentBits) - 1);
    int mantissa = bits & ((1 << mantissaBits) - 1);
    int bias = (1 << (exponentBits - 1)) - 1;
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponentBits) - 1) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissaBits);
    return sign * std::ldexp((1 << mantissaBits) + mantissa, exponent - bias - mantissaBits);
  }
  uint16_t infinity() const { return static_cast<uint16_t>(((1 << exponentBits) - 1) << mantissaBits); }
  /// Nearest, ties to even, by looking for the neighbours.
  uint16_t nearest(long double x, bool negativeZero = false) const {
    if (x != x) return 0x7fff;
    uint16_t sign = x < 0 || (x == 0 && negativeZero) ? 0x8000 : 0;
    long double magnitude = std::fabs(x);
    uint16_t low = 0;
    for (int bit = 14; bit >= 0; --bit) {
      uint16_t next = static_cast<uint16_t>(low | 1 << bit);
      if (next <= infinity() && static_cast<long double>(value(next)) <= magnitude) low = next;
    }
    if (low == infinity()) return sign | low;
    uint16_t high = static_cast<uint16_t>(low + 1);
    long double top =
        high == infinity() ? std::ldexp(2.0L, (1 << (exponentBits - 1)) - 1) : static_cast<long double>(value(high));
    long double below = magnitude - static_cast<long double>(value(low));
    long double above = top - magnitude;
    bool isUp = above < below || (above == below && (low & 1));
    return static_cast<uint16_t>(sign | (isUp ? high : low));
  }
};
constexpr Format kHalf{5, 10};
constexpr Format kBfloat{8, 7};

std::vector<uint16_t> interestingHalves(const Format& format) {
  uint16_t inf = format.infinity();
  std::vector<uint16_t> out{0,
                            0x8000,
                            1,
                            0x8001,
                            2,
                            inf,
                            static_cast<uint16_t>(inf | 0x8000),
                            static_cast<uint16_t>(inf - 1),
                            0x7fff,
                            static_cast<uint16_t>(1 << format.mantissaBits),
                            static_cast<uint16_t>((1 << format.mantissaBits) - 1)};
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) out.push_back(static_cast<uint16_t>(random()));
  uint16_t one = format.mantissaBits == 10 ? 0x3c00 : 0x3f80;
  for (int i = -3; i < 4; ++i) out.push_back(static_cast<uint16_t>(one + i));
  return out;
}
bool sameHalf(const Format& format, uint16_t got, uint16_t want) {
  return got == want || (std::isnan(format.value(got)) && std::isnan(format.value(want)));
}

void halves(const Format& format, const std::string& t) {
  std::vector<uint16_t> values = interestingHalves(format);
  std::vector<Sources> inputs;
  std::vector<Sources> pairs;
  std::mt19937 random(5);
  for (uint16_t a : values) {
    for (uint16_t b : values) inputs.push_back({a, b, values[random() % values.size()]});
  }
  for (size_t i = 0; i + 1 < inputs.size(); i += 2) {
    Sources& pair = pairs.emplace_back();
    for (size_t k = 0; k < 3; ++k) pair[k] = inputs[i + 1][k] << 16 | inputs[i][k];
  }
  auto check = [&](const std::string& op, const std::string& operands, auto f) {
    checkInstructionWith<uint16_t, uint16_t, uint16_t, uint16_t>(
        op + t + " %d" + operands, inputs,
        [=](uint16_t got, uint16_t a, uint16_t b, uint16_t c) { return sameHalf(format, got, f(a, b, c)); });
    checkInstructionWith<uint32_t, uint32_t, uint32_t, uint32_t>(
        op + t + "x2 %d" + operands, pairs, [=](uint32_t got, uint32_t a, uint32_t b, uint32_t c) {
          auto low = [](uint32_t v) { return static_cast<uint16_t>(v); };
          return sameHalf(format, low(got), f(low(a), low(b), low(c))) &&
                 sameHalf(format, low(got >> 16), f(low(a >> 16), low(b >> 16), low(c >> 16)));
        });
  };
  auto v = [format](uint16_t x) { return static_cast<long double>(format.value(x)); };
  auto isNegativeZero = [](long double x) { return x == 0 && std::signbit(x); };
  check("add", ", %a, %b;",
        [=](uint16_t a, uint16_t b, uint16_t) { return format.nearest(v(a) + v(b), isNegativeZero(v(a) + v(b))); });
  check("sub", ", %a, %b;",
        [=](uint16_t a, uint16_t b, uint16_t) { return format.nearest(v(a) - v(b), isNegativeZero(v(a) - v(b))); });
  check("mul", ", %a, %b;",
        [=](uint16_t a, uint16_t b, uint16_t) { return format.nearest(v(a) * v(b), std::signbit(v(a) * v(b))); });
  if (format.mantissaBits == 10) {
    // 64 bits of mantissa hold the exact sum, or one whose lost part cannot be a tie, in this format.
    check("fma.rn", ", %a, %b, %c;", [=](uint16_t a, uint16_t b, uint16_t c) {
      long double x = v(a) * v(b) + v(c);
      return format.nearest(x, std::signbit(x));
    });
  }
  check("neg", ", %a;", [=](uint16_t a, uint16_t, uint16_t) { return static_cast<uint16_t>(a ^ 0x8000); });
  check("abs", ", %a;", [=](uint16_t a, uint16_t, uint16_t) { return static_cast<uint16_t>(a & 0x7fff); });
  check("min", ", %a, %b;", [=](uint16_t a, uint16_t b, uint16_t) {
    if (v(a) != v(a)) return b;
    if (v(b) != v(b)) return a;
    return v(a) == v(b) ? static_cast<uint16_t>(a | b) : v(a) < v(b) ? a : b;
  });
}

template <typename T>
struct Comparison {
  const char* name;
  bool (*holds)(T, T);
};
template <typename T>
void comparisons(const std::string& t, std::initializer_list<Comparison<T>> all) {
  for (const Comparison<T>& one : all) {
    auto holds = one.holds;
    std::string op = std::string(".") + one.name;
    checkInstruction<uint32_t, T, T>("{ .reg .pred %q; setp" + op + t + " %q, %a, %b; selp.b32 %d, 1, 0, %q; }",
                                     [=](T a, T b) { return holds(a, b); });
    checkInstruction<uint32_t, T, T, uint32_t>(
        "{ .reg .pred %q, %s, %u; setp.ne.u32 %u, %c, 0; setp" + op + ".and" + t +
            " %q|%s, %a, %b, !%u; selp.b32 %d, 1, 0, %q; @%s add.u32 %d, %d, 2; }",
        [=](T a, T b, uint32_t c) { return (holds(a, b) && !c ? 1u : 0u) + (!holds(a, b) && !c ? 2u : 0u); });
    checkInstruction<uint32_t, T, T, uint32_t>(
        "{ .reg .pred %u; setp.ne.u32 %u, %c, 0; set" + op + ".xor.u32" + t + " %d, %a, %b, %u; }",
        [=](T a, T b, uint32_t c) { return holds(a, b) != (c != 0) ? UINT32_MAX : 0; });
  }
}
template <typename T>
void integerComparisons(const std::string& t) {
  comparisons<T>(t, {{"eq", [](T a, T b) { return a == b; }},
                     {"ne", [](T a, T b) { return a < b || a > b; }},
                     {"lt", [](T a, T b) { return a < b; }},
                     {"le", [](T a, T b) { return a <= b; }},
                     {"gt", [](T a, T b) { return a > b; }},
                     {"ge", [](T a, T b) { return a >= b; }}});
}
template <typename T>
void floatComparisons(const std::string& t) {
  integerComparisons<T>(t);
  comparisons<T>(t, {{"equ", [](T a, T b) { return !(a < b || a > b); }},
                     {"neu", [](T a, T b) { return !(a == b); }},
                     {"ltu", [](T a, T b) { return !(a >= b); }},
                     {"leu", [](T a, T b) { return !(a > b); }},
                     {"gtu", [](T a, T b) { return !(a <= b); }},
                     {"geu", [](T a, T b) { return !(a < b); }},
                     {"num", [](T a, T b) { return a == a && b == b; }},
                     {"nan", [](T a, T b) { return a != a || b != b; }}});
}

}  // namespace

TEST("integers to integers of every width") {
  integersTo<uint8_t>();
  integersTo<int8_t>();
  integersTo<uint16_t>();
  integersTo<int16_t>();
  integersTo<uint32_t>();
  integersTo<int32_t>();
  integersTo<uint64_t>();
  integersTo<int64_t>();
}

TEST("conversions in registers that are wider than the type") {
  using U = uint32_t;
  checkInstruction<U, U>("cvt.s8.s32 %d, %a;", [](U a) { return static_cast<U>(static_cast<int8_t>(a)); });
  checkInstruction<U, U>("cvt.u8.u32 %d, %a;", [](U a) { return static_cast<uint8_t>(a); });
  checkInstruction<U, U>("cvt.s32.s16 %d, %a;", [](U a) { return static_cast<U>(static_cast<int16_t>(a)); });
  checkInstruction<uint64_t, uint64_t>("cvt.s64.s8 %d, %a;",
                                       [](uint64_t a) { return static_cast<uint64_t>(static_cast<int8_t>(a)); });
  checkInstruction<U, uint64_t>("cvt.s16.s8 %d, %a;",
                                [](uint64_t a) { return static_cast<U>(static_cast<int8_t>(a)); });
}

TEST("floats to integers in every rounding, saturated, NaN") {
  floatToIntegers<float>();
  floatToIntegers<double>();
}

TEST("integers to floats in every rounding") {
  integersToFloat<float>();
  integersToFloat<double>();
}

TEST("floats to floats") {
  toFloat<float, double>();
  checkInstruction<double, float>("cvt.f64.f32 %d, %a;", [](float a) { return static_cast<double>(a); });
  for (const IntegerMode& mode : kIntegerModes) {
    auto apply = mode.apply;
    checkInstruction<float, float>(std::string("cvt") + mode.name + ".f32.f32 %d, %a;",
                                   [=](float a) { return static_cast<float>(apply(static_cast<double>(a))); });
    checkInstruction<double, double>(std::string("cvt") + mode.name + ".f64.f64 %d, %a;",
                                     [=](double a) { return apply(a); });
  }
  checkInstruction<float, float>("cvt.sat.f32.f32 %d, %a;", [](float a) { return a > 0 ? std::min(a, 1.0f) : 0.0f; });
  checkInstruction<float, float>("cvt.ftz.f32.f32 %d, %a;", [](float a) {
    return std::fpclassify(a) == FP_SUBNORMAL ? std::copysign(0.0f, a) : a;
  });
}

TEST("floats to tf32: ten bits of mantissa in a register of 32") {
  const auto nearest = [](float a, bool tiesToEven) {
    if (a != a) return uint32_t{0x7fffffff};
    // The two neighbours with ten bits, as numbers: what is beyond the largest one counts as the next power of two.
    const auto bits = static_cast<uint32_t>(toBits(a));
    const uint32_t low = bits & ~0x1fffu;
    if (low == bits) return bits;
    const double at = std::abs(static_cast<double>(a));
    const double below = std::abs(static_cast<double>(fromBits<float>(low)));
    const uint32_t high = low + 0x2000;
    const bool isLast = (high & 0x7f800000) == 0x7f800000;
    const double above = isLast ? 0x1p128 : std::abs(static_cast<double>(fromBits<float>(high)));
    if (at - below != above - at) return at - below < above - at ? low : high;
    return tiesToEven && (low & 0x2000) == 0 ? low : high;
  };
  checkInstruction<uint32_t, float>("cvt.rna.tf32.f32 %d, %a;", [=](float a) { return nearest(a, false); });
  checkInstruction<uint32_t, float>("cvt.rn.tf32.f32 %d, %a;", [=](float a) { return nearest(a, true); });
  checkInstruction<uint32_t, float>("cvt.rz.tf32.f32 %d, %a;", [](float a) {
    return a != a ? uint32_t{0x7fffffff} : static_cast<uint32_t>(toBits(a)) & ~0x1fffu;
  });
  checkInstruction<uint32_t, float>("cvt.rn.relu.tf32.f32 %d, %a;", [=](float a) {
    return std::signbit(a) && a == a ? uint32_t{0} : nearest(a, true);
  });
}

TEST("half precision: conversions") {
  for (bool isHalf : {true, false}) {
    Format format = isHalf ? kHalf : kBfloat;
    std::string t = isHalf ? ".f16" : ".bf16";
    std::vector<Sources> all;
    for (uint32_t i = 0; i < 65536; i += 7) all.push_back({i});
    checkInstructionWith<float, uint16_t>("cvt.f32" + t + " %d, %a;", all, [=](float got, uint16_t a) {
      return sameBits(valueType<float>(), toBits(got), toBits(static_cast<float>(format.value(a))));
    });
    checkInstructionWith<uint16_t, float>(
        "cvt.rn" + t + ".f32 %d, %a;", combinations<float>(), [=](uint16_t got, float a) {
          return sameHalf(format, got, format.nearest(static_cast<long double>(a), std::signbit(a)));
        });
    checkInstructionWith<uint32_t, float, float>(
        "cvt.rn" + t + "x2.f32 %d, %a, %b;", combinations<float, float>(), [=](uint32_t got, float a, float b) {
          return sameHalf(format, static_cast<uint16_t>(got >> 16),
                          format.nearest(static_cast<long double>(a), std::signbit(a))) &&
                 sameHalf(format, static_cast<uint16_t>(got),
                          format.nearest(static_cast<long double>(b), std::signbit(b)));
        });
  }
  checkInstructionWith<uint16_t, int32_t>("cvt.rn.f16.s32 %d, %a;", combinations<int32_t>(),
                                          [](uint16_t got, int32_t a) { return got == kHalf.nearest(a); });
  checkInstructionWith<int32_t, uint16_t>(
      "cvt.rzi.s32.f16 %d, %a;", {{0x3e00}, {0xc200}, {0x7bff}, {0x7e00}, {0x7c00}, {0xfc00}},
      [](int32_t got, uint16_t a) {
        double x = kHalf.value(a);
        if (x != x) return got == 0;
        return got == (std::isinf(x) ? (x > 0 ? INT32_MAX : INT32_MIN) : static_cast<int32_t>(x));
      });
}

TEST("half precision: arithmetic alone and in pairs") {
  halves(kHalf, ".f16");
  halves(kBfloat, ".bf16");
}

TEST("comparisons of every type, combined and negated") {
  integerComparisons<uint16_t>(".u16");
  integerComparisons<int16_t>(".s16");
  integerComparisons<uint32_t>(".u32");
  integerComparisons<int32_t>(".s32");
  integerComparisons<uint64_t>(".u64");
  integerComparisons<int64_t>(".s64");
  floatComparisons<float>(".f32");
  floatComparisons<double>(".f64");
  using U = uint32_t;
  comparisons<U>(".u32", {{"lo", [](U a, U b) { return a < b; }},
                          {"ls", [](U a, U b) { return a <= b; }},
                          {"hi", [](U a, U b) { return a > b; }},
                          {"hs", [](U a, U b) { return a >= b; }}});
  checkInstruction<U, float, float>(
      "{ .reg .pred %q; setp.lt.ftz.f32 %q, %a, %b; selp.b32 %d, 1, 0, %q; }", [](float a, float b) {
        auto flush = [](float x) { return std::fpclassify(x) == FP_SUBNORMAL ? 0.0f : x; };
        return flush(a) < flush(b);
      });
}

TEST("selection by sign") {
  checkInstruction<uint32_t, uint32_t, uint32_t, int32_t>(
      "slct.b32.s32 %d, %a, %b, %c;", [](uint32_t a, uint32_t b, int32_t c) { return c >= 0 ? a : b; });
  checkInstruction<double, double, double, float>("slct.f64.f32 %d, %a, %b, %c;",
                                                  [](double a, double b, float c) { return c >= 0 ? a : b; });
}

TEST("set with results of every kind") {
  checkInstruction<float, int32_t, int32_t>("set.lt.f32.s32 %d, %a, %b;",
                                            [](int32_t a, int32_t b) { return a < b ? 1.0f : 0.0f; });
  checkInstructionWith<uint32_t, uint32_t, uint32_t>(
      "set.gt.f16x2.f16x2 %d, %a, %b;", {{0x3c004000, 0x40003c00}, {0x7e003c00, 0x00000000}, {0x3c003c00, 0x3c003c00}},
      [](uint32_t got, uint32_t a, uint32_t b) {
        auto half = [](uint32_t x, int shift) { return kHalf.value(static_cast<uint16_t>(x >> shift)); };
        uint32_t low = half(a, 0) > half(b, 0) ? 0x3c00 : 0;
        uint32_t high = half(a, 16) > half(b, 16) ? 0x3c00 : 0;
        return got == (high << 16 | low);
      });
}

TEST("packing and unpacking") {
  checkInstruction<uint64_t, uint32_t, uint32_t>("mov.b64 %d, {%a, %b};",
                                                 [](uint32_t a, uint32_t b) { return uint64_t{b} << 32 | a; });
  checkInstruction<uint32_t, uint64_t>("mov.b64 {_, %d}, %a;", [](uint64_t a) { return a >> 32; });
  checkInstruction<uint32_t, uint16_t, uint16_t>("mov.b32 %d, {%a, %b};",
                                                 [](uint16_t a, uint16_t b) { return uint32_t{b} << 16 | a; });
  checkInstruction<uint16_t, uint64_t>("{ .reg .b16 %x, %y, %z; mov.b64 {%x, %y, %d, %z}, %a; }",
                                       [](uint64_t a) { return a >> 32; });
}
