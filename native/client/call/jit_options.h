// SPDX-License-Identifier: Apache-2.0
// A program's options for the just-in-time compiler or the linker, and the destinations of their outputs.
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
  uint32_t infoBytes = 0;  ///< in the driver's unit
  uint32_t errorBytes = 0;
  std::string_view info;
  std::string_view error;
};

class JitOptions {
 public:
  /// Stores the program's arrays, which must exist until the last `deliver`. Any result but success is the call's
  /// result.
  CUresult read(unsigned count, const CUjit_option* options, void** values);
  std::span<const JitOptionRecord> records() const { return records_; }
  /// Writes the outputs to the program's destinations.
  void deliver(const JitOutcome& outcome) const;

 private:
  uint32_t sizeOf(CUjit_option sizeOption) const;

  std::vector<JitOptionRecord> records_;
  void** values_ = nullptr;
};

}  // namespace millpond::client
