// SPDX-License-Identifier: Apache-2.0
#include "client/lifecycle/initialisation.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/errors/coded_error.h"
#include "base/log.h"
#include "client/attach/bootstrap.h"
#include "client/attach/visible_devices.h"
#include "client/lifecycle/context_end.h"
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

Initialisation& Initialisation::instance() {
  if (Initialisation* known = current_.load(std::memory_order_acquire)) [[likely]]
    return *known;
  std::unique_ptr<Initialisation> made(new Initialisation(Client::instance()));
  Initialisation* expected = nullptr;
  if (current_.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) {
    ::pthread_atfork(nullptr, nullptr, &Initialisation::afterForkInChild);
    return *made.release();
  }
  return *expected;
}

void Initialisation::afterForkInChild() {
  Client* inherited = Client::current_.load(std::memory_order_relaxed);
  const Client::State state = Client::state_.load(std::memory_order_relaxed);
  // The connection belongs to the parent: closing our copy does not affect the worker.
  if (inherited->session_) inherited->session_->abandon();
  CurrentContext::forget();
  CallLog::abandon();
  ProfileFile::abandon();
  ActivityFeed::abandon();
  Mirror::abandon();
  // Another thread of the parent may have held its locks in the middle of a change, so nothing of the parent's state is
  // used again or destroyed.
  Client* own = Client::make().release();
  Client::current_.store(own, std::memory_order_relaxed);
  current_.store(std::unique_ptr<Initialisation>(new Initialisation(*own)).release(), std::memory_order_relaxed);
  const bool wasUsed = state == Client::State::Ready || state == Client::State::Forked;
  Client::state_.store(wasUsed ? Client::State::Forked : Client::State::Fresh, std::memory_order_relaxed);
}

void Initialisation::leave() {
  DeviceText::instance().write();
  if (!trace::isOff()) trace::finish();
  const Client* known = Client::current_.load(std::memory_order_acquire);
  if (!known || Client::state_.load(std::memory_order_acquire) < Client::State::Attached) return;
  ProfileFile::finish();
  known->session_->sayGoodbye();
}

CUresult Initialisation::initialise() {
  if (Client::check() == CUDA_SUCCESS) return CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  if (const auto failure = std::exchange(failureForInit_, std::nullopt)) return *failure;
  if (const CUresult attached = attachOnce(); attached != CUDA_SUCCESS) return attached;
  if (client_.devices_.empty()) {
    return fail(CUDA_ERROR_NO_DEVICE,
                codedText(codes::kInvalid,
                          "no GPU: CUDA_VISIBLE_DEVICES names none of the " +
                              std::to_string(client_.snapshot().devices.size()) + " that were granted",
                          "Unset it, or use ordinals from 0."));
  }
  Client::state_.store(Client::State::Ready, std::memory_order_release);
  return CUDA_SUCCESS;
}

int Initialisation::driverVersion() {
  if (Client::check() == CUDA_SUCCESS) return client_.snapshot().driverVersion;
  const std::lock_guard lock(mutex_);
  if (!failureForInit_) {
    const CUresult attached = attachOnce();
    if (attached == CUDA_SUCCESS) return client_.snapshot().driverVersion;
    failureForInit_ = attached;
  }
  return CUDA_VERSION;
}

CUresult Initialisation::attachOnce() {
  const Client::State state = Client::state_.load(std::memory_order_acquire);
  if (state == Client::State::Forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (state != Client::State::Fresh) return CUDA_SUCCESS;
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
  Client::state_.store(Client::State::Attached, std::memory_order_release);
  return CUDA_SUCCESS;
}

std::unique_ptr<Session> Initialisation::connect(const AttachConfig& config, std::string& problem) {
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
    client_.claim_ = config.claim.empty() ? attachment->ownClaim : config.claim;
    return std::move(*session);
  }
  problem = "cannot use the granted GPU: " + session.error().message;
  // Messages from the worker contain their code; those from the system do not.
  if (!problem.ends_with(']')) problem = codedText(codes::kUnreachable, problem, "Check the node's worker.log.");
  releaseOwnClaim(config, *attachment);
  return nullptr;
}

void Initialisation::adopt(std::unique_ptr<Session> session, const std::vector<uint16_t>& visible,
                           const AttachConfig& config) {
  client_.session_ = std::move(session);
  const Snapshot& snapshot = client_.snapshot();
  connectParts(*client_.session_, config);
  for (const uint16_t device : visible) client_.devices_.push_back(&snapshot.devices[device]);
  client_.contexts_ =
      std::make_unique<ContextTable>(visible, &endContext, static_cast<uint16_t>(snapshot.devices.size() + 1));
  for (const ErrorText& error : snapshot.errors) client_.errors_.push_back(&error);
  std::sort(client_.errors_.begin(), client_.errors_.end(),
            [](const ErrorText* a, const ErrorText* b) { return a->code < b->code; });
  ProfileFile::begin(*client_.session_, &trace::flush);
  ActivityFeed::instance().sessionOpened(*client_.session_);
  log(LogLevel::Info, "attached: %zu of %zu devices visible, driver %d, %s", client_.devices_.size(),
      snapshot.devices.size(), snapshot.driverVersion, client_.session_->remote() ? "TCP" : "shared memory");
}

void Initialisation::connectParts(Session& session, const AttachConfig& config) {
  // The program knows its devices, so it must get the same ones again, and memory must be shared with the worker as
  // before.
  AttachConfig again = config;
  again.transport = session.remote() ? TransportChoice::Tcp : TransportChoice::SharedMemory;
  again.wasLocal = !session.remote();
  for (const DeviceSnapshot& device : session.snapshot().devices)
    if (std::find(again.toldModels.begin(), again.toldModels.end(), device.name) == again.toldModels.end())
      again.toldModels.push_back(device.name);
  session.onParked([again = std::move(again)](bool& mayAskAgain) -> Result<Endpoint> {
    log(LogLevel::Info, "the GPU was released while this process was idle, and is needed again");
    auto attachment = attach(again);
    if (attachment) return attachment->endpoint;
    const std::string& problem = attachment.error().message;
    // A failed wait loses nothing, so the next call may try again.
    mayAskAgain = endsWithCode(problem, codes::kWaitTimeout) || endsWithCode(problem, codes::kUnreachable);
    if (mayAskAgain) log(LogLevel::Error, "%s. This CUDA call fails; the next one asks again", problem.c_str());
    return attachment.error();
  });
  session.onRestore([](Session& fresh, std::span<const std::byte> journal) {
    return restore(fresh, journal, Remote::instance().images, Remote::instance().files);
  });
  session.onLost([](const std::string& reason) {
    log(LogLevel::Error, "the GPU of this process is gone: %s. Every CUDA call fails from now on", reason.c_str());
  });
  session.onLink([](const std::string& what) { log(LogLevel::Warn, "%s", what.c_str()); });
  session.onOutput(
      [](wire::OutputStream stream, std::span<const std::byte> text) { DeviceText::instance().add(stream, text); });
  session.onFailure([](int32_t code, uint16_t op, uint64_t position) {
    log(LogLevel::Info, "%s (command %llu of the session) failed with %d; the next call reports it",
        cmd::opName(static_cast<cmd::Op>(op)), static_cast<unsigned long long>(position), code);
  });
  session.onLaneData([](std::span<const std::byte> piece) { Remote::instance().scans.look(piece); });
  session.onLanding([](uint64_t address, uint64_t bytes) {
    const auto run = Remote::instance().memory.find(address, bytes);
    return (run && run->kind == MemoryKind::kPinnedLocal) || Remote::instance().graphs.mayLand(address, bytes);
  });
  session.onLandingsAwaited([] { return Remote::instance().landings.any(); });
  session.onLanded([](uint64_t number) { Remote::instance().landings.end(number); });
}

CUresult Initialisation::fail(CUresult code, const std::string& message) {
  // Programs query repeatedly whether there is a GPU.
  if (message != lastMessage_) log(LogLevel::Error, "%s", message.c_str());
  lastMessage_ = message;
  return code;
}

namespace {

/// Other libraries may call the driver after this handler, and such calls must still work.
__attribute__((destructor)) void leaveAtExit() { Initialisation::leave(); }

}  // namespace

}  // namespace millpond::client
