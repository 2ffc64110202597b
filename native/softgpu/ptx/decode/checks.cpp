// SPDX-License-Identifier: Apache-2.0
// Instructions of our own around those of a program that is to be checked; without checks there are none.
#include <algorithm>

#include "softgpu/ptx/decode/function_decoder.h"

namespace millpond::softgpu::ptx {
namespace {

constexpr uint32_t kAddressOperand = 4;
constexpr uint32_t kMembersOperand = 5;

}  // namespace

void FunctionDecoder::checkMemory(Node node, const Address& address, CheckForm form, uint32_t elementBytes,
                                  uint32_t count, const uint32_t* stored) {
  // Accesses at fixed places of the frame or of the parameters were checked when the program was loaded.
  if (!module_.checks.accesses() || address.isKernelParameter || address.operand == kNoOperand) return;
  form.space = address.space;
  form.isWide = address.width == 64;
  Draft& draft = emit(node, &checkAccess);
  if (stored) std::copy(stored, stored + count, draft.instruction.op);
  draft.instruction.op[kAddressOperand] = address.operand;
  draft.instruction.immediate = address.offset;
  draft.instruction.access = {static_cast<uint8_t>(elementBytes), static_cast<uint8_t>(count),
                              static_cast<uint8_t>(address.space == Space::kConst ? kIsConstAccess : 0)};
  draft.instruction.form = form.pack();
}

void FunctionDecoder::checkBarrier(Node node, uint32_t id, uint32_t threads) {
  if (!module_.checks.barriers) return;
  Draft& draft = emitUnguarded(node, &noteBarrier);
  draft.instruction.op[1] = id;
  draft.instruction.op[2] = threads;
}

Draft& FunctionDecoder::emitCollective(Node node, Handler handler, uint32_t members) {
  if (module_.checks.barriers) emitUnguarded(node, &checkMembers).instruction.op[kMembersOperand] = members;
  if (!module_.checks.races) {
    Draft& draft = emitUnguarded(node, handler);
    draft.instruction.op[kMembersOperand] = members;
    return draft;
  }
  // The instruction may write to the register that holds the members.
  const uint32_t kept = temporary(32);
  Draft& copy = emitUnguarded(node, select_.bit(BitOp::kMove, Type::kB32));
  copy.instruction.op[0] = kept;
  copy.instruction.op[1] = members;
  copy.writes = 1;
  emitUnguarded(node, &noteWarpArrival);
  emitUnguarded(node, handler).instruction.op[kMembersOperand] = kept;
  emitUnguarded(node, &noteWarpLeaving).instruction.op[kMembersOperand] = kept;
  return draft_.code[draft_.code.size() - 2];
}

}  // namespace millpond::softgpu::ptx
