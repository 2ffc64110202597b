// SPDX-License-Identifier: Apache-2.0
// The activity of the devices for this process, for profilers in it: what libcupti.so of Millpond gets it from
// (native/cuda/activity_table.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "client/profile/worker_profile.h"
#include "cuda/gen/cuda_api.h"

namespace millpond::client {

class ActivityFeed {
 public:
  /// One for the process, never destroyed.
  static ActivityFeed& instance();

  /// Makes the worker record activities, now or when there is a session.
  CUresult begin();
  void end();
  using Each = void (*)(void* to, const char* lines, size_t bytes);
  CUresult read(Each each, void* to, int64_t& lead, uint64_t& lost);

  /// The process has its session, which stays.
  void sessionOpened(Session& session);
  /// In a forked child: the session belongs to the parent, and a thread of the parent may have been using this object.
  static void abandon();

 private:
  ActivityFeed() = default;
  CUresult start();

  std::mutex mutex_;
  std::unique_ptr<WorkerProfile> worker_;  ///< null: there is no session
  bool isWanted_ = false;
  bool isOn_ = false;
  bool hasBegun_ = false;  ///< since the start: there may be lines
};

}  // namespace millpond::client
