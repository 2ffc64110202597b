// SPDX-License-Identifier: Apache-2.0
// Virtual registers to places in a frame, so that few places serve many registers and frames stay in the
// cache.
#pragma once

#include <cstdint>

#include "softgpu/ptx/decode/draft.h"

namespace millpond::softgpu::ptx {

struct RegisterLayout {
  uint32_t frameBytes = 0;  // for a warp
  uint32_t registers = 0;   // 32-bit registers of a thread, as a device would count them
};

/// Replaces the virtual registers in all operands and guards by offsets into the frame. A thread's registers share a
/// place if they are never live at the same time. That also holds for diverged lanes, because each writes only its own
/// part of a place.
RegisterLayout assignRegisters(FunctionDraft& draft);

}  // namespace millpond::softgpu::ptx
