// SPDX-License-Identifier: Apache-2.0
// Arithmetic of 32 and 64 bits, rounded to nearest even, and the approximations.
#include "softgpu/ptx/exec/floats.h"
#include "softgpu/ptx/exec/selectors.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

/// F with the modifiers applied to its operands and its result.
template <typename T, bool kFlush, bool kSaturate, typename F>
struct Modified {
  template <typename... A>
  T operator()(A... a) const {
    T result = static_cast<T>(F{}(operandOf<kFlush>(a)...));
    if constexpr (kFlush && requires { F::scaled(a...); }) {
      if (isTiny(result, F::scaled(operandOf<kFlush>(a)...))) result = std::copysign(T{0}, result);
    }
    return resultOf<kFlush, kSaturate>(result);
  }
};

/// make(Modified<…>{}) for the modifiers that are set; 64-bit operations have none of them.
template <typename T, typename F, typename Make>
Handler modified(FloatModes modes, F, Make make) {
  if constexpr (sizeof(T) == 8) {
    return modes.saturate ? nullptr : make(Modified<T, false, false, F>{});
  } else {
    if (modes.flush) return modes.saturate ? make(Modified<T, true, true, F>{}) : make(Modified<T, true, false, F>{});
    return modes.saturate ? make(Modified<T, false, true, F>{}) : make(Modified<T, false, false, F>{});
  }
}
template <typename T, typename F>
Handler one(FloatModes modes, F f) {
  return modified<T>(modes, f, [](auto g) { return unary<T>(g); });
}
template <typename T, typename F>
Handler oneSparse(FloatModes modes, F f) {
  return modified<T>(modes, f, [](auto g) { return unary<T, T, true>(g); });
}
template <typename T, typename F>
Handler two(FloatModes modes, F f) {
  return modified<T>(modes, f, [](auto g) { return binary<T>(g); });
}
template <typename T, typename F>
Handler three(FloatModes modes, F f) {
  return modified<T>(modes, f, [](auto g) { return ternary<T>(g); });
}

/// The sign of .xorsign: both operands' signs combined.
template <typename T>
T xorSign(T result, T a, T b) {
  using Bits = decltype(bitsOfFloat(T{}));
  constexpr Bits kSign = Bits{1} << (sizeof(T) * 8 - 1);
  Bits sign = (bitsOfFloat(a) ^ bitsOfFloat(b)) & kSign;
  return floatOfBits((bitsOfFloat(result) & static_cast<Bits>(~kSign)) | sign);
}

template <typename T>
Handler exactOps(FloatOp op, FloatModes modes) {
  switch (op) {
    case FloatOp::kAdd: return two<T>(modes, [](T a, T b) { return a + b; });
    case FloatOp::kSub: return two<T>(modes, [](T a, T b) { return a - b; });
    case FloatOp::kMul: return two<T>(modes, Multiply{});
    case FloatOp::kDiv: return two<T>(modes, Divide{});
    case FloatOp::kFma: return three<T>(modes, FusedMultiplyAdd{});
    case FloatOp::kRcp: return one<T>(modes, Reciprocal{});
    case FloatOp::kSqrt: return one<T>(modes, [](T a) { return std::sqrt(a); });
    case FloatOp::kMin: return two<T>(modes, [](T a, T b) { return minimum(a, b); });
    case FloatOp::kMax: return two<T>(modes, [](T a, T b) { return maximum(a, b); });
    case FloatOp::kMinNan:
      return two<T>(modes, [](T a, T b) { return a == a && b == b ? minimum(a, b) : notANumber<T>(); });
    case FloatOp::kMaxNan:
      return two<T>(modes, [](T a, T b) { return a == a && b == b ? maximum(a, b) : notANumber<T>(); });
    case FloatOp::kMinXorsign:
      return two<T>(modes, [](T a, T b) { return xorSign(minimum(std::fabs(a), std::fabs(b)), a, b); });
    case FloatOp::kMaxXorsign:
      return two<T>(modes, [](T a, T b) { return xorSign(maximum(std::fabs(a), std::fabs(b)), a, b); });
    case FloatOp::kMinXorsignNan:
      return two<T>(modes, [](T a, T b) {
        return a == a && b == b ? xorSign(minimum(std::fabs(a), std::fabs(b)), a, b) : notANumber<T>();
      });
    case FloatOp::kMaxXorsignNan:
      return two<T>(modes, [](T a, T b) {
        return a == a && b == b ? xorSign(maximum(std::fabs(a), std::fabs(b)), a, b) : notANumber<T>();
      });
    default: return nullptr;
  }
}

/// For 32 bits the result is the device's NaN, for 64 bits the NaN operand, made quiet.
template <typename T>
T magnitude(T a) {
  return a == a ? std::fabs(a) : quieted(a);
}
template <typename T>
T negated(T a) {
  return a == a ? -a : quieted(a);
}
template <typename T>
Handler signOps(FloatOp op, FloatModes modes) {
  auto flushOnly = [&](auto plain, auto flushing) { return modes.flush ? unary<T>(flushing) : unary<T>(plain); };
  if (modes.saturate) return nullptr;
  switch (op) {
    case FloatOp::kAbs: return flushOnly([](T a) { return magnitude(a); }, [](T a) { return magnitude(flushed(a)); });
    case FloatOp::kNeg: return flushOnly([](T a) { return negated(a); }, [](T a) { return negated(flushed(a)); });
    case FloatOp::kCopysign: return binary<T>([](T a, T b) { return std::copysign(b, a); });
    default: return nullptr;
  }
}

/// The device takes sine and cosine of full turns: it divides by them in single precision, and forgets whole
/// ones.
double turnsOf(float a) {
  float turns = flushed(a * 0x1.45f306p-3f);
  float rest = turns - std::nearbyint(turns);
  if (rest == 0) rest = std::copysign(rest, a);
  return static_cast<double>(rest) * 6.283185307179586476925286766559;
}
/// By the approximate reciprocal, which is 0 for the largest divisors.
float divideApproximately(float a, float b) { return a * flushed(1.0f / b); }

Handler approximations(FloatOp op, FloatModes modes) {
  using T = float;
  switch (op) {
    case FloatOp::kDivApprox: return two<T>(modes, [](T a, T b) { return divideApproximately(a, b); });
    case FloatOp::kRcpApprox: return one<T>(modes, [](T a) { return T{1} / a; });
    case FloatOp::kRsqrtApprox:
      return one<T>(modes, [](T a) { return static_cast<T>(1.0 / std::sqrt(static_cast<double>(a))); });
    case FloatOp::kSinApprox: return oneSparse<T>(modes, [](T a) { return static_cast<T>(std::sin(turnsOf(a))); });
    case FloatOp::kCosApprox: return oneSparse<T>(modes, [](T a) { return static_cast<T>(std::cos(turnsOf(a))); });
    case FloatOp::kLg2Approx: return oneSparse<T>(modes, [](T a) { return std::log2(a); });
    case FloatOp::kEx2Approx: return oneSparse<T>(modes, [](T a) { return std::exp2(a); });
    case FloatOp::kTanhApprox: return oneSparse<T>(modes, [](T a) { return std::tanh(a); });
    default: return nullptr;
  }
}

/// Only the upper word of a double, as the coarse reciprocals take and return it.
double upperWord(double x) { return floatOfBits(x == x ? bitsOfFloat(x) & 0xffffffff00000000u : 0x7fffffff00000000u); }
/// A subnormal number of 64 bits as zero.
double flushedDouble(double x) {
  uint64_t bits = bitsOfFloat(x);
  return floatOfBits(bits & 0x7ff0000000000000u ? bits : bits & 0x8000000000000000u);
}
Handler coarseReciprocals(FloatOp op) {
  switch (op) {
    case FloatOp::kRcpApproxHigh:
      return unary<double>([](double a) { return flushedDouble(upperWord(1.0 / flushedDouble(upperWord(a)))); });
    case FloatOp::kRsqrtApproxHigh:
      return unary<double>([](double a) { return upperWord(1.0 / std::sqrt(flushedDouble(upperWord(a)))); });
    case FloatOp::kRsqrtApprox:
      // Two roundings to double would cost more than the one unit in the last place that is allowed.
      return unary<double, double, true>(
          [](double a) { return static_cast<double>(1.0L / std::sqrt(static_cast<long double>(a))); });
    default: return nullptr;
  }
}

template <typename T, TestOp kOp>
const Instruction* testHandler(const Instruction* i, Context& context) {
  const T* a = slot<T>(context, i->op[1]);
  uint32_t value = lanesWhere([=](uint32_t l) {
    constexpr int kMantissa = sizeof(T) == 4 ? 23 : 52;
    using Bits = decltype(bitsOfFloat(T{}));
    Bits magnitude = static_cast<Bits>(bitsOfFloat(a[l]) << 1) >> 1;
    constexpr Bits kInfinity = static_cast<Bits>(sizeof(T) == 4 ? 0xff : 0x7ff) << kMantissa;
    constexpr Bits kSmallest = Bits{1} << kMantissa;
    switch (kOp) {
      case TestOp::kFinite: return magnitude < kInfinity;
      case TestOp::kInfinite: return magnitude == kInfinity;
      case TestOp::kNumber: return magnitude <= kInfinity;
      case TestOp::kNotANumber: return magnitude > kInfinity;
      // Zero counts as normal.
      case TestOp::kNormal: return magnitude < kInfinity && (magnitude >= kSmallest || magnitude == 0);
      default: return magnitude < kSmallest && magnitude != 0;
    }
  });
  assignPredicate(activeLanes(i, context), predicate(context, i->op[0]), value);
  return i + 1;
}
template <typename T>
Handler testOf(TestOp op) {
  switch (op) {
    case TestOp::kFinite: return &testHandler<T, TestOp::kFinite>;
    case TestOp::kInfinite: return &testHandler<T, TestOp::kInfinite>;
    case TestOp::kNumber: return &testHandler<T, TestOp::kNumber>;
    case TestOp::kNotANumber: return &testHandler<T, TestOp::kNotANumber>;
    case TestOp::kNormal: return &testHandler<T, TestOp::kNormal>;
    default: return &testHandler<T, TestOp::kSubnormal>;
  }
}

}  // namespace

Handler selectFloating(FloatOp op, Type type, FloatModes modes) {
  if (isHalf(type)) return selectHalf(op, type, modes);
  if (type != Type::kF32 && type != Type::kF64) return nullptr;
  if (modes.rounding != Rounding::kNearestEven) return selectRounded(op, type, modes);
  if (type == Type::kF64) {
    if (Handler handler = signOps<double>(op, modes)) return handler;
    if (Handler handler = coarseReciprocals(op)) return handler;
    return exactOps<double>(op, modes);
  }
  if (Handler handler = signOps<float>(op, modes)) return handler;
  if (Handler handler = approximations(op, modes)) return handler;
  return exactOps<float>(op, modes);
}

Handler selectTest(TestOp op, Type type) {
  return type == Type::kF32 ? testOf<float>(op) : type == Type::kF64 ? testOf<double>(op) : nullptr;
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
