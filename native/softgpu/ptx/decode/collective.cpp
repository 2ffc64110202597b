// SPDX-License-Identifier: Apache-2.0
// Shuffles, votes, matches and barriers, also those in shared memory. Guarded ones become a branch around an unguarded one.
#include <algorithm>

#include "softgpu/ptx/decode/function_decoder.h"

namespace millpond::softgpu::ptx {
namespace {

constexpr uint32_t kBarrierAddress = 4;

}  // namespace

/// The member mask at `index`; for the pre-Volta forms without one: the active lanes.
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

/// barrier.cluster, for blocks that are clusters of their own: threads arrive, and those that wait do so at a barrier
/// of the block that programs cannot name.
void FunctionDecoder::clusterBarrier(Node node, Modifiers& modifiers) {
  const bool isWait = modifiers.take(".wait");
  if (!isWait && !modifiers.take(".arrive")) modifiers.refuse();
  for (const std::string_view order : {".release", ".relaxed", ".acquire"}) modifiers.take(order);
  modifiers.take(".aligned");
  modifiers.finish();
  expectOperands(node, 0);
  if (!isWait) {
    emit(node, select_.control(ControlOp::kFence));
    return;
  }
  branchAround(node, [&] {
    Draft& draft = emitUnguarded(node, select_.barrier(BarrierKind::kSync));
    draft.instruction.op[1] = module_.constants.number(kClusterBarrier, 32);
    draft.instruction.immediate = kIsClusterBarrier;
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
  if (modifiers.take(".cluster")) return clusterBarrier(node, modifiers);
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

/// cp.async.mbarrier.arrive: this thread's copies are done, so it arrives, or adds an arrival and removes it again.
void FunctionDecoder::arriveOfCopies(Node node, Modifiers& modifiers) {
  modifiers.take(".arrive");
  const bool isExpected = modifiers.take(".noinc");
  const Space space = modifiers.takeSpace().value_or(Space::kGeneric);
  if (!modifiers.take(".b64")) modifiers.refuse();
  modifiers.finish();
  expectOperands(node, 1);
  if (isExpected)
    emitMemoryBarrier(node, MemoryBarrierOp::kArrive, address(node, node.operands[0], space, 8),
                      module_.constants.number(1, 32), kNoOperand);
  else
    emit(node, select_.control(ControlOp::kNothing));
}

Draft& FunctionDecoder::emitMemoryBarrier(Node node, MemoryBarrierOp op, const Address& at, uint32_t argument,
                                          uint32_t bytes) {
  if (at.operand == kNoOperand) unsupported(node.line, "this form of address in " + quoted(node.fullName()));
  const bool isTest = op == MemoryBarrierOp::kTestState || op == MemoryBarrierOp::kTestParity;
  const CheckForm form{.isRead = true, .isWrite = !isTest, .isAtomic = true, .acquires = true, .releases = !isTest};
  checkMemory(node, at, form, 8, 1);
  Draft& draft = emit(node, select_.memoryBarrier(op));
  draft.instruction.op[1] = argument;
  draft.instruction.op[2] = bytes;
  draft.instruction.op[kBarrierAddress] = at.operand;
  draft.instruction.immediate = at.offset;
  draft.instruction.access = {8, 1, 0};
  draft.instruction.locate = select_.locator(at.space, at.width);
  return draft;
}

/// mbarrier
void FunctionDecoder::memoryBarrier(Node node) {
  Modifiers modifiers(node);
  using Op = MemoryBarrierOp;
  if (modifiers.take(".pending_count")) {
    if (!modifiers.take(".b64")) modifiers.refuse();
    modifiers.finish();
    elementwise(node, select_.memoryBarrier(Op::kPending), Type::kU32, {Type::kB64});
    return;
  }
  const bool isInit = modifiers.take(".init");
  const bool isInvalidation = modifiers.take(".inval");
  const bool isDrop = modifiers.take(".arrive_drop");
  const bool isArrival = isDrop || modifiers.take(".arrive");
  const bool expects = modifiers.take(".expect_tx");
  const bool completes = modifiers.take(".complete_tx");
  const bool isTest = modifiers.take(".test_wait") || modifiers.take(".try_wait");
  const bool isByParity = isTest && modifiers.take(".parity");
  if (isArrival) modifiers.take(".noComplete");
  for (const std::string_view order : {".relaxed", ".acquire", ".release", ".acq_rel"}) modifiers.take(order);
  modifiers.takeScope();
  const bool isInCluster = modifiers.take(".shared::cluster");
  const Space space = isInCluster ? Space::kShared : modifiers.takeSpace().value_or(Space::kGeneric);
  if (!modifiers.take(".b64") || (space != Space::kShared && space != Space::kGeneric)) modifiers.refuse();
  modifiers.finish();
  if (!isInit && !isInvalidation && !isArrival && !expects && !completes && !isTest) modifiers.refuse();
  const bool hasResult =
      isTest || (isArrival && node.operands.size() > 1 && node.operands[0].kind != Operand::Kind::kAddress);
  const size_t first = hasResult ? 1 : 0;
  const size_t further = node.operands.size() - std::min(node.operands.size(), first + 1);
  const bool needsArgument = isInit || isTest || expects || completes;
  expectOperands(node, first + (needsArgument ? 2 : 1), first + (isInvalidation ? 1 : isTest ? 3 : 2));
  const Address at = address(node, node.operands[first], space, 8);
  uint32_t argument = kNoOperand;
  uint32_t bytes = kNoOperand;
  if (isTest)
    argument = source(node.operands[2], isByParity ? Type::kU32 : Type::kB64);
  else if (expects || completes)
    bytes = source(node.operands[first + 1], Type::kU32);
  else if (further > 0)
    argument = source(node.operands[first + 1], Type::kU32);
  if (isArrival && argument == kNoOperand) argument = module_.constants.number(1, 32);
  const Op op = isInit           ? Op::kInitialise
                : isInvalidation ? Op::kInvalidate
                : isDrop         ? Op::kArriveAndDrop
                : isArrival      ? Op::kArrive
                : completes      ? Op::kComplete
                : expects        ? Op::kExpect
                : isByParity     ? Op::kTestParity
                                 : Op::kTestState;
  Draft& draft = emitMemoryBarrier(node, op, at, argument, bytes);
  if (!hasResult || node.operands[0].kind == Operand::Kind::kSink) return;
  draft.instruction.op[0] = destination(node.operands[0], isTest ? 1 : 64);
  draft.writes = 1;
}

/// Instructions of clusters, for a block that is a cluster of its own: its rank is 0, and its addresses are its own.
void FunctionDecoder::clusterAddress(Node node) {
  Modifiers modifiers(node);
  modifiers.take(".shared::cluster");
  const Type type = modifiers.expectType();
  modifiers.finish();
  if (type != Type::kU32 && type != Type::kU64) modifiers.refuse();
  if (node.opcode == "mapa") {
    expectOperands(node, 3);
    const uint32_t from = source(node.operands[1], type);
    Draft& draft = emit(node, select_.bit(BitOp::kMove, type));
    draft.instruction.op[0] = destination(node.operands[0], bitsOf(type));
    draft.instruction.op[1] = from;
    draft.writes = 1;
    return;
  }
  expectOperands(node, 2);
  Draft& draft = emit(node, select_.bit(BitOp::kMove, Type::kU32));
  draft.instruction.op[0] = destination(node.operands[0], 32);
  draft.instruction.op[1] = module_.constants.number(0, 32);
  draft.writes = 1;
}

/// A cache policy, which has no effect here.
void FunctionDecoder::cachePolicy(Node node) {
  if (node.operands.empty()) syntaxError(node.line, quoted(node.fullName()) + " needs a destination");
  Draft& draft = emit(node, select_.bit(BitOp::kMove, Type::kU64));
  draft.instruction.op[0] = destination(node.operands[0], 64);
  draft.instruction.op[1] = module_.constants.number(0, 64);
  draft.writes = 1;
}

}  // namespace millpond::softgpu::ptx
