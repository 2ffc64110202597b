// SPDX-License-Identifier: Apache-2.0
// The lock of a table in memory that a compromised worker can write. A robust mutex of the C library does not serve: it
// keeps a list of pointers in the shared memory and writes through them. This lock is one word that names its owner; whether
// the owner lives is known from a lock on a file, which the kernel releases when the process ends and which no other process
// can release. A process that never lets go costs the others a bounded time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace millpond::worker::gate {

class GateLock {
 public:
  /// Longest wait for the lock, in nanoseconds. After it the owner is taken for hostile, and the waiting session leaves the table.
  static constexpr int64_t kPatienceNs = 5'000'000'000;

  /// `path`: of the file in which owners show that they live; made where it is missing.
  static Result<GateLock> open(const std::string& path, int64_t patienceNs = kPatienceNs);

  /// By which others know this owner; not 0.
  uint32_t id() const { return id_; }
  /// Whether an owner of that number is there.
  bool isAlive(uint32_t id) const;

  /// False: the lock cannot be had. That of an owner that has ended is taken over.
  bool lock(std::atomic<uint32_t>& word);
  void unlock(std::atomic<uint32_t>& word);

 private:
  GateLock(UniqueFd file, uint32_t id, int64_t patienceNs) : file_(std::move(file)), id_(id), patienceNs_(patienceNs) {}
  bool wait(std::atomic<uint32_t>& word);

  UniqueFd file_;
  uint32_t id_;
  int64_t patienceNs_;
  int64_t waitedNs_ = 0;  ///< of late: it is forgotten at half the speed of time
  int64_t waitedAt_ = 0;
};

}  // namespace millpond::worker::gate
