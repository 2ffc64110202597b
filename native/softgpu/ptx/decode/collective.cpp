// SPDX-License-Identifier: Apache-2.0
// Shuffles, votes, matches and barriers. Guarded ones become a branch around an unguarded one.
#include "softgpu/ptx/decode/function_decoder.h"

namespace millpond::softgpu::ptx {

/// The member mask at `index`; for the forms without one, from before Volta: the lanes that are active.
uint32_t FunctionDecoder::memberOperand(Node node, size_t index) {
  if (index < node.operands.size()) return source(node.operands[index], Type::kB32);
  Draft& draft = emitUnguarded(node, select_.control(ControlOp::kActiveMask));
  uint32_t out = temporary(32);
  draft.instruction.op[0] = out;
  draft.writes = 1;
  return out;
}

void FunctionDecoder::shuffle(Node node) {
  Modifiers modifiers(node);
  bool isSync = modifiers.take(".sync");
  ShuffleOp op = modifiers.take(".up")     ? ShuffleOp::kUp
                 : modifiers.take(".down") ? ShuffleOp::kDown
                 : modifiers.take(".bfly") ? ShuffleOp::kButterfly
                                           : ShuffleOp::kIndex;
  if (op == ShuffleOp::kIndex && !modifiers.take(".idx")) modifiers.refuse();
  Type type = modifiers.expectType();
  modifiers.finish();
  if (bitsOf(type) != 32) modifiers.refuse();
  expectOperands(node, isSync ? 5 : 4);
  branchAround(node, [&] {
    uint32_t a = source(node.operands[1], type);
    uint32_t b = source(node.operands[2], Type::kU32);
    uint32_t c = source(node.operands[3], Type::kU32);
    uint32_t members = memberOperand(node, isSync ? 4 : SIZE_MAX);
    Draft& draft = emitCollective(node, select_.shuffle(op), members);
    const Operand& out = node.operands[0];
    if (out.kind == Operand::Kind::kPair) {
      draft.instruction.op[0] = destination(out.items[0], 32);
      draft.instruction.op[1] = destination(out.items[1], 1);
      draft.writes = 3;
    } else {
      draft.instruction.op[0] = destination(out, 32);
      draft.writes = 1;
    }
    draft.instruction.op[2] = a;
    draft.instruction.op[3] = b;
    draft.instruction.op[4] = c;
  });
}

void FunctionDecoder::vote(Node node) {
  Modifiers modifiers(node);
  bool isSync = modifiers.take(".sync");
  VoteOp op = modifiers.take(".all")   ? VoteOp::kAll
              : modifiers.take(".any") ? VoteOp::kAny
              : modifiers.take(".uni") ? VoteOp::kUniform
                                       : VoteOp::kBallot;
  if (op == VoteOp::kBallot && !modifiers.take(".ballot")) modifiers.refuse();
  Type type = modifiers.expectType();
  modifiers.finish();
  if (type != (op == VoteOp::kBallot ? Type::kB32 : Type::kPred)) modifiers.refuse();
  expectOperands(node, isSync ? 3 : 2);
  branchAround(node, [&] {
    uint32_t a = predicateSource(node.operands[1]);
    uint32_t members = memberOperand(node, isSync ? 2 : SIZE_MAX);
    Draft& draft = emitCollective(node, select_.vote(op), members);
    draft.instruction.op[0] = destination(node.operands[0], op == VoteOp::kBallot ? 32 : 1);
    draft.writes = 1;
    draft.instruction.op[1] = a;
  });
}

void FunctionDecoder::match(Node node) {
  Modifiers modifiers(node);
  bool isAll = modifiers.take(".all");
  if (!isAll && !modifiers.take(".any")) modifiers.refuse();
  if (!modifiers.take(".sync")) modifiers.refuse();
  Type type = modifiers.expectType();
  modifiers.finish();
  if (type != Type::kB32 && type != Type::kB64) modifiers.refuse();
  expectOperands(node, 3);
  branchAround(node, [&] {
    uint32_t a = source(node.operands[1], type);
    uint32_t members = memberOperand(node, 2);
    Draft& draft = emitCollective(node, select_.match(isAll, bitsOf(type)), members);
    const Operand& out = node.operands[0];
    if (out.kind == Operand::Kind::kPair) {
      if (!isAll) modifiers.refuse();
      draft.instruction.op[0] = destination(out.items[0], 32);
      draft.instruction.op[1] = destination(out.items[1], 1);
      draft.writes = 3;
    } else {
      draft.instruction.op[0] = destination(out, 32);
      draft.writes = 1;
    }
    draft.instruction.op[2] = a;
  });
}

void FunctionDecoder::reduceAcross(Node node) {
  Modifiers modifiers(node);
  if (!modifiers.take(".sync")) modifiers.refuse();
  ReduceOp op = modifiers.take(".add")   ? ReduceOp::kAdd
                : modifiers.take(".min") ? ReduceOp::kMin
                : modifiers.take(".max") ? ReduceOp::kMax
                : modifiers.take(".and") ? ReduceOp::kAnd
                : modifiers.take(".or")  ? ReduceOp::kOr
                                         : ReduceOp::kXor;
  if (op == ReduceOp::kXor && !modifiers.take(".xor")) modifiers.refuse();
  Type type = modifiers.expectType();
  modifiers.finish();
  expectOperands(node, 3);
  branchAround(node, [&] {
    uint32_t a = source(node.operands[1], type);
    uint32_t members = memberOperand(node, 2);
    Draft& draft = emitCollective(node, select_.reduce(op, type), members);
    draft.instruction.op[0] = destination(node.operands[0], 32);
    draft.writes = 1;
    draft.instruction.op[1] = a;
  });
}

void FunctionDecoder::activeMask(Node node) {
  Modifiers modifiers(node);
  Type type = modifiers.expectType();
  modifiers.finish();
  if (type != Type::kB32) modifiers.refuse();
  elementwise(node, select_.control(ControlOp::kActiveMask), type, {});
}

void FunctionDecoder::elect(Node node) {
  Modifiers modifiers(node);
  if (!modifiers.take(".sync")) modifiers.refuse();
  modifiers.finish();
  expectOperands(node, 2);
  branchAround(node, [&] {
    uint32_t members = memberOperand(node, 1);
    const Operand& out = node.operands[0];
    if (out.kind != Operand::Kind::kPair) syntaxError(node.line, "elect needs two destinations, as in d|p");
    Draft& draft = emitCollective(node, select_.control(ControlOp::kElect), members);
    draft.instruction.op[0] = destination(out.items[0], 32);
    draft.instruction.op[1] = destination(out.items[1], 1);
    draft.writes = 3;
  });
}

void FunctionDecoder::barrier(Node node) {
  Modifiers modifiers(node);
  if (modifiers.take(".warp")) {
    if (!modifiers.take(".sync")) modifiers.refuse();
    modifiers.finish();
    expectOperands(node, 1);
    return branchAround(node, [&] {
      uint32_t members = memberOperand(node, 0);
      emitCollective(node, select_.control(ControlOp::kWarpBarrier), members);
    });
  }
  modifiers.take(".cta");
  // `bar` is short for `barrier.aligned`.
  const bool isAligned = modifiers.take(".aligned") || node.opcode == "bar";
  BarrierKind kind = BarrierKind::kSync;
  if (modifiers.take(".arrive")) {
    kind = BarrierKind::kArrive;
  } else if (modifiers.take(".red")) {
    kind = modifiers.take(".popc")  ? BarrierKind::kReduceCount
           : modifiers.take(".and") ? BarrierKind::kReduceAnd
                                    : BarrierKind::kReduceOr;
    if (kind == BarrierKind::kReduceOr && !modifiers.take(".or")) modifiers.refuse();
  } else if (!modifiers.take(".sync")) {
    modifiers.refuse();
  }
  bool reduces = kind != BarrierKind::kSync && kind != BarrierKind::kArrive;
  if (reduces && modifiers.expectType() != (kind == BarrierKind::kReduceCount ? Type::kU32 : Type::kPred))
    modifiers.refuse();
  modifiers.finish();
  size_t first = reduces ? 1 : 0;
  size_t least = reduces ? 3 : kind == BarrierKind::kArrive ? 2 : 1;
  expectOperands(node, least, reduces ? 4 : 2);
  branchAround(node, [&] {
    bool hasThreads = node.operands.size() == (reduces ? 4u : 2u);
    uint32_t id = source(node.operands[first], Type::kU32);
    uint32_t threads = hasThreads ? source(node.operands[first + 1], Type::kU32) : kNoOperand;
    uint32_t predicate = reduces ? predicateSource(node.operands.back()) : kNoOperand;
    if (isAligned) checkBarrier(node, id, threads);
    Draft& draft = emitUnguarded(node, select_.barrier(kind));
    if (reduces) {
      draft.instruction.op[0] = destination(node.operands[0], kind == BarrierKind::kReduceCount ? 32 : 1);
      draft.writes = 1;
    }
    draft.instruction.op[1] = id;
    draft.instruction.op[2] = threads;
    draft.instruction.op[3] = predicate;
  });
}

}  // namespace millpond::softgpu::ptx
