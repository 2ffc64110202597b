// SPDX-License-Identifier: Apache-2.0
// The handlers of one instruction set of the host. Every selector returns null for a combination that PTX
// does not have.
#pragma once

#include "softgpu/ptx/matrix.h"
#include "softgpu/ptx/operations.h"
#include "softgpu/ptx/run/context.h"

namespace millpond::softgpu::ptx {

struct Selectors {
  Handler (*integer)(IntegerOp, Type);
  Handler (*dot)(DotOp, bool isSignedA, bool isSignedB);
  Handler (*carry)(CarryOp, Type, CarryModes);
  Handler (*video)(bool isScalar);
  Handler (*bit)(BitOp, Type);
  Handler (*predicate)(PredicateOp);
  Handler (*floating)(FloatOp, Type, FloatModes);
  Handler (*test)(TestOp, Type);
  Handler (*compare)(CompareOp, Type, bool flush);
  Handler (*selectBySign)(Type data, Type condition, bool flush);
  Handler (*convert)(Type to, Type from, ConvertModes);
  Handler (*packConvert)(Type to, ConvertModes);
  /// From f32; the result is in a 32-bit register whose low 13 bits are zero.
  Handler (*tf32Convert)(ConvertModes);
  /// From registers of `fromBits` to registers of `toBits`, extending the low part that is a `type`.
  Handler (*extend)(Type type, uint32_t toBits, uint32_t fromBits);
  /// Space::kParam stands for memory at a fixed place of the current frame: no address operand.
  Handler (*load)(Space, uint32_t addressBits);
  Handler (*store)(Space, uint32_t addressBits);
  /// Elements of `type` to and from registers of `registerBits`, `count` at a time.
  Mover (*loadMover)(Type type, uint32_t registerBits, uint32_t count, bool isAtomic);
  Mover (*storeMover)(Type type, uint32_t registerBits, uint32_t count, bool isAtomic);
  /// Instruction::locate of an atomic.
  Locator (*locator)(Space, uint32_t addressBits);
  /// `isShared`: of memory that only one block sees.
  Handler (*atomic)(AtomicOp, Type, bool isShared);
  Handler (*shuffle)(ShuffleOp);
  Handler (*vote)(VoteOp);
  Handler (*reduce)(ReduceOp, Type);
  Handler (*match)(bool isAll, uint32_t bits);
  Handler (*barrier)(BarrierKind);
  Handler (*control)(ControlOp);
  /// Moves between one register of `bits` and `count` registers that make it up.
  Handler (*pack)(uint32_t bits, uint32_t count);
  Handler (*unpack)(uint32_t bits, uint32_t count);
  /// `type`: of the factors of a product.
  Handler (*matrix)(MatrixOp, MatrixType type);
  Handler (*copy)();
  Handler (*memoryBarrier)(MemoryBarrierOp);
};

/// The best handlers that this host can execute. The environment variable MILLPOND_SOFTGPU_ISA=baseline requests those
/// that every host can execute.
const Selectors& selectors();

}  // namespace millpond::softgpu::ptx

#ifdef MILLPOND_EXEC
namespace millpond::softgpu::ptx::MILLPOND_EXEC {
Handler selectInteger(IntegerOp, Type);
Handler selectDot(DotOp, bool isSignedA, bool isSignedB);
Handler selectCarry(CarryOp, Type, CarryModes);
Handler selectVideo(bool isScalar);
Handler selectBit(BitOp, Type);
Handler selectPredicate(PredicateOp);
Handler selectFloating(FloatOp, Type, FloatModes);
Handler selectRounded(FloatOp, Type, FloatModes);  // every rounding mode except to nearest even
Handler selectHalf(FloatOp, Type, FloatModes);
Handler selectTest(TestOp, Type);
Handler selectCompare(CompareOp, Type, bool flush);
Handler selectBySign(Type data, Type condition, bool flush);
Handler selectConvert(Type to, Type from, ConvertModes);
Handler selectRoundedConvert(Type to, Type from, ConvertModes);
Handler selectPackConvert(Type to, ConvertModes);
Handler selectTf32Convert(ConvertModes);
Handler selectExtend(Type, uint32_t toBits, uint32_t fromBits);
Handler selectLoad(Space, uint32_t addressBits);
Handler selectStore(Space, uint32_t addressBits);
Mover selectLoadMover(Type, uint32_t registerBits, uint32_t count, bool isAtomic);
Mover selectStoreMover(Type, uint32_t registerBits, uint32_t count, bool isAtomic);
Locator selectLocator(Space, uint32_t addressBits);
Handler selectAtomic(AtomicOp, Type, bool isShared);
Handler selectShuffle(ShuffleOp);
Handler selectVote(VoteOp);
Handler selectReduce(ReduceOp, Type);
Handler selectMatch(bool isAll, uint32_t bits);
Handler selectBarrier(BarrierKind);
Handler selectCollective(ControlOp);
Handler selectControl(ControlOp);
Handler selectPack(uint32_t bits, uint32_t count);
Handler selectUnpack(uint32_t bits, uint32_t count);
Handler selectMatrix(MatrixOp, MatrixType);
Handler selectCopy();
Handler selectMemoryBarrier(MemoryBarrierOp);
}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
#endif
