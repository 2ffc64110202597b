// SPDX-License-Identifier: Apache-2.0
// Arithmetic of 16 bits: f16 and bf16, alone and in pairs. Computed in wider formats in which one operation
// is exact enough to be rounded again.
#include "softgpu/ptx/exec/floats.h"
#include "softgpu/ptx/exec/selectors.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

template <typename Format>
uint16_t nearest(double value) {
  return encode<Format>(value, Rounding::kNearestEven);
}
template <typename Format>
bool isNan(uint16_t a) {
  return (a & 0x7fffu) > (((1u << Format::kExponentBits) - 1) << Format::kMantissaBits);
}
/// A subnormal number as zero of the same sign.
template <typename Format>
uint16_t flushedHalf(uint16_t a) {
  constexpr uint32_t kExponent = ((1u << Format::kExponentBits) - 1) << Format::kMantissaBits;
  return static_cast<uint16_t>(a & kExponent ? a : a & 0x8000u);
}
template <typename Format>
uint16_t saturatedHalf(uint16_t a) {
  float value = decode<Format>(a);
  if (!(value > 0)) return 0;
  return value < 1 ? a : Format::kOne;
}

/// -0 orders below +0, as in the wider formats.
template <typename Format, bool kMax, bool kNan>
uint16_t extreme(uint16_t a, uint16_t b) {
  bool nanA = isNan<Format>(a);
  bool nanB = isNan<Format>(b);
  if (kNan ? nanA || nanB : nanA && nanB) return Format::kNan;
  if (nanA) return b;
  if (nanB) return a;
  float x = decode<Format>(a);
  float y = decode<Format>(b);
  if (x == y) return static_cast<uint16_t>(kMax ? a & b : a | b);
  return (x < y) == kMax ? b : a;
}
template <typename Format, bool kMax, bool kNan>
uint16_t extremeXorsign(uint16_t a, uint16_t b) {
  uint16_t magnitude =
      extreme<Format, kMax, kNan>(static_cast<uint16_t>(a & 0x7fffu), static_cast<uint16_t>(b & 0x7fffu));
  if (isNan<Format>(magnitude)) return magnitude;
  return static_cast<uint16_t>(magnitude | ((a ^ b) & 0x8000u));
}
template <typename Format>
uint16_t fused(uint16_t a, uint16_t b, uint16_t c) {
  double product = static_cast<double>(decode<Format>(a)) * static_cast<double>(decode<Format>(b));
  return nearest<Format>(addToOdd(product, static_cast<double>(decode<Format>(c))));
}

template <typename Format, FloatOp kOp>
uint16_t compute(uint16_t a, uint16_t b, uint16_t c) {
  double x = static_cast<double>(decode<Format>(a));
  switch (kOp) {
    case FloatOp::kAdd: return nearest<Format>(addToOdd(x, static_cast<double>(decode<Format>(b))));
    case FloatOp::kSub: return nearest<Format>(addToOdd(x, -static_cast<double>(decode<Format>(b))));
    case FloatOp::kMul: return nearest<Format>(x * static_cast<double>(decode<Format>(b)));
    case FloatOp::kFma: return fused<Format>(a, b, c);
    case FloatOp::kFmaRelu: {
      uint16_t value = fused<Format>(a, b, c);
      return isNan<Format>(value) ? value : value & 0x8000u ? uint16_t{0} : value;
    }
    case FloatOp::kAbs: return isNan<Format>(a) ? Format::kNan : static_cast<uint16_t>(a & 0x7fffu);
    case FloatOp::kNeg: return isNan<Format>(a) ? Format::kNan : static_cast<uint16_t>(a ^ 0x8000u);
    case FloatOp::kMin: return extreme<Format, false, false>(a, b);
    case FloatOp::kMax: return extreme<Format, true, false>(a, b);
    case FloatOp::kMinNan: return extreme<Format, false, true>(a, b);
    case FloatOp::kMaxNan: return extreme<Format, true, true>(a, b);
    case FloatOp::kMinXorsign: return extremeXorsign<Format, false, false>(a, b);
    case FloatOp::kMaxXorsign: return extremeXorsign<Format, true, false>(a, b);
    case FloatOp::kMinXorsignNan: return extremeXorsign<Format, false, true>(a, b);
    case FloatOp::kMaxXorsignNan: return extremeXorsign<Format, true, true>(a, b);
    case FloatOp::kEx2Approx: return nearest<Format>(std::exp2(x));
    case FloatOp::kTanhApprox: return nearest<Format>(std::tanh(x));
    default: return 0;
  }
}

/// Instruction::immediate: kSaturateFlag, kFlushFlag. T holds one or two numbers.
template <typename Format, typename T, FloatOp kOp, uint32_t kOperands>
const Instruction* halfHandler(const Instruction* i, Context& context) {
  const T* a = slot<T>(context, i->op[1]);
  const T* b = kOperands > 1 ? slot<T>(context, i->op[2]) : a;
  const T* c = kOperands > 2 ? slot<T>(context, i->op[3]) : a;
  bool saturates = i->immediate & kSaturateFlag;
  bool flushes = i->immediate & kFlushFlag;
  auto part = [=](uint32_t x, uint32_t y, uint32_t z) -> uint32_t {
    auto in = [=](uint32_t value) {
      uint16_t half = static_cast<uint16_t>(value & 0xffff);
      return flushes ? flushedHalf<Format>(half) : half;
    };
    uint16_t value = compute<Format, kOp>(in(x), in(y), in(z));
    if (flushes) value = flushedHalf<Format>(value);
    return saturates ? saturatedHalf<Format>(value) : value;
  };
  assignSparse(activeLanes(i, context), slot<T>(context, i->op[0]), [=](uint32_t l) -> T {
    uint32_t low = part(a[l], b[l], c[l]);
    if constexpr (sizeof(T) == 2)
      return static_cast<T>(low);
    else
      return low | part(a[l] >> 16, b[l] >> 16, c[l] >> 16) << 16;
  });
  return i + 1;
}

template <typename Format, typename T>
Handler halfOps(FloatOp op) {
  switch (op) {
    case FloatOp::kAdd: return &halfHandler<Format, T, FloatOp::kAdd, 2>;
    case FloatOp::kSub: return &halfHandler<Format, T, FloatOp::kSub, 2>;
    case FloatOp::kMul: return &halfHandler<Format, T, FloatOp::kMul, 2>;
    case FloatOp::kFma: return &halfHandler<Format, T, FloatOp::kFma, 3>;
    case FloatOp::kFmaRelu: return &halfHandler<Format, T, FloatOp::kFmaRelu, 3>;
    case FloatOp::kAbs: return &halfHandler<Format, T, FloatOp::kAbs, 1>;
    case FloatOp::kNeg: return &halfHandler<Format, T, FloatOp::kNeg, 1>;
    case FloatOp::kMin: return &halfHandler<Format, T, FloatOp::kMin, 2>;
    case FloatOp::kMax: return &halfHandler<Format, T, FloatOp::kMax, 2>;
    case FloatOp::kMinNan: return &halfHandler<Format, T, FloatOp::kMinNan, 2>;
    case FloatOp::kMaxNan: return &halfHandler<Format, T, FloatOp::kMaxNan, 2>;
    case FloatOp::kMinXorsign: return &halfHandler<Format, T, FloatOp::kMinXorsign, 2>;
    case FloatOp::kMaxXorsign: return &halfHandler<Format, T, FloatOp::kMaxXorsign, 2>;
    case FloatOp::kMinXorsignNan: return &halfHandler<Format, T, FloatOp::kMinXorsignNan, 2>;
    case FloatOp::kMaxXorsignNan: return &halfHandler<Format, T, FloatOp::kMaxXorsignNan, 2>;
    case FloatOp::kEx2Approx: return &halfHandler<Format, T, FloatOp::kEx2Approx, 1>;
    case FloatOp::kTanhApprox: return &halfHandler<Format, T, FloatOp::kTanhApprox, 1>;
    default: return nullptr;
  }
}

}  // namespace

Handler selectHalf(FloatOp op, Type type, FloatModes modes) {
  if (modes.rounding != Rounding::kNearestEven) return nullptr;
  switch (type) {
    case Type::kF16: return halfOps<Half, uint16_t>(op);
    case Type::kF16x2: return halfOps<Half, uint32_t>(op);
    case Type::kBf16: return halfOps<Bfloat, uint16_t>(op);
    case Type::kBf16x2: return halfOps<Bfloat, uint32_t>(op);
    default: return nullptr;
  }
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
