// SPDX-License-Identifier: Apache-2.0
// Fetches the view of the claim: its controller names the agent, and the agent describes the claim.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "client/attach/attach_config.h"
#include "client/attach/connect_call.h"
#include "nvml/view.h"

namespace millpond::nvml {

/// An error that the program receives instead of an answer.
struct Failure {
  Return code;
  std::string message;  ///< complete for a reader, with its code
};

struct Found {
  std::shared_ptr<const View> view;
  std::optional<Failure> failure;
};

/// Fetches the view of one claim. Opens no session, renews no lease and wakes no parked session. Not
/// thread-safe.
class Source {
 public:
  explicit Source(client::AttachConfig config) : config_(std::move(config)), controllers_(config_) {}
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  Found ask();
  /// For a child process, which continues with the same claim but with its own connections.
  const client::AttachConfig& config() const { return config_; }

 private:
  struct Pass {
    std::string claim;
    std::string ticket;
    client::Url agent;
    int64_t untilMs;
  };

  Found askController(const std::string& claim);
  Found askAgent();

  const client::AttachConfig config_;
  client::Controllers controllers_;
  std::optional<Pass> pass_;
};

/// On the monotonic clock.
int64_t monotonicMs();

}  // namespace millpond::nvml
