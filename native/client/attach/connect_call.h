// SPDX-License-Identifier: Apache-2.0
// Calls of the Connect services of controllers and agents.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "client/attach/attach_config.h"
#include "client/attach/http.h"

namespace millpond::client {

/// The reason of a failed call, and whether a retry may succeed.
struct CallFailure {
  std::string message;  ///< complete for a reader, with its code
  bool passing = false;
};

struct CallResult {
  Json answer;
  std::optional<CallFailure> failure;
};

/// The server to call, and the credentials.
struct Callee {
  const Url& base;
  std::string name;  ///< for messages: "the controller"
  const std::string& token;
  const HttpTrust& trust;
};

/// Describes why there is no response, and the remedy.
CallFailure explainFailure(const Callee& callee, const HttpFailure& failure);

/// Makes one call of a Connect service.
CallResult call(const Callee& callee, const std::string& method, const Json& request, int answerMs);

/// The text of a member; empty if it is absent, because the JSON of a protobuf message leaves out members with their
/// default value.
std::string textOf(const Json* object, std::string_view key);

bool isLoopback(const std::string& host);

/// Refuses an agent on another machine without encryption.
Status mayBeAsked(const Url& agent);

/// The controllers of a pool, one of which is the leader. Calls go to the controller that answered last; if it does not
/// respond or is not the leader, the next call goes to another one.
class Controllers {
 public:
  /// Keeps a reference.
  explicit Controllers(const AttachConfig& config) : config_(config) {}
  CallResult ask(const char* method, const Json& request, int answerMs);

 private:
  const AttachConfig& config_;
  size_t asked_ = 0;  ///< increases; its remainder is the position in the list
};

}  // namespace millpond::client
