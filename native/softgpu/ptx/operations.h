// SPDX-License-Identifier: Apache-2.0
// The operations of instructions, as passed from the decoder to the executor: an operation, types and modifiers select
// a handler.
#pragma once

#include <cstdint>

#include "softgpu/ptx/instruction.h"
#include "softgpu/ptx/types.h"

namespace millpond::softgpu::ptx {

enum class IntegerOp : uint8_t {
  kAdd,
  kSub,
  kAddSat,
  kSubSat,
  kMulLo,
  kMulHi,
  kMulWide,
  kMadLo,
  kMadHi,
  kMadHiSat,
  kMadWide,
  kMul24Lo,
  kMul24Hi,
  kMad24Lo,
  kMad24Hi,
  kMad24HiSat,
  kSad,
  kDiv,
  kRem,
  kAbs,
  kNeg,
  kMin,
  kMax,
};

/// Operations on bit patterns; the type determines the width (and sign, for shr, bfe, bfind).
enum class BitOp : uint8_t {
  kMove,
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kShl,
  kShr,
  kPopc,
  kClz,
  kBfind,
  kBfindShift,
  kBrev,
  kBfe,
  kBfi,
  kFns,
  kLop3,  // immediate: truth table
  kShfLeftClamp,
  kShfLeftWrap,
  kShfRightClamp,
  kShfRightWrap,
  kPrmt,
  kPrmtF4e,
  kPrmtB4e,
  kPrmtRc8,
  kPrmtEcl,
  kPrmtEcr,
  kPrmtRc16,
  kBmskClamp,
  kBmskWrap,
  kSzextClamp,
  kSzextWrap,
  kSelect,
};

/// Dot products of bytes; the signs of a and b. kDot2: 16-bit by 8-bit.
enum class DotOp : uint8_t { kDot4, kDot2Lo, kDot2Hi };

/// Arithmetic on the parts of words; all modifiers are in Instruction::immediate.
enum class VideoOp : uint8_t {
  kAdd,
  kSubtract,
  kAverage,
  kDifference,
  kMinimum,
  kMaximum,
  kCompare,
  kShiftLeft,  // this and the following: on single values only
  kShiftRight,
  kMultiplyAdd,
};
/// The orders in which parts are compared.
enum class Order : uint8_t { kEqual, kUnequal, kLess, kLessEqual, kGreater, kGreaterEqual };
struct VideoForm {
  VideoOp op = VideoOp::kAdd;
  bool isHalves = false;  // of 16 bits; else bytes
  bool isSignedA = false;
  bool isSignedB = false;
  bool isSignedResult = false;
  bool saturates = false;
  bool sums = false;  // the result is c plus the sum of the parts
  Order order = Order::kEqual;

  constexpr int64_t pack() const {
    return static_cast<int64_t>(op) | isHalves << 8 | isSignedA << 9 | isSignedB << 10 | isSignedResult << 11 |
           saturates << 12 | sums << 13 | static_cast<int64_t>(order) << 14;
  }
  static constexpr VideoForm unpack(int64_t bits) {
    auto has = [bits](int bit) { return (bits >> bit & 1) != 0; };
    return {static_cast<VideoOp>(bits & 0xff), has(8), has(9), has(10), has(11), has(12), has(13),
            static_cast<Order>(bits >> 14 & 7)};
  }
};

/// The part of a word that an operand of the scalar instructions is.
enum class VideoPart : uint8_t { kWord, kByte0, kByte1, kByte2, kByte3, kHalf0, kHalf1 };
/// The second operation, on the result and c.
enum class VideoSecond : uint8_t { kNone, kAdd, kMinimum, kMaximum };
struct ScalarVideoForm {
  VideoForm first;
  VideoPart result = VideoPart::kWord;  // else it replaces that part of c
  VideoPart a = VideoPart::kWord;
  VideoPart b = VideoPart::kWord;
  VideoSecond second = VideoSecond::kNone;
  bool wraps = false;    // of shifts: the amount is taken modulo 32; otherwise it is limited to 32
  bool plusOne = false;  // kMultiplyAdd
  uint8_t scale = 0;     // kMultiplyAdd: the number of bits by which the result is shifted right
  bool negatesProduct = false;
  bool negatesThird = false;

  constexpr int64_t pack() const {
    return first.pack() | static_cast<int64_t>(result) << 20 | static_cast<int64_t>(a) << 23 |
           static_cast<int64_t>(b) << 26 | static_cast<int64_t>(second) << 29 | int64_t{wraps} << 31 |
           int64_t{plusOne} << 32 | int64_t{scale} << 33 | int64_t{negatesProduct} << 37 | int64_t{negatesThird} << 38;
  }
  static constexpr ScalarVideoForm unpack(int64_t bits) {
    auto field = [bits](int at, int64_t mask) { return static_cast<uint8_t>(bits >> at & mask); };
    return {VideoForm::unpack(bits),
            static_cast<VideoPart>(field(20, 7)),
            static_cast<VideoPart>(field(23, 7)),
            static_cast<VideoPart>(field(26, 7)),
            static_cast<VideoSecond>(field(29, 3)),
            field(31, 1) != 0,
            field(32, 1) != 0,
            field(33, 15),
            field(37, 1) != 0,
            field(38, 1) != 0};
  }
};

enum class CarryOp : uint8_t { kAdd, kSub, kMadLo, kMadHi };
struct CarryModes {
  bool readsCarry = false;
  bool writesCarry = false;
};

enum class Rounding : uint8_t { kNearestEven, kZero, kDown, kUp, kNearestAway };
/// In the immediate of an instruction that rounds: these bits hold its Rounding, and these encode .sat, .ftz and .relu.
inline constexpr int64_t kRoundingBits = 7;
inline constexpr int64_t kSaturateFlag = 8;
inline constexpr int64_t kFlushFlag = 16;
inline constexpr int64_t kReluFlag = 32;

enum class FloatOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kFma,
  kDiv,
  kAbs,
  kNeg,
  kMin,
  kMax,
  kMinNan,
  kMaxNan,
  kMinXorsign,
  kMaxXorsign,
  kMinXorsignNan,
  kMaxXorsignNan,
  kRcp,
  kSqrt,
  kDivApprox,
  kRcpApprox,
  kRsqrtApprox,
  kSinApprox,
  kCosApprox,
  kLg2Approx,
  kEx2Approx,
  kTanhApprox,
  kRcpApproxHigh,
  kRsqrtApproxHigh,
  kCopysign,
  kFmaRelu,
};
struct FloatModes {
  Rounding rounding = Rounding::kNearestEven;
  bool flush = false;     // .ftz
  bool saturate = false;  // .sat
};

enum class TestOp : uint8_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };

enum class CompareOp : uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan,
};
/// How setp and set combine the comparison with a predicate operand; in Instruction::immediate.
enum class Combine : uint8_t { kNone, kAnd, kOr, kXor };

enum class PredicateOp : uint8_t { kMove, kAnd, kOr, kXor, kNot };

struct ConvertModes {
  Rounding rounding = Rounding::kNearestEven;
  bool toInteger = false;  // float to float of one size: .rni, .rzi, .rmi, .rpi
  bool flush = false;
  bool saturate = false;
  bool relu = false;
};

enum class AtomicOp : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor, kExchange, kCas, kIncrement, kDecrement };

/// Barriers in memory: mbarrier.
enum class MemoryBarrierOp : uint8_t {
  kInitialise,
  kInvalidate,
  kArrive,
  kArriveAndDrop,
  kExpect,
  kComplete,
  kTestState,
  kTestParity,
  kPending,
};
/// Operand with the address to which a copy writes; the one from which it reads is where loads have theirs.
inline constexpr uint32_t kCopyTarget = 5;
/// State spaces and widths of a copy's addresses; in Instruction::immediate.
struct CopyForm {
  Space from = Space::kGlobal;
  Space to = Space::kShared;
  bool isFromWide = true;
  bool isToWide = true;

  constexpr int64_t pack() const {
    return static_cast<int64_t>(from) | static_cast<int64_t>(to) << 8 | int64_t{isFromWide} << 16 |
           int64_t{isToWide} << 17;
  }
  static constexpr CopyForm unpack(int64_t bits) {
    return {static_cast<Space>(bits & 0xff), static_cast<Space>(bits >> 8 & 0xff), (bits >> 16 & 1) != 0,
            (bits >> 17 & 1) != 0};
  }
};

enum class ShuffleOp : uint8_t { kUp, kDown, kButterfly, kIndex };
enum class VoteOp : uint8_t { kAll, kAny, kUniform, kBallot };
enum class ReduceOp : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor };

enum class ControlOp : uint8_t {
  kBranch,
  kBranchBackward,
  kJump,
  kJumpBackward,
  kBranchTable,
  kJoin,
  kCall,
  kCallIndirect,
  kCallBuiltin,
  kReturn,
  kExit,
  kTrap,
  kPause,
  kWarpBarrier,
  kFence,
  kNothing,
  kActiveMask,
  kElect,
  kSpecial32,
  kSpecial64,
  kLocalAddress32,
  kLocalAddress64,
  kAllocate32,
  kAllocate64,
  kStackSave32,
  kStackSave64,
  kStackRestore32,
  kStackRestore64,
  kIsSpace,
  kToGeneric,
  kFromGeneric,
  kLoadParameter,
};

/// Instruction::access::flags of loads, stores and atomics.
enum AccessFlag : uint8_t {
  kIsAtomicAccess = 1,  // volatile, relaxed, acquire, release
  kIsConstAccess = 2,   // faults are of const space
};

/// Special registers that one handler serves; Instruction::immediate.
enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kWarpId,
  kNwarpId,
  kSmId,
  kNsmId,
  kGridId,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kClock,
  kClockHi,
  kClock64,
  kGlobalTimer,
  kGlobalTimerLo,
  kGlobalTimerHi,
  kDynamicSharedBytes,
  kTotalSharedBytes,
  kDynamicSharedStart,
  kParameterStart,
  kZero,
  kOne,
  kEnvironment,  // kEnvironment + n: %envreg<n>, n < 32
};

}  // namespace millpond::softgpu::ptx
