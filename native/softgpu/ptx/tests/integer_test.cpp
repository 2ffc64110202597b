// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic and bit operations of all widths against the CPU.
#include <bit>

#include "softgpu/ptx/tests/instruction.h"

using namespace millpond::softgpu::ptx;
using namespace millpond::softgpu::ptx::testing;

namespace {

template <typename T>
std::string typeName() {
  return std::string(std::is_signed_v<T> ? ".s" : ".u") + std::to_string(sizeof(T) * 8);
}
template <typename T>
using Unsigned = std::make_unsigned_t<T>;
template <typename T>
using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
template <typename T>
T cut(Wide<T> value) {
  return static_cast<T>(static_cast<Unsigned<T>>(value));
}

template <typename T>
void arithmetic() {
  std::string t = typeName<T>();
  checkInstruction<T, T, T>("add" + t + " %d, %a, %b;", [](T a, T b) { return cut<T>(Wide<T>{a} + b); });
  checkInstruction<T, T, T>("sub" + t + " %d, %a, %b;", [](T a, T b) { return cut<T>(Wide<T>{a} - b); });
  checkInstruction<T, T, T>("mul.lo" + t + " %d, %a, %b;", [](T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(uint64_t(a) * uint64_t(b)));
  });
  checkInstruction<T, T, T>("mul.hi" + t + " %d, %a, %b;",
                            [](T a, T b) { return cut<T>((Wide<T>{a} * b) >> (sizeof(T) * 8)); });
  checkInstruction<T, T, T, T>("mad.lo" + t + " %d, %a, %b, %c;", [](T a, T b, T c) {
    return static_cast<T>(static_cast<Unsigned<T>>(uint64_t(a) * uint64_t(b) + uint64_t(c)));
  });
  checkInstruction<T, T, T, T>("mad.hi" + t + " %d, %a, %b, %c;",
                               [](T a, T b, T c) { return cut<T>(((Wide<T>{a} * b) >> (sizeof(T) * 8)) + c); });
  checkInstruction<T, T, T>("min" + t + " %d, %a, %b;", [](T a, T b) { return std::min(a, b); });
  checkInstruction<T, T, T>("max" + t + " %d, %a, %b;", [](T a, T b) { return std::max(a, b); });
  checkInstruction<T, T, T, T>("sad" + t + " %d, %a, %b, %c;", [](T a, T b, T c) {
    return cut<T>(Wide<T>{c} + (a < b ? Wide<T>{b} - a : Wide<T>{a} - b));
  });
  // PTX does not define division by zero and the one quotient that does not fit; the engine returns a device's values.
  checkInstruction<T, T, T>("div" + t + " %d, %a, %b;",
                            [](T a, T b) { return b == 0 ? static_cast<T>(-1) : cut<T>(Wide<T>{a} / b); });
  checkInstruction<T, T, T>("rem" + t + " %d, %a, %b;",
                            [](T a, T b) { return b == 0 ? static_cast<T>(-1) : cut<T>(Wide<T>{a} % b); });
  if constexpr (std::is_signed_v<T>) {
    checkInstruction<T, T>("abs" + t + " %d, %a;", [](T a) { return cut<T>(a < 0 ? -Wide<T>{a} : Wide<T>{a}); });
    checkInstruction<T, T>("neg" + t + " %d, %a;", [](T a) { return cut<T>(-Wide<T>{a}); });
  }
}

template <typename T, typename D>
void wide() {
  std::string t = typeName<T>();
  checkInstruction<D, T, T>("mul.wide" + t + " %d, %a, %b;", [](T a, T b) { return cut<D>(Wide<D>{a} * b); });
  checkInstruction<D, T, T, D>("mad.wide" + t + " %d, %a, %b, %c;",
                               [](T a, T b, D c) { return cut<D>(Wide<D>{a} * b + c); });
}

int32_t saturate(int64_t v) { return static_cast<int32_t>(std::clamp<int64_t>(v, INT32_MIN, INT32_MAX)); }
int64_t low24(int32_t v) { return static_cast<int32_t>(static_cast<uint32_t>(v) << 8) >> 8; }

template <typename T>
void logic() {
  std::string b = ".b" + std::to_string(sizeof(T) * 8);
  checkInstruction<T, T, T>("and" + b + " %d, %a, %b;", [](T x, T y) { return static_cast<T>(x & y); });
  checkInstruction<T, T, T>("or" + b + " %d, %a, %b;", [](T x, T y) { return static_cast<T>(x | y); });
  checkInstruction<T, T, T>("xor" + b + " %d, %a, %b;", [](T x, T y) { return static_cast<T>(x ^ y); });
  checkInstruction<T, T>("not" + b + " %d, %a;", [](T x) { return static_cast<T>(~x); });
  checkInstruction<T, T>("cnot" + b + " %d, %a;", [](T x) { return static_cast<T>(x == 0); });
  checkInstruction<T, T>("mov" + b + " %d, %a;", [](T x) { return x; });
  checkInstruction<T, T, uint32_t>("shl" + b + " %d, %a, %b;", [](T x, uint32_t n) {
    return n >= sizeof(T) * 8 ? T{0} : static_cast<T>(uint64_t{x} << n);
  });
  checkInstruction<T, T, uint32_t>("shr" + b + " %d, %a, %b;",
                                   [](T x, uint32_t n) { return n >= sizeof(T) * 8 ? T{0} : static_cast<T>(x >> n); });
  using S = std::make_signed_t<T>;
  checkInstruction<S, S, uint32_t>("shr" + typeName<S>() + " %d, %a, %b;", [](S x, uint32_t n) {
    return static_cast<S>(x >> std::min<uint32_t>(n, sizeof(T) * 8 - 1));
  });
  checkInstruction<T, T, T, uint32_t>("{ .reg .pred %q; setp.gt.s32 %q, %c, 5; selp" + b + " %d, %a, %b, %q; }",
                                      [](T x, T y, uint32_t c) { return static_cast<int32_t>(c) > 5 ? x : y; });
}

template <typename T>
int fieldOperand(uint32_t v) {
  return static_cast<int>(sizeof(T) == 4 ? v & 0xff : std::min(v, 1000u));
}
template <typename T>
T extract(T a, uint32_t b, uint32_t c) {
  using U = Unsigned<T>;
  int msb = sizeof(T) * 8 - 1;
  int pos = fieldOperand<T>(b);
  int len = fieldOperand<T>(c);
  U value = static_cast<U>(a);
  bool sign = std::is_signed_v<T> && len != 0 && (value >> std::min(pos + len - 1, msb) & 1);
  U out = 0;
  for (int i = 0; i <= msb; ++i) {
    bool bit = i < len && pos + i <= msb ? (value >> (pos + i) & 1) != 0 : sign;
    if (bit) out |= U{1} << i;
  }
  return static_cast<T>(out);
}
template <typename T>
T insert(T a, T b, uint32_t c, uint32_t d) {
  int msb = sizeof(T) * 8 - 1;
  int pos = fieldOperand<T>(c);
  int len = fieldOperand<T>(d);
  T out = b;
  for (int i = 0; i < len && pos + i <= msb; ++i) {
    T bit = T{1} << (pos + i);
    out = a >> i & 1 ? out | bit : out & ~bit;
  }
  return out;
}
template <typename T>
uint32_t highest(T a) {
  using U = Unsigned<T>;
  U v = static_cast<U>(std::is_signed_v<T> && a < 0 ? ~a : a);
  for (int i = sizeof(T) * 8 - 1; i >= 0; --i) {
    if (v >> i & 1) return static_cast<uint32_t>(i);
  }
  return UINT32_MAX;
}

template <typename T>
void fields() {
  using U = Unsigned<T>;
  std::string t = typeName<T>();
  std::string b = ".b" + std::to_string(sizeof(T) * 8);
  checkInstruction<uint32_t, U>("popc" + b + " %d, %a;", [](U a) { return std::popcount(a); });
  checkInstruction<uint32_t, U>("clz" + b + " %d, %a;", [](U a) { return std::countl_zero(a); });
  checkInstruction<U, U>("brev" + b + " %d, %a;", [](U a) {
    U out = 0;
    for (size_t i = 0; i < sizeof(U) * 8; ++i) out |= (a >> i & 1) << (sizeof(U) * 8 - 1 - i);
    return out;
  });
  checkInstruction<uint32_t, T>("bfind" + t + " %d, %a;", [](T a) { return highest<T>(a); });
  checkInstruction<uint32_t, T>("bfind.shiftamt" + t + " %d, %a;", [](T a) {
    uint32_t bit = highest<T>(a);
    return bit == UINT32_MAX ? bit : sizeof(T) * 8 - 1 - bit;
  });
  checkInstruction<T, T, uint32_t, uint32_t>("bfe" + t + " %d, %a, %b, %c;",
                                             [](T a, uint32_t p, uint32_t n) { return extract<T>(a, p, n); });
  checkInstruction<U, U, U, uint32_t, uint32_t>("bfi" + b + " %d, %a, %b, %c, %e;",
                                                [](U a, U f, uint32_t p, uint32_t n) { return insert<U>(a, f, p, n); });
}

uint32_t permuted(uint32_t a, uint32_t b, uint32_t c) {
  uint64_t both = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (int k = 0; k < 4; ++k) {
    uint32_t selector = c >> (4 * k) & 0xf;
    uint32_t byte = both >> (8 * (selector & 7)) & 0xff;
    if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
    out |= byte << (8 * k);
  }
  return out;
}

}  // namespace

TEST("arithmetic of every width") {
  arithmetic<uint16_t>();
  arithmetic<int16_t>();
  arithmetic<uint32_t>();
  arithmetic<int32_t>();
  arithmetic<uint64_t>();
  arithmetic<int64_t>();
}

TEST("wide products") {
  wide<uint16_t, uint32_t>();
  wide<int16_t, int32_t>();
  wide<uint32_t, uint64_t>();
  wide<int32_t, int64_t>();
}

TEST("saturating and 24-bit arithmetic") {
  using T = int32_t;
  using U = uint32_t;
  checkInstruction<T, T, T>("add.sat.s32 %d, %a, %b;", [](T a, T b) { return saturate(int64_t{a} + b); });
  checkInstruction<T, T, T>("sub.sat.s32 %d, %a, %b;", [](T a, T b) { return saturate(int64_t{a} - b); });
  checkInstruction<T, T, T, T>("mad.hi.sat.s32 %d, %a, %b, %c;",
                               [](T a, T b, T c) { return saturate((int64_t{a} * b >> 32) + c); });
  checkInstruction<T, T, T>("mul24.lo.s32 %d, %a, %b;", [](T a, T b) { return static_cast<T>(low24(a) * low24(b)); });
  checkInstruction<T, T, T>("mul24.hi.s32 %d, %a, %b;",
                            [](T a, T b) { return static_cast<T>(low24(a) * low24(b) >> 16); });
  checkInstruction<U, U, U>("mul24.lo.u32 %d, %a, %b;",
                            [](U a, U b) { return static_cast<U>(uint64_t{a & 0xffffff} * (b & 0xffffff)); });
  checkInstruction<U, U, U>("mul24.hi.u32 %d, %a, %b;",
                            [](U a, U b) { return static_cast<U>(uint64_t{a & 0xffffff} * (b & 0xffffff) >> 16); });
  checkInstruction<T, T, T, T>("mad24.lo.s32 %d, %a, %b, %c;", [](T a, T b, T c) {
    return static_cast<T>(static_cast<U>(low24(a) * low24(b)) + static_cast<U>(c));
  });
  checkInstruction<T, T, T, T>("mad24.hi.sat.s32 %d, %a, %b, %c;",
                               [](T a, T b, T c) { return saturate((low24(a) * low24(b) >> 16) + c); });
}

TEST("logic, shifts, moves and selections") {
  logic<uint16_t>();
  logic<uint32_t>();
  logic<uint64_t>();
}

TEST("bit counts and bit fields") {
  fields<uint32_t>();
  fields<int32_t>();
  fields<uint64_t>();
  fields<int64_t>();
}

TEST("lop3 for several truth tables") {
  using U = uint32_t;
  for (uint32_t table : {0x00u, 0x01u, 0x80u, 0x96u, 0xe8u, 0x1bu, 0xcau, 0xffu, 0x3cu}) {
    checkInstruction<U, U, U, U>("lop3.b32 %d, %a, %b, %c, " + std::to_string(table) + ";", [table](U a, U b, U c) {
      U out = 0;
      for (int i = 0; i < 32; ++i) out |= (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
      return out;
    });
  }
}

TEST("lop3 with a predicate of whether any bit is set") {
  using U = uint32_t;
  checkInstruction<U, U, U, U>(
      "{ .reg .pred %p, %q; setp.ne.b32 %q, %c, 0; lop3.and.b32 _|%p, %a, %b, 0, 0xc0, %q; selp.b32 %d, 1, 0, %p; }",
      [](U a, U b, U c) { return static_cast<U>((a & b) != 0 && c != 0); });
  checkInstruction<U, U, U>(
      "{ .reg .pred %p; .reg .b32 %t; setp.eq.b32 %p, %a, 7; lop3.xor.b32 %t|%p, %a, %b, 0, 0x3c, %p;\n"
      "@%p add.u32 %t, %t, 1; mov.b32 %d, %t; }",
      [](U a, U b) { return (a ^ b) + (((a ^ b) != 0) != (a == 7)); });
}

TEST("numbers saturated into the halves or bytes of a word") {
  using U = uint32_t;
  using S = int32_t;
  checkInstruction<U, S, S, U>("cvt.pack.sat.s8.s32.b32 %d, %a, %b, %c;", [](S a, S b, U c) {
    return c << 16 | (static_cast<U>(std::clamp(a, -128, 127)) & 255) << 8 |
           (static_cast<U>(std::clamp(b, -128, 127)) & 255);
  });
  checkInstruction<U, S, S>("cvt.pack.sat.u16.s32 %d, %a, %b;", [](S a, S b) {
    return static_cast<U>(std::clamp(a, 0, 65535)) << 16 | static_cast<U>(std::clamp(b, 0, 65535));
  });
}

TEST("funnel shifts and byte permutation") {
  using U = uint32_t;
  auto both = [](U a, U b) { return uint64_t{b} << 32 | a; };
  checkInstruction<U, U, U, U>("shf.l.wrap.b32 %d, %a, %b, %c;",
                               [=](U a, U b, U c) { return static_cast<U>(both(a, b) << (c & 31) >> 32); });
  checkInstruction<U, U, U, U>("shf.r.wrap.b32 %d, %a, %b, %c;",
                               [=](U a, U b, U c) { return static_cast<U>(both(a, b) >> (c & 31)); });
  checkInstruction<U, U, U, U>("shf.l.clamp.b32 %d, %a, %b, %c;",
                               [=](U a, U b, U c) { return static_cast<U>(both(a, b) << std::min(c, 32u) >> 32); });
  checkInstruction<U, U, U, U>("shf.r.clamp.b32 %d, %a, %b, %c;",
                               [=](U a, U b, U c) { return static_cast<U>(both(a, b) >> std::min(c, 32u)); });
  checkInstruction<U, U, U, U>("prmt.b32 %d, %a, %b, %c;", permuted);
  const std::pair<const char*, std::array<U, 4>> kModes[] = {
      {"f4e", {0x3210, 0x4321, 0x5432, 0x6543}}, {"b4e", {0x5670, 0x6701, 0x7012, 0x0123}},
      {"rc8", {0, 0x1111, 0x2222, 0x3333}},      {"ecl", {0x3210, 0x3211, 0x3222, 0x3333}},
      {"ecr", {0x0000, 0x1110, 0x2210, 0x3210}}, {"rc16", {0x1010, 0x3232, 0x1010, 0x3232}}};
  for (const auto& [mode, selectors] : kModes) {
    std::array<U, 4> chosen = selectors;
    checkInstruction<U, U, U, U>(std::string("prmt.b32.") + mode + " %d, %a, %b, %c;",
                                 [chosen](U a, U b, U c) { return permuted(a, b, chosen[c & 3]); });
  }
}

TEST("dot products") {
  using U = uint32_t;
  auto byte = [](U v, int i, bool isSigned) -> int64_t {
    U b = v >> (8 * i) & 0xff;
    return isSigned ? static_cast<int8_t>(b) : static_cast<int64_t>(b);
  };
  for (bool signedA : {false, true}) {
    for (bool signedB : {false, true}) {
      std::string types = std::string(signedA ? ".s32" : ".u32") + (signedB ? ".s32" : ".u32");
      checkInstruction<U, U, U, U>("dp4a" + types + " %d, %a, %b, %c;", [=](U a, U b, U c) {
        int64_t sum = c;
        for (int i = 0; i < 4; ++i) sum += byte(a, i, signedA) * byte(b, i, signedB);
        return static_cast<U>(sum);
      });
      for (bool isHigh : {false, true}) {
        checkInstruction<U, U, U, U>(std::string("dp2a") + (isHigh ? ".hi" : ".lo") + types + " %d, %a, %b, %c;",
                                     [=](U a, U b, U c) {
                                       int64_t sum = c;
                                       for (int i = 0; i < 2; ++i) {
                                         U half = a >> (16 * i) & 0xffff;
                                         int64_t x = signedA ? static_cast<int16_t>(half) : static_cast<int64_t>(half);
                                         sum += x * byte(b, i + (isHigh ? 2 : 0), signedB);
                                       }
                                       return static_cast<U>(sum);
                                     });
      }
    }
  }
}

TEST("arithmetic on the parts of words") {
  using U = uint32_t;
  auto parts = [](U a, U b, int bits, bool isSigned, auto f) {
    U out = 0;
    for (int k = 0; k < 32; k += bits) {
      auto part = [&](U word) -> int {
        U low = word >> k & ((1u << bits) - 1);
        return isSigned ? static_cast<int>(low << (32 - bits)) >> (32 - bits) : static_cast<int>(low);
      };
      out |= (static_cast<U>(f(part(a), part(b))) & ((1u << bits) - 1)) << k;
    }
    return out;
  };
  auto difference = [](int a, int b) { return std::abs(a - b); };
  checkInstruction<U, U, U>("vabsdiff4.u32.u32.u32 %d, %a, %b, 0;",
                            [=](U a, U b) { return parts(a, b, 8, false, difference); });
  checkInstruction<U, U, U>("vabsdiff2.u32.s32.s32 %d, %a, %b, 0;",
                            [=](U a, U b) { return parts(a, b, 16, true, difference); });
  checkInstruction<U, U, U>("vadd4.u32.u32.u32.sat %d, %a, %b, 0;", [=](U a, U b) {
    return parts(a, b, 8, false, [](int x, int y) { return std::min(x + y, 255); });
  });
  checkInstruction<U, U, U>("vmin2.s32.s32.s32 %d, %a, %b, 0;", [=](U a, U b) {
    return parts(a, b, 16, true, [](int x, int y) { return std::min(x, y); });
  });
  checkInstruction<U, U, U>("vadd.s32.u32.s32 %d, %a, %b;", [](U a, U b) { return a + b; });
  checkInstruction<U, U, U>("vsub.u32.s32.u32 %d, %a, %b;", [](U a, U b) { return a - b; });
  checkInstruction<U, U, U>("vmin.s32.s32.s32 %d, %a, %b;", [](U a, U b) {
    return static_cast<U>(std::min(static_cast<int32_t>(a), static_cast<int32_t>(b)));
  });
  checkInstruction<U, U, U>("vmax.u32.u32.u32 %d, %a, %b;", [](U a, U b) { return std::max(a, b); });
  checkInstruction<U, U, U, U>("vabsdiff4.u32.u32.u32.add %d, %a, %b, %c;", [=](U a, U b, U c) {
    for (int k = 0; k < 32; k += 8)
      c += static_cast<U>(std::abs(static_cast<int>(a >> k & 255) - static_cast<int>(b >> k & 255)));
    return c;
  });
}

TEST("arithmetic on one part of each word") {
  using U = uint32_t;
  using S = int32_t;
  checkInstruction<U, U, U>("vadd.s32.u32.s32.sat %d, %a.b0, %b.h1;", [](U a, U b) {
    return static_cast<U>(static_cast<S>(a & 255) + (static_cast<S>(b) >> 16));
  });
  checkInstruction<U, U, U, U>("vadd.u32.u32.u32.add %d, %a.b3, %b.b2, %c;",
                               [](U a, U b, U c) { return (a >> 24) + (b >> 16 & 255) + c; });
  checkInstruction<U, U, U, U>("vsub.s32.s32.s32.sat %d.b1, %a.h0, %b, %c;", [](U a, U b, U c) {
    const int64_t difference = int64_t{static_cast<int16_t>(a)} - static_cast<S>(b);
    const auto part = static_cast<U>(std::clamp<int64_t>(difference, -128, 127));
    return (c & 0xffff00ffu) | (part & 255) << 8;
  });
  checkInstruction<U, U, U, U>("vabsdiff.u32.s32.s32.max %d, %a, %b, %c;", [](U a, U b, U c) {
    const int64_t difference = int64_t{static_cast<S>(a)} - static_cast<S>(b);
    return std::max(static_cast<U>(std::abs(difference)), c);
  });
  checkInstruction<U, U, U, S>("vmin.u32.u32.s32.min %d, %a, %b, %c;", [](U a, U b, S c) {
    const auto least = static_cast<U>(std::min<int64_t>(a, static_cast<S>(b)));
    return std::min(least, static_cast<U>(c));
  });
  checkInstruction<U, U, U>("vshl.u32.u32.u32.sat.clamp %d, %a, %b;", [](U a, U b) {
    return static_cast<U>(
        std::min<unsigned __int128>(static_cast<unsigned __int128>(a) << std::min(b, 32u), UINT32_MAX));
  });
  checkInstruction<U, U, U, U>("vshr.u32.s32.u32.wrap.add %d, %a.b1, %b, %c;", [](U a, U b, U c) {
    return static_cast<U>(static_cast<int8_t>(a >> 8) >> (b & 31)) + c;
  });
  checkInstruction<U, U, U, U>("vmad.s32.s32.u32.sat.shr7 %d, %a.h1, %b.h0, %c;", [](U a, U b, U c) {
    const int64_t sum = int64_t{static_cast<int16_t>(a >> 16)} * static_cast<int64_t>(b & 0xffff) + static_cast<S>(c);
    return static_cast<U>(std::clamp<int64_t>(sum >> 7, INT32_MIN, INT32_MAX));
  });
  checkInstruction<U, U, U, U>("vmad.u32.u32.u32.po %d, %a.b2, %b.b3, %c;",
                               [](U a, U b, U c) { return (a >> 16 & 255) * (b >> 24) + c + 1; });
  checkInstruction<U, U, U, U>("vmad.s32.s32.s32.sat.shr7 %d, -%a, %b.h0, %c;", [](U a, U b, U c) {
    const int64_t product = int64_t{static_cast<S>(a)} * static_cast<int16_t>(b);
    return static_cast<U>(std::clamp<int64_t>((static_cast<S>(c) - product) >> 7, INT32_MIN, INT32_MAX));
  });
  checkInstruction<U, U, U, U>("vmad.s32.u32.u32 %d, %a, -%b, %c;", [](U a, U b, U c) { return c - a * b; });
  checkInstruction<U, U, U, U>("vmad.s32.s32.s32 %d, %a, %b, -%c;", [](U a, U b, U c) { return a * b - c; });
  checkInstruction<U, U, U, U>("vset.s32.u32.ge.add %d, %a, %b.h0, %c;",
                               [](U a, U b, U c) { return (static_cast<S>(a) >= static_cast<S>(b & 0xffff)) + c; });
  checkInstruction<U, U, U>("vset4.u32.s32.lt %d, %a, %b, 0;", [](U a, U b) {
    U out = 0;
    for (int k = 0; k < 32; k += 8)
      out |= static_cast<U>(static_cast<int>(a >> k & 255) < static_cast<int8_t>(b >> k)) << k;
    return out;
  });
}

TEST("carries: 128-bit sums, differences and products from 32-bit and 64-bit pieces") {
  using U = uint64_t;
  checkInstruction<U, U, U>(
      "{ .reg .b32 %x0, %x1, %y0, %y1, %z0, %z1; mov.b64 {%x0, %x1}, %a; mov.b64 {%y0, %y1}, %b;\n"
      "add.cc.u32 %z0, %x0, %y0; addc.u32 %z1, %x1, %y1; mov.b64 %d, {%z0, %z1}; }",
      [](U a, U b) { return a + b; });
  checkInstruction<U, U, U>(
      "{ .reg .b32 %x0, %x1, %y0, %y1, %z0, %z1; mov.b64 {%x0, %x1}, %a; mov.b64 {%y0, %y1}, %b;\n"
      "sub.cc.u32 %z0, %x0, %y0; subc.u32 %z1, %x1, %y1; mov.b64 %d, {%z0, %z1}; }",
      [](U a, U b) { return a - b; });
  checkInstruction<U, U, U, U>(
      "{ .reg .b64 %lo, %hi; add.cc.u64 %lo, %a, %b; addc.cc.u64 %hi, %c, -1; addc.u64 %d, 5, 0; }", [](U a, U b, U c) {
        U carry = static_cast<U>((static_cast<unsigned __int128>(a) + b) >> 64);
        return static_cast<U>((static_cast<unsigned __int128>(c) + UINT64_MAX + carry) >> 64) + 5;
      });
  checkInstruction<U, U, U, U>(
      "{ .reg .b64 %lo, %hi; sub.cc.u64 %lo, %a, %b; subc.cc.u64 %hi, %c, 1; subc.u64 %d, 9, 0; }", [](U a, U b, U c) {
        U borrow = a < b;
        return U{9} - (c < U{1} + borrow);
      });
  // An addition after a subtraction reads its borrow as an inverted carry; and the other way round.
  checkInstruction<U, U, U>("{ .reg .b64 %t; sub.cc.u64 %t, %a, %b; addc.u64 %d, 5, 0; }",
                            [](U a, U b) { return U{5} + (a >= b); });
  checkInstruction<U, U, U>("{ .reg .b64 %t; add.cc.u64 %t, %a, %b; subc.u64 %d, 5, 0; }",
                            [](U a, U b) { return U{5} - (a + b >= a); });
  checkInstruction<U, U, U>(
      "{ .reg .b32 %x0, %x1, %y0, %y1, %h, %l, %m; mov.b64 {%x0, %x1}, %a; mov.b64 {%y0, %y1}, %b;\n"
      "mul.lo.u32 %l, %x0, %y0; mul.hi.u32 %h, %x0, %y0; mad.lo.cc.u32 %h, %x0, %y1, %h; madc.hi.u32 %m, "
      "%x0, %y1, 0;\n"
      "mad.lo.cc.u32 %h, %x1, %y0, %h; madc.hi.cc.u32 %m, %x1, %y0, %m; mov.b64 %d, {%l, %h}; }",
      [](U a, U b) { return a * b; });
}

TEST("masks and the n-th bit") {
  using U = uint32_t;
  checkInstruction<U, U, U>("bmsk.wrap.b32 %d, %a, %b;", [](U a, U b) {
    U width = b & 31;
    return static_cast<U>(((uint64_t{1} << width) - 1) << (a & 31));
  });
  checkInstruction<U, U, U>("bmsk.clamp.b32 %d, %a, %b;", [](U a, U b) {
    U out = 0;
    for (uint64_t i = a; i < uint64_t{a} + std::min(b, 32u) && i < 32; ++i) out |= 1u << i;
    return out;
  });
  checkInstruction<int32_t, int32_t, U>("szext.wrap.s32 %d, %a, %b;", [](int32_t a, U b) {
    U n = b & 31;
    return n == 0 ? 0 : static_cast<int32_t>(static_cast<U>(a) << (32 - n)) >> (32 - n);
  });
  checkInstruction<U, U, U>("szext.clamp.u32 %d, %a, %b;", [](U a, U b) { return b >= 32 ? a : a & ((1u << b) - 1); });
  checkInstruction<U, U, U, int32_t>("fns.b32 %d, %a, %b, %c;", [](U a, U base, int32_t n) {
    if (base > 31) return UINT32_MAX;
    if (n == 0) return a >> base & 1 ? base : UINT32_MAX;
    int64_t left = std::abs(int64_t{n});
    for (int i = static_cast<int>(base); i >= 0 && i < 32; i += n < 0 ? -1 : 1) {
      if ((a >> i & 1) && --left == 0) return static_cast<U>(i);
    }
    return UINT32_MAX;
  });
}
