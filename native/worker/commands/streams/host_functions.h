// SPDX-License-Identifier: Apache-2.0
// Functions of the client, in stream order. The driver reaches one on a thread of its own, which waits until the client
// has run it; the issuing thread passes the messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "worker/commands/copies/landings.h"
#include "worker/commands/graphs/capture_commands.h"
#include "worker/commands/modules/functions.h"
#include "worker/core/callbacks.h"
#include "worker/core/function_order.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

class HostFunctions : private SessionPart {
 public:
  HostFunctions(SessionCore& session, std::shared_ptr<Callbacks> callbacks, Functions& functions, FunctionOrder& order,
                CaptureCommands& captureCommands, Landings& landings)
      : SessionPart(session),
        callbacks_(std::move(callbacks)),
        functions_(functions),
        order_(order),
        captureCommands_(captureCommands),
        landings_(landings) {}

  CUresult onCallbackDone(const cmd::Decoded<cmd::CallbackDone>& command);
  CUresult onCallbackNext(const cmd::Decoded<cmd::CallbackNext>& command);
  CUresult onCallbackSources(const cmd::Decoded<cmd::CallbackSources>& command);
  CUresult onHostFunction(const cmd::Decoded<cmd::HostFunction>& command);

  /// Number of threads of the client that wait for a function to run.
  size_t waiting() const { return waiters_.size(); }
  /// Whether that thread of the client runs functions, by the client's number.
  bool isRunner(uint32_t thread) const { return threads_.contains(thread); }
  /// Runs commands that waited for functions, and passes functions that streams have reached. Returns whether there
  /// Runs commands that waited for functions, and passes on functions that streams have reached. Returns whether there
  /// were any.
  bool progress();
  /// The session is over: threads of the driver no longer wait.
  void close() { callbacks_->close(); }

 private:
  CUresult issue(const Stream& stream, const Callback& callback);

  const std::shared_ptr<Callbacks> callbacks_;
  Functions& functions_;
  FunctionOrder& order_;
  CaptureCommands& captureCommands_;
  Landings& landings_;
  std::deque<Request> waiters_;                                       ///< threads of the client that run functions
  std::unordered_set<uint32_t> threads_;                              ///< the same, by number
  std::unordered_map<uint64_t, std::vector<graph::Source>> sources_;  ///< function → arguments longer than a page
};

}  // namespace millpond::worker
