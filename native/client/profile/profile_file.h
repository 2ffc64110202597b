// SPDX-License-Identifier: Apache-2.0
// What the devices did for this process, as its worker tells it, in a file: MILLPOND_PROFILE names it.
// Its form: docs/reference/profile.md.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "base/unique_fd.h"

namespace millpond {
class Session;
}

namespace millpond::client {

class ProfileFile {
 public:
  /// Where MILLPOND_PROFILE is set: has the worker note from here on what its devices do, and a thread write it down. The
  /// session must stay. An obstacle is logged, and the program runs without a profile. `flushCalls` is called by that
  /// thread: it writes the calls of the program that are kept back.
  static void begin(Session& session, void (*flushCalls)());
  /// Writes what is complete by now.
  static void finish();
  /// In a forked child: the file, and the session, are the parent's.
  static void abandon();

 private:
  ProfileFile(Session& session, UniqueFd file, void (*flushCalls)())
      : session_(session), file_(std::move(file)), flushCalls_(flushCalls) {}
  static void* writeNowAndThen(void* self);
  /// False: there will be no more.
  bool write(bool flush);

  Session& session_;
  UniqueFd file_;
  void (*flushCalls_)();
  std::mutex mutex_;
  uint64_t lost_ = 0;
  bool isOver_ = false;
};

}  // namespace millpond::client
