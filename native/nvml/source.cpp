// SPDX-License-Identifier: Apache-2.0
#include "nvml/source.h"
#include "base/errors/coded_error.h"

#include <dlfcn.h>

#include <ctime>

namespace millpond::nvml {

namespace {

using client::CallFailure;
using client::CallResult;
using client::textOf;

constexpr int kAnswerMs = 5'000;
// View tickets are valid for 60 s; a new one is requested before they expire.
constexpr int64_t kPassMs = 45'000;

// The claim that the client library of this process has created or attached to; empty: none yet.
std::string claimOfProcess() {
  void* const client = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!client) return "";
  std::string claim;
  // As in native/client/abi/export_tables.cpp. NVIDIA's own library has no such table.
  constexpr unsigned char kClaimTable[17] = "millpond's claim";
  const auto find = reinterpret_cast<int (*)(const void**, const void*)>(::dlsym(client, "cuGetExportTable"));
  const void* table = nullptr;
  if (find && find(&table, kClaimTable) == 0 && table) {
    const char* const name = reinterpret_cast<const char* (*)()>(static_cast<void* const*>(table)[1])();
    claim = name ? name : "";
  }
  ::dlclose(client);
  return claim;
}

Failure failureOf(const CallFailure& failure) { return {failure.passing ? kTimeout : kUnknown, failure.message}; }

Found foundOrNot(Result<View> view) {
  if (!view) return {nullptr, Failure{kUnknown, view.error().message}};
  return {std::shared_ptr<const View>(std::make_unique<const View>(std::move(*view)).release()), std::nullopt};
}

}  // namespace

int64_t monotonicMs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

Found Source::ask() {
  const std::string claim = config_.claim.empty() ? claimOfProcess() : config_.claim;
  if (claim.empty()) {
    // Each program creates a claim of its own at its first use of a GPU: this view shows the claim that it
    // would request.
    return foundOrNot(
        viewOf({config_.owner.substr(0, config_.owner.find(':')), config_.gpus, config_.memory.bytes, "none yet"}));
  }
  if (pass_ && pass_->claim == claim && monotonicMs() < pass_->untilMs) {
    // A ticket may have expired, and the agent may have changed.
    if (Found found = askAgent(); found.view) return found;
  }
  pass_.reset();
  return askController(claim);
}

Found Source::askController(const std::string& claim) {
  const Json request(Json::Object{{"name", claim}});
  CallResult answer;
  for (size_t asked = 0; asked < config_.controllers.size(); ++asked) {
    answer = controllers_.ask("millpond.v1.ClaimService/ViewClaim", request, kAnswerMs);
    if (!answer.failure || !answer.failure->passing) break;
  }
  if (answer.failure) return {nullptr, failureOf(*answer.failure)};
  const Json* seen = answer.answer.find("claim");
  const std::string state = textOf(seen, "state");
  if (!seen || state.empty()) {
    return {nullptr,
            Failure{kUnknown, codedText(codes::kVersion, "the controller's answer has no claim",
                                        "Check that this client library and the controller are of the same version.")}};
  }
  if (state == "CLAIM_STATE_RELEASED" || state == "CLAIM_STATE_FAILED") {
    return {nullptr, Failure{kGpuIsLost, codedText(codes::kClaimEnded, claim + " has ended: " + textOf(seen, "reason"),
                                                   "Start the program again for a new claim.")}};
  }
  const std::string ticket = textOf(&answer.answer, "viewTicket");
  if (ticket.empty() && state == "CLAIM_STATE_BOUND") {
    return {nullptr, Failure{kTimeout, codedText(codes::kNodeNotReady,
                                                 "the node of " + claim + " is not in contact with its controller",
                                                 "Wait for its agent, or start it.")}};
  }
  if (ticket.empty()) return foundOrNot(readRequest(*seen));
  auto agent = client::Url::parse(textOf(&answer.answer, "agentUrl"));
  if (!agent) return {nullptr, Failure{kUnknown, codedText(codes::kVersion, agent.error().message)}};
  if (const Status safe = client::mayBeAsked(*agent); !safe) return {nullptr, Failure{kUnknown, safe.error().message}};
  pass_ = Pass{claim, ticket, std::move(*agent), monotonicMs() + kPassMs};
  Found found = askAgent();
  if (!found.view) pass_.reset();
  return found;
}

Found Source::askAgent() {
  const std::string none;
  const CallResult answer =
      client::call({pass_->agent, "the node's agent", none, config_.trust}, "millpond.v1.NodeService/DescribeClaim",
                   Json(Json::Object{{"viewTicket", pass_->ticket}}), kAnswerMs);
  if (answer.failure) return {nullptr, failureOf(*answer.failure)};
  return foundOrNot(readDescription(answer.answer));
}

}  // namespace millpond::nvml
