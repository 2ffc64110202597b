// SPDX-License-Identifier: Apache-2.0
// Integer and floating-point arithmetic.
#include "softgpu/ptx/decode/function_decoder.h"

namespace millpond::softgpu::ptx {
namespace {

FloatModes takeFloatModes(Modifiers& modifiers) {
  FloatModes modes;
  if (std::optional<Rounding> rounding = modifiers.takeRounding()) modes.rounding = *rounding;
  modes.flush = modifiers.take(".ftz");
  modes.saturate = modifiers.take(".sat");
  return modes;
}

Type doubled(Type type) {
  switch (type) {
    case Type::kU16: return Type::kU32;
    case Type::kS16: return Type::kS32;
    case Type::kU32: return Type::kU64;
    default: return Type::kS64;
  }
}

/// b32 and b64 count as unsigned where PTX allows them for arithmetic.
Type asInteger(Type type) { return isBits(type) ? unsignedOf(bitsOf(type)) : type; }

}  // namespace

void FunctionDecoder::emitFloat(Node node, FloatOp op, Type type, FloatModes modes, size_t sources) {
  Handler handler = select_.floating(op, type, modes);
  Draft& draft = sources == 1   ? elementwise(node, handler, type, {type})
                 : sources == 2 ? elementwise(node, handler, type, {type, type})
                                : elementwise(node, handler, type, {type, type, type});
  // Half-precision handlers read these; the others were selected by them.
  draft.instruction.immediate = (modes.saturate ? kSaturateFlag : 0) | (modes.flush ? kFlushFlag : 0);
}

void FunctionDecoder::integerOrFloat(Node node) {
  Modifiers modifiers(node);
  std::string_view name = node.opcode;
  bool writesCarry = modifiers.take(".cc");
  FloatModes modes = takeFloatModes(modifiers);
  bool propagatesNan = modifiers.take(".NaN");
  bool xorsign = modifiers.take(".xorsign");
  if (xorsign && !modifiers.take(".abs")) modifiers.refuse();
  bool relu = modifiers.take(".relu");
  Type type = modifiers.expectType();
  modifiers.finish();
  if (relu) modifiers.refuse();
  if (isFloat(type)) {
    if (writesCarry) modifiers.refuse();
    bool isMin = name == "min";
    if (isMin || name == "max") {
      FloatOp op = xorsign         ? (isMin ? (propagatesNan ? FloatOp::kMinXorsignNan : FloatOp::kMinXorsign)
                                            : (propagatesNan ? FloatOp::kMaxXorsignNan : FloatOp::kMaxXorsign))
                   : propagatesNan ? (isMin ? FloatOp::kMinNan : FloatOp::kMaxNan)
                                   : (isMin ? FloatOp::kMin : FloatOp::kMax);
      return emitFloat(node, op, type, modes, 2);
    }
    if (propagatesNan || xorsign) modifiers.refuse();
    if (name == "add") return emitFloat(node, FloatOp::kAdd, type, modes, 2);
    if (name == "sub") return emitFloat(node, FloatOp::kSub, type, modes, 2);
    if (name == "abs") return emitFloat(node, FloatOp::kAbs, type, modes, 1);
    if (name == "neg") return emitFloat(node, FloatOp::kNeg, type, modes, 1);
    modifiers.refuse();
  }
  if (modes.flush || modes.rounding != Rounding::kNearestEven || propagatesNan || xorsign) modifiers.refuse();
  type = asInteger(type);
  if (writesCarry) {
    if (modes.saturate || (name != "add" && name != "sub")) modifiers.refuse();
    CarryOp op = name == "add" ? CarryOp::kAdd : CarryOp::kSub;
    elementwise(node, select_.carry(op, type, {false, true}), type, {type, type});
    return;
  }
  if (name == "abs" || name == "neg") {
    if (modes.saturate) modifiers.refuse();
    elementwise(node, select_.integer(name == "abs" ? IntegerOp::kAbs : IntegerOp::kNeg, type), type, {type});
    return;
  }
  if (name == "sad") {
    elementwise(node, select_.integer(IntegerOp::kSad, type), type, {type, type, type});
    return;
  }
  IntegerOp op = name == "add"   ? (modes.saturate ? IntegerOp::kAddSat : IntegerOp::kAdd)
                 : name == "sub" ? (modes.saturate ? IntegerOp::kSubSat : IntegerOp::kSub)
                 : name == "min" ? IntegerOp::kMin
                 : name == "max" ? IntegerOp::kMax
                                 : IntegerOp::kRem;
  if (modes.saturate && name != "add" && name != "sub") modifiers.refuse();
  elementwise(node, select_.integer(op, type), type, {type, type});
}

void FunctionDecoder::multiply(Node node) {
  Modifiers modifiers(node);
  FloatModes modes = takeFloatModes(modifiers);
  bool isLow = modifiers.take(".lo");
  bool isHigh = modifiers.take(".hi");
  bool isWide = modifiers.take(".wide");
  Type type = modifiers.expectType();
  modifiers.finish();
  if (isFloat(type)) {
    if (isLow || isHigh || isWide) modifiers.refuse();
    return emitFloat(node, FloatOp::kMul, type, modes, 2);
  }
  if (isLow + isHigh + isWide != 1 || modes.saturate || modes.flush) modifiers.refuse();
  type = asInteger(type);
  if (isWide) {
    elementwise(node, select_.integer(IntegerOp::kMulWide, type), doubled(type), {type, type});
  } else {
    elementwise(node, select_.integer(isLow ? IntegerOp::kMulLo : IntegerOp::kMulHi, type), type, {type, type});
  }
}

void FunctionDecoder::multiplyAdd(Node node) {
  Modifiers modifiers(node);
  bool isLow = modifiers.take(".lo");
  bool isHigh = modifiers.take(".hi");
  bool isWide = modifiers.take(".wide");
  bool writesCarry = modifiers.take(".cc");
  bool relu = modifiers.take(".relu");
  FloatModes modes = takeFloatModes(modifiers);
  Type type = modifiers.expectType();
  modifiers.finish();
  if (isFloat(type)) {
    if (isLow || isHigh || isWide || writesCarry || (relu && !isHalf(type))) modifiers.refuse();
    return emitFloat(node, relu ? FloatOp::kFmaRelu : FloatOp::kFma, type, modes, 3);
  }
  if (node.opcode == "fma" || relu || isLow + isHigh + isWide != 1) modifiers.refuse();
  type = asInteger(type);
  if (writesCarry) {
    if (isWide || modes.saturate) modifiers.refuse();
    elementwise(node, select_.carry(isLow ? CarryOp::kMadLo : CarryOp::kMadHi, type, {false, true}), type,
                {type, type, type});
    return;
  }
  if (isWide) {
    elementwise(node, select_.integer(IntegerOp::kMadWide, type), doubled(type), {type, type, doubled(type)});
    return;
  }
  if (modes.saturate && !isHigh) modifiers.refuse();
  IntegerOp op = isLow ? IntegerOp::kMadLo : modes.saturate ? IntegerOp::kMadHiSat : IntegerOp::kMadHi;
  elementwise(node, select_.integer(op, type), type, {type, type, type});
}

void FunctionDecoder::divide(Node node) {
  Modifiers modifiers(node);
  bool isFull = modifiers.take(".full");
  bool isApproximate = modifiers.take(".approx");
  FloatModes modes = takeFloatModes(modifiers);
  Type type = modifiers.expectType();
  modifiers.finish();
  if (isFloat(type)) {
    if ((isApproximate || isFull) && type != Type::kF32) modifiers.refuse();
    return emitFloat(node, isApproximate ? FloatOp::kDivApprox : FloatOp::kDiv, type, modes, 2);
  }
  if (isApproximate || isFull) modifiers.refuse();
  elementwise(node, select_.integer(IntegerOp::kDiv, type), type, {type, type});
}

void FunctionDecoder::carry(Node node) {
  Modifiers modifiers(node);
  bool isHigh = modifiers.take(".hi");
  bool isLow = modifiers.take(".lo");
  bool writesCarry = modifiers.take(".cc");
  Type type = asInteger(modifiers.expectType());
  modifiers.finish();
  CarryModes modes{true, writesCarry};
  if (node.opcode == "madc") {
    if (isHigh == isLow) modifiers.refuse();
    elementwise(node, select_.carry(isLow ? CarryOp::kMadLo : CarryOp::kMadHi, type, modes), type, {type, type, type});
    return;
  }
  if (isHigh || isLow) modifiers.refuse();
  elementwise(node, select_.carry(node.opcode == "addc" ? CarryOp::kAdd : CarryOp::kSub, type, modes), type,
              {type, type});
}

void FunctionDecoder::multiply24(Node node) {
  Modifiers modifiers(node);
  bool isHigh = modifiers.take(".hi");
  if (!isHigh && !modifiers.take(".lo")) modifiers.refuse();
  bool saturate = modifiers.take(".sat");
  Type type = modifiers.expectType();
  modifiers.finish();
  bool isMad = node.opcode == "mad24";
  if (saturate && (!isMad || !isHigh)) modifiers.refuse();
  IntegerOp op = isMad ? (saturate ? IntegerOp::kMad24HiSat
                          : isHigh ? IntegerOp::kMad24Hi
                                   : IntegerOp::kMad24Lo)
                       : (isHigh ? IntegerOp::kMul24Hi : IntegerOp::kMul24Lo);
  Handler handler = select_.integer(op, type);
  if (isMad)
    elementwise(node, handler, type, {type, type, type});
  else
    elementwise(node, handler, type, {type, type});
}

void FunctionDecoder::dot(Node node) {
  Modifiers modifiers(node);
  bool isLow = modifiers.take(".lo");
  bool isHigh = modifiers.take(".hi");
  Type a = modifiers.expectType();
  Type b = modifiers.expectType();
  modifiers.finish();
  bool isDot4 = node.opcode == "dp4a";
  if ((isDot4 && (isLow || isHigh)) || (!isDot4 && isLow == isHigh)) modifiers.refuse();
  if (bitsOf(a) != 32 || bitsOf(b) != 32 || !isInteger(a) || !isInteger(b)) modifiers.refuse();
  DotOp op = isDot4 ? DotOp::kDot4 : isLow ? DotOp::kDot2Lo : DotOp::kDot2Hi;
  elementwise(node, select_.dot(op, isSigned(a), isSigned(b)), a, {a, b, a});
}

void FunctionDecoder::approximate(Node node) {
  Modifiers modifiers(node);
  bool isApproximate = modifiers.take(".approx");
  FloatModes modes = takeFloatModes(modifiers);
  Type type = modifiers.expectType();
  modifiers.finish();
  std::string_view name = node.opcode;
  FloatOp op;
  if (name == "rcp")
    op = isApproximate ? (type == Type::kF64 ? FloatOp::kRcpApproxHigh : FloatOp::kRcpApprox) : FloatOp::kRcp;
  else if (name == "sqrt")
    op = FloatOp::kSqrt;
  else if (name == "rsqrt")
    op = type == Type::kF64 && modes.flush ? FloatOp::kRsqrtApproxHigh : FloatOp::kRsqrtApprox;
  else if (name == "sin")
    op = FloatOp::kSinApprox;
  else if (name == "cos")
    op = FloatOp::kCosApprox;
  else if (name == "lg2")
    op = FloatOp::kLg2Approx;
  else if (name == "ex2")
    op = FloatOp::kEx2Approx;
  else
    op = FloatOp::kTanhApprox;
  bool isExactOp = op == FloatOp::kRcp || op == FloatOp::kSqrt;
  if (!isApproximate && !isExactOp) modifiers.refuse();
  // Subnormal results of a 64-bit function are flushed by its handler.
  if (type == Type::kF64) modes.flush = false;
  emitFloat(node, op, type, modes, 1);
}

void FunctionDecoder::testProperty(Node node) {
  Modifiers modifiers(node);
  TestOp op;
  if (modifiers.take(".finite"))
    op = TestOp::kFinite;
  else if (modifiers.take(".infinite"))
    op = TestOp::kInfinite;
  else if (modifiers.take(".number"))
    op = TestOp::kNumber;
  else if (modifiers.take(".notanumber"))
    op = TestOp::kNotANumber;
  else if (modifiers.take(".normal"))
    op = TestOp::kNormal;
  else if (modifiers.take(".subnormal"))
    op = TestOp::kSubnormal;
  else
    modifiers.refuse();
  Type type = modifiers.expectType();
  modifiers.finish();
  elementwise(node, select_.test(op, type), Type::kPred, {type});
}

void FunctionDecoder::copySign(Node node) {
  Modifiers modifiers(node);
  Type type = modifiers.expectType();
  modifiers.finish();
  emitFloat(node, FloatOp::kCopysign, type, {}, 2);
}

}  // namespace millpond::softgpu::ptx
