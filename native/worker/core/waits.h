// SPDX-License-Identifier: Apache-2.0
// Replies, and actions before them, that are due when events have happened.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "worker/core/session_core.h"

namespace millpond::worker {

class Waits {
 public:
  using Action = std::function<CUresult(CUresult)>;

  explicit Waits(SessionCore& session) : session_(session) {}

  size_t size() const { return all_.size(); }
  bool empty() const { return all_.empty(); }
  /// Replies to the current command when all marks are reached, with the result of `action` for their state; without
  /// `action`, with the state. Returns kDeferred.
  CUresult until(std::vector<Mark> marks, Action action = {});
  /// Same, when the end of a stream is reached (Marks::endOf).
  CUresult until(std::shared_ptr<const Mark> end);
  /// Replies to the current command when an event of the client has happened. Returns kDeferred.
  CUresult until(CUevent event);
  /// Resolves the waits for an event that is about to be destroyed, so that the driver is not queried for it again.
  void endEvent(CUevent event);
  void forgetContext(uint16_t number);
  /// Sends the replies that are due. Returns whether there were any.
  bool progress();

 private:
  struct Wait {
    Request request;
    std::vector<Mark> marks;
    CUevent event = nullptr;  ///< of the client
    std::shared_ptr<const Mark> end;
    Action action;
  };

  SessionCore& session_;
  std::deque<Wait> all_;
};

}  // namespace millpond::worker
