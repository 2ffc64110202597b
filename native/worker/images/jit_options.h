// SPDX-License-Identifier: Apache-2.0
// Options of the just-in-time compiler and of the linker, with buffers of the worker.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "cuda/jit_option.h"

namespace millpond::worker {

/// The driver keeps the addresses of its arrays during a link, so this does not move.
class JitOptions {
 public:
  JitOptions() = default;
  JitOptions(const JitOptions&) = delete;
  JitOptions& operator=(const JitOptions&) = delete;

  /// Returns false for options that our client never sends.
  bool read(std::span<const std::byte> records);

  unsigned count() const { return static_cast<unsigned>(ids_.size()); }
  CUjit_option* ids() { return ids_.empty() ? nullptr : ids_.data(); }
  void** values() { return values_.empty() ? nullptr : values_.data(); }

  // The outputs, after the driver's call.

  uint32_t threadsPerBlock() const { return number(CU_JIT_THREADS_PER_BLOCK); }
  float wallTimeMs() const;
  uint32_t infoBytes() const { return number(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES); }
  uint32_t errorBytes() const { return number(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES); }
  std::span<const std::byte> info() const { return text(info_); }
  std::span<const std::byte> error() const { return text(error_); }

 private:
  uint32_t number(CUjit_option option) const;
  static std::span<const std::byte> text(const std::vector<char>& log);

  std::vector<CUjit_option> ids_;
  std::vector<void*> values_;
  std::vector<char> info_;
  std::vector<char> error_;
};

}  // namespace millpond::worker
