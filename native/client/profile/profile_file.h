// SPDX-License-Identifier: Apache-2.0
// The activity of the devices for this process, as reported by its worker, in a file named by MILLPOND_PROFILE. Format:
// docs/reference/profile.md.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "base/unique_fd.h"
#include "client/profile/worker_profile.h"

namespace millpond::client {

class ProfileFile {
 public:
  /// If MILLPOND_PROFILE is set: makes the worker record the activity of its devices, and a thread write it. The
  /// session must stay. An obstacle is logged, and the program runs without a profile. `flushCalls` is called by that
  /// thread: it writes the program's delayed calls.
  static void begin(Session& session, void (*flushCalls)());
  /// Whether there is one, which receives everything that the worker records.
  static bool isWritten();
  /// Writes the records that are complete.
  static void finish();
  /// In a forked child: the file and the session belong to the parent.
  static void abandon();

 private:
  ProfileFile(Session& session, UniqueFd file, void (*flushCalls)())
      : worker_(session), file_(std::move(file)), flushCalls_(flushCalls) {}
  static void* writeNowAndThen(void* self);
  /// False: no more will follow.
  bool write(bool flush);

  WorkerProfile worker_;
  UniqueFd file_;
  void (*flushCalls_)();
  std::mutex mutex_;
  uint64_t lost_ = 0;
  bool isOver_ = false;
};

}  // namespace millpond::client
