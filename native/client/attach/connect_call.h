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

/// Why a call failed, and whether the same call may succeed later.
struct CallFailure {
  std::string message;  ///< complete for a human, with its code
  bool passing = false;
};

struct CallResult {
  Json answer;
  std::optional<CallFailure> failure;
};

/// Whom to call, and as whom.
struct Callee {
  const Url& base;
  std::string name;  ///< for people: "the controller"
  const std::string& token;
  const std::string& authorities;
};

/// One call of a Connect service.
CallResult call(const Callee& callee, const std::string& method, const Json& request, int answerMs);

/// The text of a member; empty where there is none, since members with their default value are absent from the JSON of a
/// protobuf message.
std::string textOf(const Json* object, std::string_view key);

bool isLoopback(const std::string& host);

/// Refuses an agent on another machine whose answers would not be encrypted.
Status mayBeAsked(const Url& agent);

/// The controllers of a pool, of which one leads. Asks the one that answered last; when it is away, or another one leads, the
/// next call goes to the next.
class Controllers {
 public:
  /// Keeps a reference.
  explicit Controllers(const AttachConfig& config) : config_(config) {}
  CallResult ask(const char* method, const Json& request, int answerMs);

 private:
  const AttachConfig& config_;
  size_t asked_ = 0;  ///< counts on; the place in the list is what is left of it
};

}  // namespace millpond::client
