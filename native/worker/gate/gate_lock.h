// SPDX-License-Identifier: Apache-2.0
// The lock of a table in memory that a compromised worker can write. A robust mutex of the C library is unsuitable: it
// keeps a list of pointers in the shared memory and writes through them. This lock is one word that names its owner. A
// lock on a file shows whether the owner lives: the kernel releases it when the process ends, and no other process can.
// A process that never releases the lock delays the others only for a bounded time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace millpond::worker::gate {

class GateLock {
 public:
  /// Longest wait for the lock, in nanoseconds. After it the owner is considered hostile, and the waiting session
  /// abandons the table.
  static constexpr int64_t kPatienceNs = 5'000'000'000;

  /// `path`: of the file whose locks show that owners live; created if it is missing.
  static Result<GateLock> open(const std::string& path, int64_t patienceNs = kPatienceNs);

  /// Identifies this owner to others; not 0.
  uint32_t id() const { return id_; }
  /// Whether an owner of that number exists.
  bool isAlive(uint32_t id) const;

  /// Returns false if the lock cannot be acquired. The lock of an owner that has ended is taken over.
  bool lock(std::atomic<uint32_t>& word);
  void unlock(std::atomic<uint32_t>& word);

 private:
  GateLock(UniqueFd file, uint32_t id, int64_t patienceNs) : file_(std::move(file)), id_(id), patienceNs_(patienceNs) {}
  bool wait(std::atomic<uint32_t>& word);

  UniqueFd file_;
  uint32_t id_;
  int64_t patienceNs_;
  int64_t waitedNs_ = 0;  ///< recently: decays at half the speed of time
  int64_t waitedAt_ = 0;
};

}  // namespace millpond::worker::gate
