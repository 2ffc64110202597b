// SPDX-License-Identifier: Apache-2.0
// Functions of the client that streams have not reached yet, and commands that must not run before these have returned.
// The issuing thread receives the return of such a function, so it must not wait in the driver for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "worker/core/session_core.h"

namespace millpond::worker {

class FunctionOrder {
 public:
  using Command = std::function<CUresult()>;

  explicit FunctionOrder(SessionCore& session) : session_(session) {}

  /// Functions that were issued and may not be done.
  uint64_t expected() const { return expected_; }
  void expect(uint64_t functions) { expected_ += functions; }
  void done() {
    if (expected_ > 0) --expected_;
  }
  /// A context has failed: only those of its functions that are running still return.
  void expectAtMost(uint64_t functions) { expected_ = std::min(expected_, functions); }

  /// Commands that wait for the functions.
  size_t waiting() const { return after_.size(); }
  /// Runs an operation that may wait for the device: immediately, or when no function of the client is expected any
  /// more.
  CUresult run(Command command) {
    if (expected_ == 0) return command();
    return runLater(session_.current(), std::move(command));
  }
  /// Runs it when no function is expected, and then replies to the request. Returns kDeferred.
  CUresult runLater(const Request& request, Command command) {
    after_.emplace_back(request, std::move(command));
    return kDeferred;
  }
  /// The context of the next waiting command; 0: none.
  uint16_t nextContext() const { return after_.empty() ? uint16_t{0} : after_.front().first.context; }
  /// Runs the operations that are due. Returns whether any was.
  bool progress() {
    bool some = false;
    while (expected_ == 0 && !after_.empty() && !session_.hasEnded()) {
      const auto [request, command] = std::move(after_.front());
      after_.pop_front();
      some = true;
      if (request.context) session_.contexts().use(request.context);
      session_.resume(request);
      if (const CUresult result = command(); result != kDeferred) session_.answer(request, result);
    }
    return some;
  }

 private:
  SessionCore& session_;
  uint64_t expected_ = 0;
  std::deque<std::pair<Request, Command>> after_;
};

}  // namespace millpond::worker
