// SPDX-License-Identifier: Apache-2.0
// One call as a line of a trace: `name(parameter=value, …) = RESULT`. The form is fixed by docs/reference/trace.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

struct FunctionInfo;

namespace trace {

/// The known data of a function or kernel; nullptr: none.
using FunctionLookup = const FunctionInfo* (*)(uint64_t handle);

struct TracedCall {
  uint32_t symbol;  ///< in kSymbols
  CUresult result;
  std::span<const uint64_t> words;  ///< the arguments, each as it lies in a register
  bool isBrief = false;             ///< addresses are shown, but not the data there
};

/// Copies what can be read at `from`, up to `bytes`; returns how much. Never faults: if there is no memory, or it may
/// not be read, the result is 0.
size_t readSafely(uint64_t from, void* to, size_t bytes) noexcept;

/// A line that grows up to a fixed length. What does not fit is dropped.
class Line {
 public:
  void put(char c) noexcept {
    if (used_ < limit_)
      text_[used_++] = c;
    else
      full_ = true;
  }
  void put(std::string_view text) noexcept {
    for (const char c : text) put(c);
  }
  void putUnsigned(uint64_t value) noexcept;
  void putSigned(int64_t value) noexcept;
  void putHex(uint64_t value) noexcept;
  void putFloat(double value) noexcept;
  /// Nanoseconds as microseconds with three decimals, at least `width` wide.
  void putMicroseconds(int64_t nanoseconds, size_t width = 0) noexcept;
  /// In double quotes, escaped as in JSON; `isWhole`: the text is complete.
  void putQuoted(std::string_view text, bool isWhole = true) noexcept;
  void putCall(const TracedCall& call, FunctionLookup lookup) noexcept;
  /// Ends the line, for which there is always room, and returns it.
  std::string_view end(std::string_view tail) noexcept;

 private:
  static constexpr size_t kRoom = 1800;   ///< for all but the tail
  static constexpr size_t kResult = 120;  ///< of it, for what follows the arguments
  static constexpr size_t kTail = 200;

  std::array<char, kRoom + kTail> text_;
  size_t used_ = 0;
  size_t limit_ = kRoom - kResult;
  bool full_ = false;
};

}  // namespace trace
}  // namespace millpond::client
