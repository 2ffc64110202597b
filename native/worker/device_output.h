// SPDX-License-Identifier: Apache-2.0
// What kernels print. The driver writes it to the standard output of its process, which is the worker's.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace millpond::worker {

/// Takes the place of this process's standard output for as long as the process lives.
class DeviceOutput {
 public:
  static Result<DeviceOutput> capture();
  /// Hands on what was written since the last time, in pieces of at most `kPiece` bytes; stops when `take` is false.
  void collect(const std::function<bool(std::span<const std::byte>)>& take);

  static constexpr size_t kPiece = size_t{16} << 10;

 private:
  explicit DeviceOutput(UniqueFd file) : file_(std::move(file)) {}

  UniqueFd file_;
  off_t taken_ = 0;
};

}  // namespace millpond::worker
