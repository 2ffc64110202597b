// SPDX-License-Identifier: Apache-2.0
// Fault::Kind without the rest of engine.h, for code that must not include standard containers.
#pragma once

#include <cstdint>

namespace millpond::softgpu::ptx {

/// Why a grid failed.
enum class FaultKind : uint8_t {
  kIllegalAddress,     // global or generic access outside the memory map, or a write to const memory
  kMisalignedAddress,  // an address that is no multiple of the access's size
  kSharedOutOfRange,
  kLocalOutOfRange,
  kConstOutOfRange,  // const or param space
  kStackOverflow,
  kIllegalInstruction,  // a call or branch through a bad address, a barrier with bad operands
  kTrap,
  kAssert,    // a failed device-side assert; Fault::detail is its text
  kDeadlock,  // no thread of a block can ever continue (barriers or warp synchronisation that cannot complete)
};

}  // namespace millpond::softgpu::ptx
