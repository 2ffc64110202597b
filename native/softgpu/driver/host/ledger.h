// SPDX-License-Identifier: Apache-2.0
// How much memory of one device each process of this machine uses. A software device lives in every process
// that loads the driver; the ledger is what makes those processes share one device.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace millpond::softgpu {

/// A file with one entry per process: its identity (process ID and start time) and its bytes. Changes are made under a
/// lock on the file that ends with its holder; each change is a single write of one entry. So a process may die at any
/// moment: its entry is reclaimed by the next process that reads the file.
class Ledger {
 public:
  /// Opens or creates `path`, whose directory must exist.
  static Result<std::unique_ptr<Ledger>> open(const std::string& path);
  /// Over a file that is open for reading and writing; `path` is for messages.
  Ledger(UniqueFd file, std::string path);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Adds `bytes` to this process's use unless the use of all processes would exceed `capacity`.
  bool charge(uint64_t bytes, uint64_t capacity);
  /// Subtracts `bytes` from this process's use.
  void release(uint64_t bytes);
  /// The use of all living processes, in bytes.
  uint64_t used();

 private:
  struct Entry;
  class Locked;

  std::mutex mutex_;
  UniqueFd file_;
  const std::string path_;
  const int pid_;
  const uint64_t startTime_;
  uint64_t own_ = 0;            // bytes of this process
  uint64_t slot_ = UINT64_MAX;  // index of this process's entry; none before the first charge
};

/// The time at which a process started, in ticks since boot; 0: there is no such process, or it is a zombie.
uint64_t processStartTime(int pid);

}  // namespace millpond::softgpu
