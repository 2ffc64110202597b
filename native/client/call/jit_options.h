// SPDX-License-Identifier: Apache-2.0
// What a program asks of the just-in-time compiler or the linker, and where it wants to read the outcome.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "cuda/jit_option.h"

namespace millpond::client {

/// The outputs of one call.
struct JitOutcome {
  uint32_t threadsPerBlock = 0;
  float wallTimeMs = 0;
  uint32_t infoBytes = 0;  ///< as the driver counts them
  uint32_t errorBytes = 0;
  std::string_view info;
  std::string_view error;
};

class JitOptions {
 public:
  /// Keeps the program's arrays: they must live until the last `deliver`. Anything but success is the call's result.
  CUresult read(unsigned count, const CUjit_option* options, void** values);
  std::span<const JitOptionRecord> records() const { return records_; }
  /// Writes the outputs to where the program wants them.
  void deliver(const JitOutcome& outcome) const;

 private:
  uint32_t sizeOf(CUjit_option sizeOption) const;

  std::vector<JitOptionRecord> records_;
  void** values_ = nullptr;
};

}  // namespace millpond::client
