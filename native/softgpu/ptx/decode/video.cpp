// SPDX-License-Identifier: Apache-2.0
// Arithmetic on the bytes or halves of words, as the compiler's SIMD intrinsics use it.
#include "softgpu/ptx/decode/function_decoder.h"

namespace millpond::softgpu::ptx {

void FunctionDecoder::video(Node node) {
  Modifiers modifiers(node);
  VideoForm form;
  std::string_view name = node.opcode.substr(0, node.opcode.size() - 1);
  form.isHalves = node.opcode.back() == '2';
  if (name == "vadd")
    form.op = VideoOp::kAdd;
  else if (name == "vsub")
    form.op = VideoOp::kSubtract;
  else if (name == "vavrg")
    form.op = VideoOp::kAverage;
  else if (name == "vabsdiff")
    form.op = VideoOp::kDifference;
  else if (name == "vmin")
    form.op = VideoOp::kMinimum;
  else
    form.op = VideoOp::kMaximum;
  form.saturates = modifiers.take(".sat");
  form.sums = modifiers.take(".add");
  Type result = modifiers.expectType();
  Type a = modifiers.expectType();
  Type b = modifiers.expectType();
  modifiers.finish();
  for (Type type : {result, a, b}) {
    if (type != Type::kU32 && type != Type::kS32) modifiers.refuse();
  }
  for (const Operand& operand : node.operands) {
    // Selections of bytes, as in %r1.b3120, are not decoded.
    if (operand.kind == Operand::Kind::kName && operand.name.find('.') != std::string_view::npos)
      modifiers.refuse();
  }
  form.isSignedResult = isSigned(result);
  form.isSignedA = isSigned(a);
  form.isSignedB = isSigned(b);
  elementwise(node, select_.video(), result, {a, b, result}).instruction.immediate = form.pack();
}

/// On whole words, without saturation and a second operation: then it is arithmetic like any other, whatever the signs;
/// of the smallest and largest only where all have the same.
void FunctionDecoder::scalarVideo(Node node) {
  Modifiers modifiers(node);
  const Type result = modifiers.expectType();
  const Type a = modifiers.expectType();
  const Type b = modifiers.expectType();
  modifiers.finish();
  const bool isSum = node.opcode == "vadd" || node.opcode == "vsub";
  for (const Type type : {result, a, b}) {
    if (type != Type::kU32 && type != Type::kS32) modifiers.refuse();
    if (!isSum && type != result) modifiers.refuse();
  }
  for (const Operand& operand : node.operands) {
    if (operand.kind == Operand::Kind::kName && operand.name.find('.') != std::string_view::npos) modifiers.refuse();
  }
  const IntegerOp op = node.opcode == "vadd"   ? IntegerOp::kAdd
                       : node.opcode == "vsub" ? IntegerOp::kSub
                       : node.opcode == "vmin" ? IntegerOp::kMin
                                               : IntegerOp::kMax;
  elementwise(node, select_.integer(op, result), result, {a, b});
}

}  // namespace millpond::softgpu::ptx
