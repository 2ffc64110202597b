// SPDX-License-Identifier: Apache-2.0
// Output of kernels and the driver. The driver writes it to the standard output and error of its process, the worker.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/wire.h"

namespace millpond::worker {

/// Replaces this process's standard output and error for the rest of its life. The worker's own messages still go to
/// the original standard error, and so does unread output when the process aborts.
class DeviceOutput {
 public:
  static Result<DeviceOutput> capture();
  using Take = std::function<bool(std::span<const std::byte>)>;
  /// Passes on the output since the last call, in pieces of at most `kPiece` bytes; stops when `take` returns false.
  void collect(wire::OutputStream stream, const Take& take);

  static constexpr size_t kPiece = size_t{16} << 10;

 private:
  struct File {
    UniqueFd file;
    off_t taken = 0;
  };

  File output_, error_;
};

}  // namespace millpond::worker
