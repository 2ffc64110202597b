// SPDX-License-Identifier: Apache-2.0
// Instructions that compile() puts around those that it checks. They change nothing; lanes whose access the device would
// not make either end here.
#pragma once

#include <cstdint>

#include "softgpu/ptx/instruction.h"
#include "softgpu/ptx/types.h"

namespace millpond::softgpu::ptx {

struct Context;

/// The kind of access; in Instruction::form.
struct CheckForm {
  Space space = Space::kGlobal;
  bool isWide = true;         // addresses of 64 bits
  uint8_t registerBytes = 4;  // of what a store writes
  bool isRead = false;
  bool isWrite = false;
  bool isAtomic = false;  // volatile ones too
  bool acquires = false;
  bool releases = false;

  constexpr uint64_t pack() const {
    return static_cast<uint64_t>(space) | uint64_t{registerBytes} << 8 | uint64_t{isWide} << 16 |
           uint64_t{isRead} << 17 | uint64_t{isWrite} << 18 | uint64_t{isAtomic} << 19 | uint64_t{acquires} << 20 |
           uint64_t{releases} << 21;
  }
  static constexpr CheckForm unpack(uint64_t bits) {
    const auto has = [bits](int bit) { return (bits >> bit & 1) != 0; };
    return {static_cast<Space>(bits & 0xff),
            has(16),
            static_cast<uint8_t>(bits >> 8 & 0xff),
            has(17),
            has(18),
            has(19),
            has(20),
            has(21)};
  }
};

/// Before a load, store or atomic, with its operands, guard, offset and access; op[0] to op[3] only where it stores them.
const Instruction* checkAccess(const Instruction* at, Context& context);
/// Before and after an instruction at which lanes wait for one another; op[5]: the members.
const Instruction* noteWarpArrival(const Instruction* at, Context& context);
const Instruction* noteWarpLeaving(const Instruction* at, Context& context);
/// Before a fence.
const Instruction* noteFence(const Instruction* at, Context& context);
/// Before a barrier at which the program guarantees that the lanes of a warp arrive together, with its first two
/// operands in op[1] and op[2].
const Instruction* noteBarrier(const Instruction* at, Context& context);
/// Before an instruction at which lanes wait for one another; op[5]: the members.
const Instruction* checkMembers(const Instruction* at, Context& context);

}  // namespace millpond::softgpu::ptx
