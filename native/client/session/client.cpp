// SPDX-License-Identifier: Apache-2.0
#include "client/session/client.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/errors/coded_error.h"
#include "base/log.h"
#include "client/attach/bootstrap.h"
#include "client/attach/visible_devices.h"
#include "client/memory/mirror/mirror.h"
#include "client/profile/activity_feed.h"
#include "client/profile/profile_file.h"
#include "client/session/remote.h"
#include "client/session/restoration.h"
#include "client/state/call_log.h"
#include "client/state/device_text.h"
#include "client/trace/trace.h"
#include "protocol/client/session_client.h"
#include "protocol/gen/commands.h"

namespace millpond::client {

Client::~Client() = default;

std::unique_ptr<Client> Client::make() { return std::unique_ptr<Client>(new Client()); }

Client& Client::first() {
  std::unique_ptr<Client> made = make();
  Client* expected = nullptr;
  if (current_.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) {
    ::pthread_atfork(nullptr, nullptr, &Client::afterForkInChild);
    return *made.release();
  }
  return *expected;
}

void Client::afterForkInChild() {
  Client* inherited = current_.load(std::memory_order_relaxed);
  const State state = state_.load(std::memory_order_relaxed);
  // The connection belongs to the parent: closing our copy of it says nothing to the worker.
  if (inherited->session_) inherited->session_->abandon();
  CurrentContext::forget();
  CallLog::abandon();
  ProfileFile::abandon();
  ActivityFeed::abandon();
  Mirror::abandon();
  // Another thread of the parent may have held its locks and been in the midst of a change, so nothing of it
  // is used again, and nothing is torn down.
  current_.store(make().release(), std::memory_order_relaxed);
  state_.store(state == State::Ready || state == State::Forked ? State::Forked : State::Fresh,
               std::memory_order_relaxed);
}

void Client::leave() {
  DeviceText::instance().write();
  if (!trace::isOff()) trace::finish();
  const Client* known = current_.load(std::memory_order_acquire);
  if (!known || state_.load(std::memory_order_acquire) < State::Attached) return;
  ProfileFile::finish();
  known->session_->sayGoodbye();
}

CUresult Client::initialise() {
  if (check() == CUDA_SUCCESS) return CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  if (const auto failure = std::exchange(failureForInit_, std::nullopt)) return *failure;
  if (const CUresult attached = attachOnce(); attached != CUDA_SUCCESS) return attached;
  if (devices_.empty()) {
    return fail(CUDA_ERROR_NO_DEVICE, codedText(codes::kInvalid,
                                                "no GPU: CUDA_VISIBLE_DEVICES names none of the " +
                                                    std::to_string(snapshot().devices.size()) + " that were granted",
                                                "Unset it, or use ordinals from 0."));
  }
  state_.store(State::Ready, std::memory_order_release);
  return CUDA_SUCCESS;
}

int Client::driverVersion() {
  if (check() == CUDA_SUCCESS) return snapshot().driverVersion;
  const std::lock_guard lock(mutex_);
  if (!failureForInit_) {
    const CUresult attached = attachOnce();
    if (attached == CUDA_SUCCESS) return snapshot().driverVersion;
    failureForInit_ = attached;
  }
  return CUDA_VERSION;
}

CUresult Client::attachOnce() {
  const State state = state_.load(std::memory_order_acquire);
  if (state == State::Forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (state != State::Fresh) return CUDA_SUCCESS;
  const Environment environment = Environment::ofThisProcess();
  const auto config = AttachConfig::from(environment);
  if (!config) {
    return fail(environment.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_UNKNOWN, config.error().message);
  }
  std::string problem;
  std::unique_ptr<Session> session = connect(*config, problem);
  if (!session) return fail(CUDA_ERROR_DEVICE_UNAVAILABLE, problem);
  if (session->snapshot().devices.empty())
    return fail(CUDA_ERROR_UNKNOWN, codedText(codes::kDriver, "the worker reported no devices", "Check its log."));
  const char* variable = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto visible =
      visibleDevices(session->snapshot().devices, variable ? std::optional<std::string_view>(variable) : std::nullopt);
  if (!visible) {
    return fail(CUDA_ERROR_INVALID_DEVICE,
                codedText(codes::kInvalid, std::string("CUDA_VISIBLE_DEVICES=") + variable + " names a device twice",
                          "Name each once."));
  }
  adopt(std::move(session), *visible, *config);
  state_.store(State::Attached, std::memory_order_release);
  return CUDA_SUCCESS;
}

std::unique_ptr<Session> Client::connect(const AttachConfig& config, std::string& problem) {
  auto attachment = attach(config);
  if (!attachment) {
    problem = attachment.error().message;
    return nullptr;
  }
  Endpoint endpoint = attachment->endpoint;
  auto session = Session::connect(endpoint);
  if (!session && !endpoint.unixPath.empty() && !endpoint.tcpHost.empty()) {
    log(LogLevel::Info, "no shared memory: %s; trying TCP", session.error().message.c_str());
    endpoint.unixPath.clear();
    session = Session::connect(endpoint);
  }
  if (session) {
    claim_ = config.claim.empty() ? attachment->ownClaim : config.claim;
    return std::move(*session);
  }
  problem = "cannot use the granted GPU: " + session.error().message;
  // Messages of the worker come with their code; those of the system have none.
  if (!problem.ends_with(']')) problem = codedText(codes::kUnreachable, problem, "Check the node's worker.log.");
  releaseOwnClaim(config, *attachment);
  return nullptr;
}

void Client::adopt(std::unique_ptr<Session> session, const std::vector<uint16_t>& visible, const AttachConfig& config) {
  session_ = std::move(session);
  // The program knows its devices, so it must get the same again: also whether memory is shared with the worker.
  AttachConfig again = config;
  again.transport = session_->remote() ? TransportChoice::Tcp : TransportChoice::SharedMemory;
  again.wasLocal = !session_->remote();
  for (const DeviceSnapshot& device : snapshot().devices)
    if (std::find(again.toldModels.begin(), again.toldModels.end(), device.name) == again.toldModels.end())
      again.toldModels.push_back(device.name);
  session_->onParked([again = std::move(again)](bool& mayAskAgain) -> Result<Endpoint> {
    log(LogLevel::Info, "the GPU was given back while this process was idle, and is needed again");
    auto attachment = attach(again);
    if (attachment) return attachment->endpoint;
    const std::string& problem = attachment.error().message;
    // Nothing is lost by having waited in vain.
    mayAskAgain = endsWithCode(problem, codes::kWaitTimeout) || endsWithCode(problem, codes::kUnreachable);
    if (mayAskAgain) log(LogLevel::Error, "%s. This CUDA call fails; the next one asks again", problem.c_str());
    return attachment.error();
  });
  session_->onRestore([](Session& fresh, std::span<const std::byte> journal) {
    return restore(fresh, journal, Remote::instance().images, Remote::instance().files);
  });
  session_->onLost([](const std::string& reason) {
    log(LogLevel::Error, "the GPU of this process is gone: %s. Every CUDA call fails from here on", reason.c_str());
  });
  session_->onLink([](const std::string& what) { log(LogLevel::Warn, "%s", what.c_str()); });
  session_->onOutput(
      [](wire::OutputStream stream, std::span<const std::byte> text) { DeviceText::instance().add(stream, text); });
  session_->onFailure([](int32_t code, uint16_t op, uint64_t position) {
    log(LogLevel::Info, "%s (command %llu of the session) failed with %d; the next call reports it",
        cmd::opName(static_cast<cmd::Op>(op)), static_cast<unsigned long long>(position), code);
  });
  session_->onLanding([](uint64_t address, uint64_t bytes) {
    const auto run = Remote::instance().memory.find(address, bytes);
    return (run && run->kind == MemoryKind::kPinnedLocal) || Remote::instance().graphs.mayLand(address, bytes);
  });
  for (const uint16_t device : visible) devices_.push_back(&snapshot().devices[device]);
  session_->onLandingsAwaited([] { return Remote::instance().landings.any(); });
  session_->onLanded([](uint64_t number) { Remote::instance().landings.end(number); });
  contexts_ =
      std::make_unique<ContextTable>(visible, &endContext, static_cast<uint16_t>(snapshot().devices.size() + 1));
  for (const ErrorText& error : snapshot().errors) errors_.push_back(&error);
  std::sort(errors_.begin(), errors_.end(), [](const ErrorText* a, const ErrorText* b) { return a->code < b->code; });
  ProfileFile::begin(*session_, &trace::flush);
  ActivityFeed::instance().sessionOpened(*session_);
  log(LogLevel::Info, "attached: %zu of %zu devices visible, driver %d, %s", devices_.size(), snapshot().devices.size(),
      snapshot().driverVersion, session_->remote() ? "TCP" : "shared memory");
}

CUresult Client::fail(CUresult code, const std::string& message) {
  // Programs ask again and again whether there is a GPU.
  if (message != lastMessage_) log(LogLevel::Error, "%s", message.c_str());
  lastMessage_ = message;
  return code;
}

const Snapshot& Client::snapshot() const { return session_->snapshot(); }

const ErrorText* Client::errorText(CUresult code) const {
  if (!knowsErrors()) return nullptr;
  const auto found = std::lower_bound(errors_.begin(), errors_.end(), code,
                                      [](const ErrorText* text, CUresult wanted) { return text->code < wanted; });
  return found != errors_.end() && (*found)->code == code ? *found : nullptr;
}

namespace {

/// Other libraries may call the driver after this, which still works.
__attribute__((destructor)) void leaveAtExit() { Client::leave(); }

}  // namespace

}  // namespace millpond::client
