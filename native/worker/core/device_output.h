// SPDX-License-Identifier: Apache-2.0
// What kernels and the driver say. The driver writes it to the standard output and error of its process, which is the
// worker's.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/wire.h"

namespace millpond::worker {

/// Takes the place of this process's standard output and error for as long as the process lives. The worker's own messages
/// go where standard error went before, and so does what nobody has taken when the process aborts.
class DeviceOutput {
 public:
  static Result<DeviceOutput> capture();
  using Take = std::function<bool(std::span<const std::byte>)>;
  /// Hands on what was written since the last time, in pieces of at most `kPiece` bytes; stops when `take` is false.
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
