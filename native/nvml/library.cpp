// SPDX-License-Identifier: Apache-2.0
#include "nvml/library.h"

#include <pthread.h>

#include <algorithm>
#include <climits>
#include <mutex>
#include <optional>

#include "base/log.h"
#include "client/attach/attach_config.h"
#include "nvml/source.h"
#include "protocol/futex.h"

namespace millpond::nvml {

namespace {

// How long a view stays fresh.
constexpr int64_t kFreshMs = 500;
// A restart of the agent is not a failure.
constexpr int64_t kStaleMs = 10'000;

struct State {
  std::mutex mutex;
  unsigned initialised = 0;
  std::unique_ptr<Source> source;
  /// 1 while a thread refreshes, without the lock; the others sleep on it. A condition variable of the C++ library
  /// would need exceptions.
  std::atomic<uint32_t> isAsking{0};
  std::shared_ptr<const View> view;
  int64_t viewAtMs = 0;
  Return failure = kSuccess;
  int64_t goodUntilMs = 0;  ///< of the view or the failure
  std::string lastMessage;
};

std::atomic<State*> current_{nullptr};

// Never destroyed: programs query it while they exit.
State& state();

void beforeFork() { state().mutex.lock(); }
void afterForkInParent() { state().mutex.unlock(); }
// A thread of the parent may have been in the middle of a query, so its state is not used again.
void afterForkInChild() {
  const State& inherited = *current_.load(std::memory_order_relaxed);
  auto made = std::make_unique<State>();
  made->initialised = inherited.initialised;
  if (inherited.source) made->source = std::make_unique<Source>(inherited.source->config());
  made->view = inherited.view;
  made->viewAtMs = inherited.viewAtMs;
  made->failure = inherited.failure;
  made->goodUntilMs = inherited.goodUntilMs;
  current_.store(made.release(), std::memory_order_relaxed);
}

State& state() {
  if (State* known = current_.load(std::memory_order_acquire)) return *known;
  auto made = std::make_unique<State>();
  State* expected = nullptr;
  if (!current_.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) return *expected;
  ::pthread_atfork(&beforeFork, &afterForkInParent, &afterForkInChild);
  return *made.release();
}

// Programs repeat the same query.
void tell(State& its, const std::string& message) {
  if (message != its.lastMessage) log(LogLevel::Warn, "%s", message.c_str());
  its.lastMessage = message;
}

Return configure(State& its) {
  if (its.source) return kSuccess;
  const client::Environment environment = client::Environment::ofThisProcess();
  if (!environment.controller) {
    // As on a machine without a GPU; nothing more is known of a directly attached worker.
    log(LogLevel::Info, "no GPU to manage: MILLPOND_CONTROLLER is not set");
    return kDriverNotLoaded;
  }
  client::Environment ofController = environment;
  ofController.worker.reset();
  auto config = client::AttachConfig::from(ofController);
  if (!config) {
    tell(its, config.error().message);
    return kUnknown;
  }
  its.source = std::make_unique<Source>(std::move(*config));
  return kSuccess;
}

}  // namespace

Return Library::initialise() {
  State& its = state();
  const std::lock_guard lock(its.mutex);
  if (const Return configured = configure(its); configured != kSuccess) return configured;
  ++its.initialised;
  return kSuccess;
}

Return Library::shutDown() {
  State& its = state();
  const std::lock_guard lock(its.mutex);
  if (its.initialised == 0) return kUninitialized;
  --its.initialised;
  return kSuccess;
}

Return Library::check() {
  State& its = state();
  const std::lock_guard lock(its.mutex);
  return its.initialised != 0 ? kSuccess : kUninitialized;
}

Return Library::current(std::shared_ptr<const View>& view) {
  State& its = state();
  std::unique_lock lock(its.mutex);
  if (const Return configured = configure(its); configured != kSuccess) return configured;
  while (its.isAsking.load() != 0) {
    lock.unlock();
    futexWait(its.isAsking, 1);
    lock.lock();
  }
  if (monotonicMs() >= its.goodUntilMs) {
    its.isAsking.store(1);
    lock.unlock();
    const int64_t began = monotonicMs();
    Found found = its.source->ask();
    const int64_t ended = monotonicMs();
    lock.lock();
    its.isAsking.store(0);
    if (found.view) {
      its.view = std::move(found.view);
      its.viewAtMs = ended;
      its.failure = kSuccess;
      its.lastMessage.clear();
    } else if (found.failure->code != kTimeout || ended - its.viewAtMs > kStaleMs || !its.view) {
      its.failure = found.failure->code;
      tell(its, found.failure->message);
    }
    // A caller with a hundred queries must not wait a hundred times for a source that does not respond.
    its.goodUntilMs = ended + std::max(kFreshMs, found.failure ? 2 * (ended - began) : 0);
    futexWake(its.isAsking, INT_MAX);
  }
  if (its.failure != kSuccess) return its.failure;
  view = its.view;
  return kSuccess;
}

Return Library::refuse(const char* name, std::atomic<bool>& said) {
  if (const Return ready = check(); ready != kSuccess) return ready;
  logOnce(said, LogLevel::Info, "%s is not supported", name);
  return kNotSupported;
}

Return Library::refuse(const char* name, std::atomic<bool>& said, Handle device) {
  if (const Return ready = check(); ready != kSuccess) return ready;
  return View::isHandle(device) ? refuse(name, said) : kInvalidArgument;
}

}  // namespace millpond::nvml
