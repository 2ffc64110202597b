// SPDX-License-Identifier: Apache-2.0
// Decoded operands of calls and indexed branches, too many for an instruction.
#pragma once

#include <cstdint>

#include "softgpu/ptx/instruction.h"

namespace millpond::softgpu::ptx {

/// One argument or return value: its position in the caller's frame and in the callee's.
struct CallValue {
  uint32_t callerOffset;
  uint32_t calleeOffset;
  uint32_t bytes;
};

/// A call. Arguments come first in `values`, return values after them.
struct CallSite {
  const CallValue* values;
  uint32_t argumentCount;
  uint32_t returnCount;
};

struct BranchTable {
  const Instruction* const* targets;
  uint32_t count;
};

}  // namespace millpond::softgpu::ptx
