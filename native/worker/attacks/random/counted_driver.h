// SPDX-License-Identifier: Apache-2.0
// Counts the driver objects of several processes. The processes change the counts under a common lock, so that their sum is exact
// at any moment.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "worker/device/driver.h"

namespace millpond::worker {

inline constexpr size_t kMostProcesses = 16;
inline constexpr size_t kMostHandles = 64;

enum class Counted : uint8_t { kContext, kStream, kEvent };
inline constexpr size_t kCounted = 3;

/// Lies in a file that the processes map.
struct Board {
  struct Place {
    int32_t pid;
    std::atomic<int64_t> aliveAt;  ///< when it last began or ended something, on the monotonic clock
    std::atomic<uint32_t> session;
    std::atomic<uint64_t> sessions, commands, replies, ended, refused, checks;
    std::array<uint64_t, kCounted> has;
  };

  pthread_mutex_t mutex;
  std::array<uint64_t, kCounted> most;  ///< the highest sum over all processes so far
  std::array<Place, kMostProcesses> places;
  /// Handles of objects that one session shares and others may open.
  std::array<std::array<std::byte, 64>, kMostHandles> handles;
  std::atomic<uint32_t> handlesUsed;

  static Board& at(const std::string& path);
};

/// Gives this process a place of the board and returns `plain` with its contexts, streams and events counted there.
Driver counted(const Driver& plain, Board& board, size_t place);
/// Called after a reset of the driver.
void recount();

}  // namespace millpond::worker
