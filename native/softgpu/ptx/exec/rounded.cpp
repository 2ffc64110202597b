// SPDX-License-Identifier: Apache-2.0
// Arithmetic and conversions in the directed roundings. Compiled with -frounding-math: the host's rounding
// mode is switched around loops that read and write memory.
#include "softgpu/ptx/exec/floats.h"
#include "softgpu/ptx/exec/selectors.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

template <Rounding kRounding, typename T, bool kFlush, bool kSaturate, typename F, uint32_t kOperands>
const Instruction* roundedHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  constexpr bool kMayBeTiny = kFlush && requires { F::scaled; };
  alignas(64) T in[3][32];
  alignas(64) T out[32];
  alignas(64) T scaled[32];
  for (uint32_t k = 0; k < kOperands; ++k) {
    const T* from = slot<T>(context, i->op[k + 1]);
    MILLPOND_LANES (l) in[k][l] = operandOf<kFlush>(from[l]);
  }
  {
    RoundingScope scope(kRounding);
    // The loop must neither begin before nor end after the mode is switched.
    asm volatile("" : : "r"(in), "r"(out) : "memory");
    MILLPOND_LANES (l) {
      if constexpr (kOperands == 1)
        out[l] = F{}(in[0][l]);
      else if constexpr (kOperands == 2)
        out[l] = F{}(in[0][l], in[1][l]);
      else
        out[l] = F{}(in[0][l], in[1][l], in[2][l]);
      if constexpr (kMayBeTiny) {
        if constexpr (kOperands == 1)
          scaled[l] = F::scaled(in[0][l]);
        else if constexpr (kOperands == 2)
          scaled[l] = F::scaled(in[0][l], in[1][l]);
        else
          scaled[l] = F::scaled(in[0][l], in[1][l], in[2][l]);
      }
    }
    asm volatile("" : : "r"(in), "r"(out), "r"(scaled) : "memory");
  }
  assign(mask, slot<T>(context, i->op[0]), [&](uint32_t l) {
    T result = out[l];
    if constexpr (kMayBeTiny) {
      if (isTiny(result, scaled[l])) result = std::copysign(T{0}, result);
    }
    return resultOf<kFlush, kSaturate>(result);
  });
  return i + 1;
}

template <Rounding kRounding, typename T, uint32_t kOperands, typename F>
Handler withModes(FloatModes modes) {
  if constexpr (sizeof(T) == 8) {
    return modes.saturate ? nullptr : &roundedHandler<kRounding, T, false, false, F, kOperands>;
  } else {
    if (modes.flush) {
      return modes.saturate ? &roundedHandler<kRounding, T, true, true, F, kOperands>
                            : &roundedHandler<kRounding, T, true, false, F, kOperands>;
    }
    return modes.saturate ? &roundedHandler<kRounding, T, false, true, F, kOperands>
                          : &roundedHandler<kRounding, T, false, false, F, kOperands>;
  }
}
template <typename T, uint32_t kOperands, typename F>
Handler directed(FloatModes modes, F) {
  switch (modes.rounding) {
    case Rounding::kZero: return withModes<Rounding::kZero, T, kOperands, F>(modes);
    case Rounding::kDown: return withModes<Rounding::kDown, T, kOperands, F>(modes);
    case Rounding::kUp: return withModes<Rounding::kUp, T, kOperands, F>(modes);
    default: return nullptr;
  }
}

template <typename T>
Handler roundedOf(FloatOp op, FloatModes modes) {
  switch (op) {
    case FloatOp::kAdd: return directed<T, 2>(modes, [](T a, T b) { return a + b; });
    case FloatOp::kSub: return directed<T, 2>(modes, [](T a, T b) { return a - b; });
    case FloatOp::kMul: return directed<T, 2>(modes, Multiply{});
    case FloatOp::kDiv: return directed<T, 2>(modes, Divide{});
    case FloatOp::kFma: return directed<T, 3>(modes, FusedMultiplyAdd{});
    case FloatOp::kRcp: return directed<T, 1>(modes, Reciprocal{});
    case FloatOp::kSqrt: return directed<T, 1>(modes, [](T a) { return std::sqrt(a); });
    default: return nullptr;
  }
}

/// Integer to float, and double to float: the host's conversion instructions obey the rounding mode.
template <typename D, typename S>
const Instruction* convertHandler(const Instruction* i, Context& context) {
  uint32_t mask = activeLanes(i, context);
  alignas(64) S in[32];
  alignas(64) D out[32];
  const S* from = slot<S>(context, i->op[1]);
  MILLPOND_LANES (l) in[l] = from[l];
  {
    RoundingScope scope(static_cast<Rounding>(i->immediate & kRoundingBits));
    asm volatile("" : : "r"(in), "r"(out) : "memory");
    // One at a time: vector conversions of unsigned integers work in parts that would each be rounded.
    for (uint32_t l = 0; l < 32; ++l) {
      out[l] = static_cast<D>(in[l]);
      asm volatile("" : : "r"(out) : "memory");
    }
  }
  bool saturates = i->immediate & kSaturateFlag;
  bool flushes = i->immediate & kFlushFlag;
  assign(mask, slot<D>(context, i->op[0]), [&](uint32_t l) {
    D value = flushes ? flushed(out[l]) : out[l];
    return saturates ? saturated(value) : value;
  });
  return i + 1;
}
template <typename D>
Handler convertFrom(Type from) {
  switch (from) {
    case Type::kU16: return &convertHandler<D, uint16_t>;
    case Type::kS16: return &convertHandler<D, int16_t>;
    case Type::kU32: return &convertHandler<D, uint32_t>;
    case Type::kS32: return &convertHandler<D, int32_t>;
    case Type::kU64: return &convertHandler<D, uint64_t>;
    case Type::kS64: return &convertHandler<D, int64_t>;
    case Type::kF64: return &convertHandler<D, double>;
    default: return nullptr;
  }
}

}  // namespace

Handler selectRounded(FloatOp op, Type type, FloatModes modes) {
  return type == Type::kF32 ? roundedOf<float>(op, modes) : type == Type::kF64 ? roundedOf<double>(op, modes) : nullptr;
}

/// Instruction::immediate: the rounding, 8 for .sat, 16 for .ftz.
Handler selectRoundedConvert(Type to, Type from, ConvertModes) {
  return to == Type::kF32 ? convertFrom<float>(from) : to == Type::kF64 ? convertFrom<double>(from) : nullptr;
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
