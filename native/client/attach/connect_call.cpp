// SPDX-License-Identifier: Apache-2.0
#include "client/attach/connect_call.h"

#include <vector>

#include "base/errors/coded_error.h"
#include "base/log.h"

namespace millpond::client {

CallFailure explainFailure(const Callee& callee, const HttpFailure& failure) {
  const std::string where = callee.name + " at " + callee.base.text();
  if (failure.isStranger)
    return {
        codedText(codes::kTls, "nothing was sent to " + where + ": " + failure.message,
                  "If that user may see your token, set MILLPOND_TRUSTED_USERS to its id, or use a service with TLS.")};
  if (!failure.lacksTls && !failure.isUntrusted)
    return {codedText(codes::kUnreachable, "cannot reach " + where + ": " + failure.message,
                      "Check that it runs and that the address is right."),
            true};
  const char* remedy =
      failure.lacksTls ? "Copy all client libraries of one Millpond release into one directory."
      : callee.base.fingerprint
          ? "Another server answers at its address, or its run directory is new: start that agent again."
          : "If its certificate has expired or is for other names, renew it there. If its authority is not known, set "
            "MILLPOND_CA to the file of the authority's certificate: tls/ca.crt in the controller's state directory.";
  return {codedText(codes::kTls, "cannot talk to " + where + ": " + failure.message, remedy)};
}

CallResult call(const Callee& callee, const std::string& method, const Json& request, int answerMs) {
  const std::string url = callee.base.text();
  const std::string& whom = callee.name;
  if (logs(LogLevel::Debug)) log(LogLevel::Debug, "POST %s/%s", url.c_str(), method.c_str());
  HttpLimits limits;
  limits.answerMs = answerMs;
  const HttpResult answer = httpPost(callee.base, "/" + method, callee.token, request.dump(), limits, callee.trust);
  const std::string where = whom + " at " + url;
  if (answer.failure) return {{}, explainFailure(callee, *answer.failure)};
  auto body = Json::parse(answer->body);
  if (answer->status == 200 && body && body->object()) return {std::move(*body), std::nullopt};
  if (answer->status == 200) {
    return {{},
            CallFailure{codedText(
                codes::kUnreachable,
                where + " sent a malformed answer to " + method + (body ? "" : " (" + body.error().message + ")"),
                "Check that the address is that of " + whom + ".")}};
  }
  const bool passing = answer->status == 502 || answer->status == 503 || answer->status == 504;
  const Json* message = body ? body->find("message") : nullptr;
  if (message && message->string() && !message->string()->empty()) {
    return {{}, CallFailure{*message->string(), passing}};  // complete, with its own code
  }
  return {{},
          CallFailure{codedText(codes::kUnreachable,
                                where + " refused " + method + " with status " + std::to_string(answer->status) +
                                    " and no explanation",
                                "Check that the address is that of " + whom + "."),
                      passing}};
}

std::string textOf(const Json* object, std::string_view key) {
  const Json* value = object ? object->find(key) : nullptr;
  return value && value->string() ? *value->string() : std::string();
}

bool isLoopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

Status mayBeAsked(const Url& agent) {
  if (agent.isSecure || isLoopback(agent.host)) return Done{};
  return codedError(
      codes::kVersion,
      "the node's agent at " + agent.text() + " is on another machine, and its reply would not be encrypted",
      "Start it with the version of this client library.");
}

CallResult Controllers::ask(const char* method, const Json& request, int answerMs) {
  const std::vector<Url>& all = config_.controllers;
  const Url& leader = all[asked_ % all.size()];
  CallResult result = call({leader, "the controller", config_.token, config_.trust}, method, request, answerMs);
  if (result.failure && result.failure->passing) ++asked_;
  return result;
}

}  // namespace millpond::client
