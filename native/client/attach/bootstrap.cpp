// SPDX-License-Identifier: Apache-2.0
#include "client/attach/bootstrap.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <optional>

#include "base/errors/coded_error.h"
#include "base/json.h"
#include "base/log.h"
#include "client/attach/connect_call.h"
#include "client/attach/http.h"

namespace millpond::client {

namespace {

constexpr int kLeaseSeconds = 15;
constexpr int kPollSeconds = 10;  // of one WaitClaim: much shorter than the lease
// of one WaitClaim: much shorter than the lease
constexpr int64_t kPatienceMs = 30'000;
// Time until a message reports that the claim waits.
constexpr int64_t kQuietMs = 1'000;
constexpr int64_t kPauseMs = 200;
// How often an allocation may be preempted before it could be used.
constexpr int kMostLosses = 10;

int64_t nowMs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void sleepMs(int64_t ms) {
  timespec left{ms / 1000, ms % 1000 * 1'000'000};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

// A unique name, so that the creation of the claim can be retried if the reply was lost.
Result<std::string> newClaimName() {
  uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random))
    return codedError(codes::kInternal, "the system provides no random numbers");
  char name[32];
  std::snprintf(name, sizeof(name), "claim-%016" PRIx64, random);
  return std::string(name);
}

std::string describe(const AttachConfig& config) {
  std::string what = std::to_string(config.gpus) + (config.gpus == 1 ? " vGPU" : " vGPUs");
  if (config.memory.percent) what += " with " + std::to_string(config.memory.percent) + "% of the memory";
  if (config.memory.bytes) what += " with " + std::to_string(config.memory.bytes >> 20) + " MiB";
  if (config.computePercent) what += " and " + std::to_string(config.computePercent) + "% of the compute";
  return what;
}

// Takes one claim from its creation to an open session.
class Attaching {
 public:
  explicit Attaching(const AttachConfig& config) : config_(config), controllers_(config), claim_(config.claim) {}

  Result<Attachment> run() {
    if (config_.claim.empty()) {
      if (auto made = createClaim(); !made) return made.error();
    }
    auto endpoint = waitAndOpen();
    if (!endpoint) {
      releaseOwn();
      return endpoint.error();
    }
    return Attachment{std::move(*endpoint), config_.claim.empty() ? claim_ : std::string()};
  }

  void releaseOwn() const {
    if (!config_.claim.empty() || claim_.empty()) return;
    // Best effort: without it the claim ends with its lease.
    for (size_t asked = 0; asked < config_.controllers.size(); ++asked) {
      const CallResult released =
          ask("millpond.v1.ClaimService/ReleaseClaim", Json(Json::Object{{"name", claim_}}), 5'000);
      if (!released.failure) return;
      log(LogLevel::Info, "cannot release %s: %s", claim_.c_str(), released.failure->message.c_str());
      if (!released.failure->passing) return;
    }
  }
  void adopt(std::string claim) { claim_ = std::move(claim); }

 private:
  CallResult ask(const char* method, const Json& request, int answerMs) const {
    return controllers_.ask(method, request, answerMs);
  }

  static Error notUnderstood(const char* what) {
    return codedError(codes::kVersion, std::string("the controller's answer has no ") + what,
                      "Check that this client library and the controller are of the same version.");
  }

  // Decides whether to retry after a failure, which it does while the failure may be temporary.
  class Patience {
   public:
    explicit Patience(const Attaching& attaching) : attaching_(attaching) {
      if (attaching.config_.waitTimeoutSeconds > 0)
        limitMs_ = std::min(limitMs_, int64_t{attaching.config_.waitTimeoutSeconds} * 1000);
    }
    /// Pauses before a retry.
    bool withFailure(const CallFailure& failure) {
      const int64_t forMs = nowMs() - since_;
      if (!failure.passing || forMs > limitMs_) return false;
      if (!told_ && forMs > kQuietMs) {
        log(attaching_.waitingLevel(), "%s; trying again for up to %lld s", failure.message.c_str(),
            static_cast<long long>(limitMs_ / 1000));
        told_ = true;
      }
      sleepMs(kPauseMs);
      return true;
    }
    void withSuccess() {
      since_ = nowMs();
      told_ = false;
    }

   private:
    const Attaching& attaching_;
    int64_t limitMs_ = kPatienceMs;
    int64_t since_ = nowMs();
    bool told_ = false;
  };

  Status createClaim() {
    const auto name = newClaimName();
    if (!name) return name.error();
    Json::Object claim{{"name", *name},
                       {"gpus", config_.gpus},
                       {"memoryBytes", std::to_string(config_.memory.bytes)},
                       {"computePercent", config_.computePercent},
                       {"owner", config_.owner},
                       {"leaseSeconds", kLeaseSeconds},
                       {"sessionBound", true}};
    if (config_.memory.percent) claim.push_back({"memoryPercent", config_.memory.percent});
    if (!config_.bootId.empty()) claim.push_back({"clientHost", config_.bootId});
    Json::Object variables;
    for (const auto& [variable, value] : config_.claimVariables) variables.push_back({variable, value});
    Json::Object body{{"claim", Json(std::move(claim))}};
    if (!variables.empty()) body.push_back({"variables", Json(std::move(variables))});
    const Json request(std::move(body));
    Patience patience(*this);
    for (bool first = true;; first = false) {
      CallResult made = ask("millpond.v1.ClaimService/CreateClaim", request, 15'000);
      if (!made.failure) return learn(made.answer);
      // An earlier call created it, and only the reply was lost.
      if (!first && endsWithCode(made.failure->message, codes::kAlreadyExists)) {
        claim_ = *name;
        return Done{};
      }
      if (!patience.withFailure(*made.failure)) return Error{made.failure->message};
    }
  }

  Status waitForBound() {
    const int64_t start = nowMs();
    Patience patience(*this);
    while (state_ != "CLAIM_STATE_BOUND") {
      // From now on every call states that the claim is needed, so that it keeps its position.
      if (state_ == "CLAIM_STATE_DORMANT") woken_ = true;
      if (state_ == "CLAIM_STATE_RELEASED" || state_ == "CLAIM_STATE_FAILED") {
        return codedError(codes::kClaimEnded, claim_ + " has ended: " + reason(),
                          "Start the program again for a new claim.");
      }
      if (!state_.empty() && state_ != "CLAIM_STATE_PENDING" && state_ != "CLAIM_STATE_DORMANT")
        return notUnderstood("claim state that is known");
      // A woken claim usually returns soon, so a short wait causes no message.
      const bool quiet = woken_ && nowMs() - start < kQuietMs;
      int pollSeconds = state_.empty() ? 0 : quiet ? 1 : kPollSeconds;
      if (config_.waitTimeoutSeconds > 0 && pollSeconds > 0) {
        const int64_t left = config_.waitTimeoutSeconds - (nowMs() - start) / 1000;
        if (left <= 0) {
          return codedError(
              codes::kWaitTimeout,
              "no GPU within " + std::to_string(config_.waitTimeoutSeconds) + " s (MILLPOND_WAIT_TIMEOUT): " + reason(),
              "Ask for less, wait longer, or try again later.");
        }
        pollSeconds = static_cast<int>(std::min<int64_t>(pollSeconds, left));
      }
      if (!state_.empty() && !quiet) explainWaiting();
      const int64_t asked = nowMs();
      Json::Object request{{"name", claim_}, {"knownVersion", version_}, {"timeoutSeconds", pollSeconds}};
      if (woken_) {
        request.push_back({"wake", true});
        if (!config_.toldModels.empty())
          request.push_back({"toldModels", Json::Array(config_.toldModels.begin(), config_.toldModels.end())});
        if (config_.wasLocal) request.push_back({"toldHost", config_.bootId});
      }
      CallResult seen = ask("millpond.v1.ClaimService/WaitClaim", Json(std::move(request)), (pollSeconds + 15) * 1000);
      if (!seen.failure) {
        const std::string known = version_;
        if (auto learnt = learn(seen.answer); !learnt) return learnt;
        // A controller that does not hold the call open must not be polled in a tight loop.
        if (version_ == known && pollSeconds > 0 && nowMs() - asked < kPauseMs) sleepMs(kPauseMs);
        patience.withSuccess();
        continue;
      }
      if (!patience.withFailure(*seen.failure)) return Error{seen.failure->message};
    }
    if (explained_) {
      log(waitingLevel(), "%s is bound after %lld s", claim_.c_str(), static_cast<long long>((nowMs() - start) / 1000));
    }
    return Done{};
  }

  std::string reason() const { return reason_.empty() ? "no reason was given" : reason_; }
  // The CLI explains waits of the claims that it created, except for those that start waiting only now.
  LogLevel waitingLevel() const { return config_.claim.empty() || woken_ ? LogLevel::Warn : LogLevel::Info; }
  // Reports each reason for waiting once.
  void explainWaiting() {
    if (explained_ == reason_) return;
    explained_ = reason_;
    const std::string what = config_.claim.empty() ? describe(config_) + " (" + claim_ + ")" : claim_;
    log(waitingLevel(), "waiting for %s: %s", what.c_str(), reason().c_str());
  }

  // Reads name, state, reason and version from a reply that contains a claim.
  Status learn(const Json& answer) {
    const Json* claim = answer.find("claim");
    const std::string name = textOf(claim, "name");
    state_ = textOf(claim, "state");
    if (name.empty()) return notUnderstood("claim with a name");
    if (state_.empty()) return notUnderstood("claim with a state");
    if (!claim_.empty() && name != claim_) return notUnderstood("claim of the name that was asked for");
    claim_ = name;
    reason_ = textOf(claim, "reason");
    const Json* version = claim->find("version");
    const auto number = version ? version->uint64() : std::optional<uint64_t>(0);
    if (!number) return notUnderstood("claim version that is a number");
    version_ = std::to_string(*number);
    return Done{};
  }

  Result<Endpoint> waitAndOpen() {
    for (int losses = 0;; ++losses) {
      if (auto bound = waitForBound(); !bound) return bound.error();
      auto endpoint = openBound();
      if (endpoint || losses == kMostLosses || !wasTakenBack(endpoint.error().message)) return endpoint;
      sleepMs(kPauseMs);
      state_.clear();
    }
  }

  Result<Endpoint> openBound() {
    Patience patience(*this);
    for (;;) {
      bool passing = false;
      // With a new ticket each time: the agent may have used up the last one, or the claim may have moved to another
      // node by now.
      auto endpoint = getTicketAndOpen(passing);
      if (endpoint || !patience.withFailure({endpoint.error().message, passing})) return endpoint;
    }
  }

  // A claim that outlives this process may be unbound at the next call, and be bound again.
  bool wasTakenBack(const std::string& failure) const {
    return !config_.claim.empty() &&
           (endsWithCode(failure, codes::kClaimNotBound) || endsWithCode(failure, codes::kTicketStale));
  }

  Result<Endpoint> getTicketAndOpen(bool& passing) {
    Json::Object request{
        {"claim", claim_}, {"clientHost", config_.bootId}, {"clientPid", config_.pid}, {"program", config_.program}};
    if (!unopened_.empty()) request.push_back({"unopenedSession", unopened_});
    CallResult made = ask("millpond.v1.ClaimService/CreateTicket", Json(std::move(request)), 15'000);
    if (made.failure) {
      passing = made.failure->passing;
      return Error{made.failure->message};
    }
    Endpoint endpoint;
    endpoint.ticket = textOf(&made.answer, "ticket");
    endpoint.session = textOf(&made.answer, "session");
    endpoint.transport = config_.transport;
    endpoint.program = config_.program;
    endpoint.graceSeconds = config_.reconnectGraceSeconds;
    endpoint.lanes = config_.lanes;
    // A claim that the process created for itself ends with its session.
    endpoint.canPark = !config_.claim.empty();
    if (endpoint.ticket.empty() || endpoint.ticket.size() > 8192) return notUnderstood("ticket");
    auto agent = Url::parse(textOf(&made.answer, "agentUrl"));
    if (!agent) {
      return codedError(codes::kVersion, "the controller returned an unusable agent address: " + agent.error().message,
                        "Start that node's agent with an address of this form.");
    }
    return openSession(*agent, std::move(endpoint), passing);
  }

  Result<Endpoint> openSession(const Url& agent, Endpoint endpoint, bool& passing) {
    const char* transport = config_.transport == TransportChoice::SharedMemory ? "shm"
                            : config_.transport == TransportChoice::Tcp        ? "tcp"
                                                                               : "auto";
    if (auto safe = mayBeAsked(agent); !safe) return safe.error();
    const std::string none;
    // The agent may have to start a worker first, which loads the driver.
    const CallResult opened =
        call({agent, "the node's agent", none, config_.trust}, "millpond.v1.NodeService/OpenSession",
             Json(Json::Object{{"ticket", endpoint.ticket}, {"transport", transport}}), 60'000);
    if (opened.failure) {
      const std::string& message = opened.failure->message;
      // The agent accepted an earlier ticket of this session but stopped before its answer, so the next attempt uses
      // another session.
      const bool wasUsed = !unopened_.empty() && endsWithCode(message, codes::kTicketUsed);
      passing = opened.failure->passing || wasUsed;
      const bool wasNotRead = endsWithCode(message, codes::kUnreachable) || endsWithCode(message, codes::kNodeNotReady);
      unopened_ = wasNotRead ? endpoint.session : std::string();
      return Error{message};
    }
    unopened_.clear();
    const Json& answer = opened.answer;
    const std::string unixPath = textOf(&answer, "unixPath");
    const std::string bootId = textOf(&answer, "bootId");
    const Json* port = answer.find("tcpPort");
    const auto number = port ? port->uint64() : std::optional<uint64_t>(0);
    if (!number || *number > 65535) return notUnderstood("usable TCP port");
    const std::string session = textOf(&answer, "session");
    if (session.empty() || (!endpoint.session.empty() && session != endpoint.session)) {
      return notUnderstood("session of the ticket");
    }
    endpoint.session = session;
    if (const std::string secret = textOf(&answer, "linkSecret"); !secret.empty()) {
      endpoint.secret = parseHex32(secret);
      if (!endpoint.secret) return notUnderstood("secret that can be used");
    }

    const Json* user = answer.find("workerUser");
    const auto served = user ? user->uint64() : std::optional<uint64_t>(0);
    if (!served || *served > UINT32_MAX) return notUnderstood("user of the worker");
    endpoint.users = config_.trust.users;
    endpoint.users.push_back(static_cast<uid_t>(*served));

    std::string whyNotUnix;
    if (config_.transport == TransportChoice::Tcp) {
      whyNotUnix = "the transport is tcp";
    } else if (bootId.empty() || bootId != config_.bootId) {
      whyNotUnix = "the worker is on another machine";
    } else if (unixPath.empty()) {
      whyNotUnix = "the agent returned no socket";
    } else if (::access(unixPath.c_str(), W_OK) != 0) {
      whyNotUnix = "the socket " + unixPath + " cannot be reached from here";
    } else {
      endpoint.unixPath = unixPath;
    }
    if (config_.transport != TransportChoice::SharedMemory && *number != 0) {
      endpoint.tcpHost = textOf(&answer, "tcpHost");
      endpoint.tcpPort = static_cast<uint16_t>(*number);
      if (endpoint.tcpHost.empty()) endpoint.tcpHost = agent.host;
    }
    if (endpoint.unixPath.empty() && endpoint.tcpHost.empty()) {
      return codedError(
          codes::kTransportUnavailable,
          "the granted GPU cannot be reached: shared memory cannot be used because " + whyNotUnix + ", and " +
              (config_.transport == TransportChoice::SharedMemory ? "TCP because MILLPOND_TRANSPORT is shm"
                                                                  : "the worker does not listen on TCP"),
          "Use MILLPOND_TRANSPORT=auto, or mount the node's run directory where the program runs.");
    }
    if (!whyNotUnix.empty()) log(LogLevel::Debug, "no shared memory: %s", whyNotUnix.c_str());
    return endpoint;
  }

  const AttachConfig& config_;
  mutable Controllers controllers_;
  std::string claim_;
  std::string state_;   // empty: not known yet
  bool woken_ = false;  // it was dormant until this process needed it
  std::string reason_;
  std::optional<std::string> explained_;  // the reason reported last
  std::string version_ = "0";
  std::string unopened_;  // session of a ticket with which the agent was not reached: attempts count as one session
};

}  // namespace

Result<Attachment> attach(const AttachConfig& config) {
  if (config.worker) return Attachment{*config.worker, ""};
  const auto beyond = std::find_if(config.controllers.begin(), config.controllers.end(),
                                   [](const Url& url) { return !url.isSecure && !isLoopback(url.host); });
  if (!config.token.empty() && beyond != config.controllers.end()) {
    static std::atomic<bool> said{false};
    logOnce(said, LogLevel::Warn, "MILLPOND_TOKEN goes to %s unencrypted", beyond->authority().c_str());
  }
  return Attaching(config).run();
}

void releaseOwnClaim(const AttachConfig& config, const Attachment& attachment) {
  if (attachment.ownClaim.empty()) return;
  Attaching attaching(config);
  attaching.adopt(attachment.ownClaim);
  attaching.releaseOwn();
}

}  // namespace millpond::client
