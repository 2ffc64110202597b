// SPDX-License-Identifier: Apache-2.0
// Runs operations (kernels, copies, callbacks) in the order that their dependencies allow, on threads of its
// own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "softgpu/driver/queue/chaos.h"

namespace millpond::softgpu {

/// A piece of work that runs once, when everything after which it was submitted is done.
class Operation {
 public:
  enum class Kind {
    work,   // takes time: runs on a thread of the dispatcher, or on one that waits for it
    brief,  // takes almost no time: runs immediately on the thread that submits it or finishes its last dependency
    host,   // a program's function, which may block for any length of time
  };
  Operation(Kind kind, std::function<void()> body) : kind_(kind), body_(std::move(body)) {}

  bool isDone() const { return isDone_.load(std::memory_order_acquire); }

 private:
  friend class Dispatcher;
  const Kind kind_;
  std::function<void()> body_;  // must not throw; may be empty
  size_t missing_ = 0;          // number of dependencies that are not done
  std::vector<std::shared_ptr<Operation>> dependents_;
  std::atomic<bool> isDone_ = false;
};
using OperationPtr = std::shared_ptr<Operation>;

/// The threads start on demand, one for each operation that can run at that moment up to a limit, and stay. One
/// dispatcher serves all contexts of the process, because events order the streams of different contexts.
class Dispatcher {
 public:
  Dispatcher() = default;
  /// Must not be called while operations are left.
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  /// From now on work runs in any order that its dependencies allow, after random delays. Call it before the first
  /// submit().
  void disorder(uint64_t seed) { chaos_ = std::make_unique<Chaos>(seed); }
  /// How many operations a queue accepts before calls wait. Set before the first submit().
  size_t queueDepth() const { return queueDepth_; }
  void setQueueDepth(size_t depth) { queueDepth_ = depth; }

  /// Whether the thread that makes an operation ready will run the next one itself, so that no other must be woken.
  enum class Next { left, takenByCaller };

  /// Runs `operation` once all of `after` are done; null pointers among them count as done. A caller that passes
  /// takenByCaller must call wait() for it immediately.
  void submit(const OperationPtr& operation, std::span<const OperationPtr> after, Next next);
  /// Returns when the operation, which has been submitted, is done. Runs it itself if no thread has begun it yet.
  void wait(const OperationPtr& operation);

 private:
  /// Whether it runs immediately on the thread that makes it ready.
  bool isInstant(const Operation& operation) const;
  void runThread();
  void startThread();
  void run(const OperationPtr& operation, Next next);
  void runBrief(std::vector<OperationPtr> operations, Next next);
  std::vector<OperationPtr> finish(Operation& operation, Next next);
  void makeReady(const OperationPtr& operation, Next next);

  std::unique_ptr<Chaos> chaos_;
  size_t queueDepth_ = 0;
  std::mutex mutex_;
  std::condition_variable workAvailable_;
  std::condition_variable somethingDone_;
  std::deque<OperationPtr> ready_;
  std::vector<std::thread> threads_;
  size_t idleThreads_ = 0;
  size_t wakeups_ = 0;        // idle threads that have been woken and have not taken anything yet
  size_t hostFunctions_ = 0;  // running now
  size_t waiters_ = 0;
  bool isStopping_ = false;
};

}  // namespace millpond::softgpu
