// SPDX-License-Identifier: Apache-2.0
// Answers, and actions before them, that are due when events have happened.
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
  /// Answers the current command when all marks are reached, with what `action` makes of their state; without one, with
  /// the state. Returns kDeferred.
  CUresult until(std::vector<Mark> marks, Action action = {});
  /// As that, when the end of a stream is reached (Marks::endOf).
  CUresult until(std::shared_ptr<const Mark> end);
  /// Answers the current command when an event of the client has happened. Returns kDeferred.
  CUresult until(CUevent event);
  /// An event of the client is about to be destroyed: what waits for it is answered, so that the driver is not asked
  /// about it again.
  void endEvent(CUevent event);
  void forgetContext(uint16_t number);
  /// Answers what is due. Whether anything was.
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
