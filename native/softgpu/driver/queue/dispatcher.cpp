// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/queue/dispatcher.h"

#include <algorithm>
#include <iterator>
#include <system_error>

#include "softgpu/driver/host/log.h"
#include "softgpu/driver/host/signals.h"

namespace millpond::softgpu {
namespace {

// As many grids as are resident on a device of compute capability 7.5, so that as many kernels may wait for each other.
// Host functions are counted separately, because they may wait for each other too.
constexpr size_t kMostThreads = 128;

}  // namespace

Dispatcher::~Dispatcher() {
  {
    std::lock_guard lock(mutex_);
    isStopping_ = true;
  }
  workAvailable_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Dispatcher::submit(const OperationPtr& operation, std::span<const OperationPtr> after, Next next) {
  {
    std::lock_guard lock(mutex_);
    for (const OperationPtr& dependency : after) {
      if (!dependency || dependency->isDone()) continue;
      dependency->dependents_.push_back(operation);
      ++operation->missing_;
    }
    if (operation->missing_ > 0) return;
    if (!isInstant(*operation)) {
      makeReady(operation, next);
      return;
    }
  }
  runBrief({operation}, Next::left);
}

void Dispatcher::wait(const OperationPtr& operation) {
  if (operation->isDone()) return;
  std::unique_lock lock(mutex_);
  if (operation->kind_ != Operation::Kind::host) {
    const auto position = std::find(ready_.begin(), ready_.end(), operation);
    if (position != ready_.end()) {
      ready_.erase(position);
      lock.unlock();
      run(operation, Next::left);
      return;
    }
  }
  ++waiters_;
  somethingDone_.wait(lock, [&] { return operation->isDone(); });
  --waiters_;
}

bool Dispatcher::isInstant(const Operation& operation) const {
  // If an operation does nothing, its order is not observable.
  return operation.kind_ == Operation::Kind::brief && !(chaos_ && operation.body_);
}

// With the mutex held.
void Dispatcher::makeReady(const OperationPtr& operation, Next next) {
  const bool wasEmpty = ready_.empty();
  const size_t place = chaos_ ? chaos_->place(ready_.size()) : ready_.size();
  ready_.insert(ready_.begin() + static_cast<std::ptrdiff_t>(place), operation);
  if (next == Next::takenByCaller && wasEmpty) return;
  if (wakeups_ < idleThreads_) {
    ++wakeups_;
    workAvailable_.notify_one();
  } else if (threads_.size() < kMostThreads + hostFunctions_) {
    startThread();
  }
}

// With the mutex held. Without a new thread the operation waits for an existing one.
void Dispatcher::startThread() {
  const SignalsBlocked blocked;
  try {
    threads_.emplace_back([this] {
      ::pthread_setname_np(::pthread_self(), "softgpu-stream");
      runThread();
    });
  } catch (const std::system_error& error) {
    log(LogLevel::error, std::string("cannot start a thread: ") + error.what());
  }
}

void Dispatcher::runThread() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (ready_.empty()) {
      if (isStopping_) return;
      ++idleThreads_;
      workAvailable_.wait(lock, [&] { return wakeups_ > 0 || isStopping_; });
      --idleThreads_;
      if (wakeups_ > 0) --wakeups_;
      continue;
    }
    OperationPtr operation = std::move(ready_.front());
    ready_.pop_front();
    const bool isHost = operation->kind_ == Operation::Kind::host;
    if (isHost) {
      ++hostFunctions_;
      // The limit has just grown: work that waits for a thread may get one now.
      if (!ready_.empty() && wakeups_ >= idleThreads_) startThread();
    }
    lock.unlock();
    run(operation, Next::takenByCaller);
    operation.reset();
    lock.lock();
    if (isHost) --hostFunctions_;
  }
}

void Dispatcher::run(const OperationPtr& operation, Next next) {
  if (chaos_) std::this_thread::sleep_for(chaos_->delay());
  if (operation->body_) operation->body_();
  // The captures of the body are destroyed before the operation is reported as done.
  operation->body_ = nullptr;
  runBrief(finish(*operation, next), next);
}

// Each may make others ready: a loop instead of recursion, for chains of any length.
void Dispatcher::runBrief(std::vector<OperationPtr> operations, Next next) {
  for (size_t i = 0; i < operations.size(); ++i) {
    const OperationPtr operation = std::move(operations[i]);
    if (operation->body_) operation->body_();
    operation->body_ = nullptr;
    std::vector<OperationPtr> more = finish(*operation, next);
    operations.insert(operations.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
}

// Marks the operation done and returns the brief ones that can run now.
std::vector<OperationPtr> Dispatcher::finish(Operation& operation, Next next) {
  std::vector<OperationPtr> brief;
  std::vector<OperationPtr> dependents;
  std::lock_guard lock(mutex_);
  operation.isDone_.store(true, std::memory_order_release);
  dependents.swap(operation.dependents_);
  for (OperationPtr& dependent : dependents) {
    if (--dependent->missing_ > 0) continue;
    if (isInstant(*dependent)) {
      brief.push_back(std::move(dependent));
    } else {
      makeReady(dependent, next);
    }
  }
  if (waiters_ > 0) somethingDone_.notify_all();
  return brief;
}

}  // namespace millpond::softgpu
