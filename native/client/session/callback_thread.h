// SPDX-License-Identifier: Apache-2.0
// The threads that run the program's functions when a stream reaches them: one for each device, started at its first
// use, so that the functions of a device's contexts run one after another.
#pragma once

#include <cstdint>

#include "cuda/gen/cuda_api.h"

namespace millpond {
class Session;
}

namespace millpond::client {

class CallbackThread {
 public:
  /// Makes the thread of that context's device wait for `count` more callbacks. To be called before the command that
  /// causes them. CUDA_ERROR_OUT_OF_MEMORY if the thread cannot be created.
  static CUresult expect(Session& session, uint16_t context, uint32_t count) noexcept;
  /// Whether callbacks of that context's device are still pending.
  static bool busy(uint16_t context) noexcept;
};

}  // namespace millpond::client
