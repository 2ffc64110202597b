// SPDX-License-Identifier: Apache-2.0
// A context: the work queued on one device, and the error that ends it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/model/capture_point.h"
#include "softgpu/driver/model/context_memory.h"
#include "softgpu/driver/model/grid_workspaces.h"
#include "softgpu/driver/queue/activities.h"
#include "softgpu/driver/queue/dispatcher.h"
#include "softgpu/driver/queue/queue_places.h"
#include "softgpu/ptx/engine.h"

namespace millpond::softgpu {

class Device;

/// The order of a stream's work. Operations of one queue run one after the other.
struct Queue {
  enum class Order {
    legacy,    // the default stream: waits for all blocking queues, which wait for it
    blocking,  // in step with the legacy queue
    free,      // CU_STREAM_NON_BLOCKING
  };
  Order order = Order::blocking;
  unsigned flags = 0;
  int priority = 0;
  CUgreenCtx green = nullptr;  ///< that it is of
  unsigned long long id = 0;
  OperationPtr last;       // guarded by the context's mutex
  bool isRetired = false;  // guarded too; the stream is gone, and work may remain
  CapturePoint capture;
  QueuePlaces places;

  /// The attributes of cuStreamSetAttribute.
  static bool isAttribute(CUstreamAttrID id) {
    return id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW || id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
           id == CU_LAUNCH_ATTRIBUTE_PRIORITY || id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
           id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
  }
  CUstreamAttrValue attribute(CUstreamAttrID attributeId);
  void setAttribute(CUstreamAttrID attributeId, const CUstreamAttrValue& value);
  void copyAttributes(Queue& from);

  std::mutex attributesMutex;
  std::map<CUstreamAttrID, CUstreamAttrValue> attributes;
};
using QueuePtr = std::shared_ptr<Queue>;

class Context : public std::enable_shared_from_this<Context> {
 public:
  enum class Kind { primary, created };
  enum class State {
    dormant,  // a primary context that nobody has retained yet
    alive,
    destroyed,  // a primary context may become alive again
  };

  /// A created context is alive from the start, and needs `ownMemory().takeContext()`.
  Context(Device& device, Kind kind, unsigned flags);

  Device& device() const { return device_; }
  Kind kind() const { return kind_; }
  CUcontext handle() const { return reinterpret_cast<CUcontext>(const_cast<Context*>(this)); }
  /// Unique to each life, also of one primary context.
  uint64_t id() const { return id_.load(std::memory_order_relaxed); }
  State state() const { return state_.load(std::memory_order_acquire); }
  unsigned flags() const { return flags_.load(std::memory_order_relaxed); }
  void setFlags(unsigned flags) { flags_.store(flags, std::memory_order_relaxed); }

  /// Makes a primary context alive; does nothing if it is. False if the device has no memory for it.
  bool activate();
  /// Ends the context: no call succeeds any more, and queued work is awaited, or skipped after a fault. The caller
  /// releases the context's objects.
  void destroy();

  /// The error that ended the context; CUDA_SUCCESS: there is none.
  CUresult fault() const { return fault_.load(std::memory_order_acquire); }
  /// Ends the context with an error; the first one counts. Running kernels stop soon, and queued work is skipped.
  void fail(CUresult code, const std::string& message);
  /// True when running kernels should stop.
  const std::atomic<bool>& isCancelled() const { return isCancelled_; }

  const QueuePtr& legacyQueue() const { return legacyQueue_; }
  /// The default queue of the calling thread.
  QueuePtr threadQueue();
  QueuePtr createQueue(unsigned flags, int priority);
  /// Forgets a queue; its remaining work runs to completion.
  void retireQueue(const QueuePtr& queue);

  /// Queues work. It is skipped if the context has already failed; an exception in it fails the context. Waits while
  /// the queue is full; host functions take no place in it.
  OperationPtr enqueue(const QueuePtr& queue, Operation::Kind kind, std::function<void()> body);
  /// Queues work, waits for it and returns the context's fault.
  CUresult run(const QueuePtr& queue, std::function<void()> body);
  /// Queues an event: `body` runs when all earlier work of the queue is done, even after a failure.
  OperationPtr enqueueMarker(const QueuePtr& queue, std::function<void()> body,
                             Operation::Kind kind = Operation::Kind::brief);
  /// The same for an event with a time, which takes a place in the queue, as on a card.
  OperationPtr enqueueTimedMarker(const QueuePtr& queue, std::function<void()> body);
  /// Work that is queued as a whole: its members know for which earlier members they wait.
  struct GroupMember {
    Operation::Kind kind = Operation::Kind::brief;
    std::function<void()> body;
    std::vector<size_t> after;                           ///< members before this one
    std::function<OperationPtr()> alsoAfter;             ///< if set, called when this one's turn comes
    bool always = false;                                 ///< runs after a failure too
    std::function<void(const OperationPtr&)> submitted;  ///< if set, receives the operation
  };
  /// Returns an operation that is done when all members, and all earlier work, are. Takes one place in the queue.
  OperationPtr enqueueGroup(const QueuePtr& queue, std::vector<GroupMember> members, const OperationPtr& alsoAfter);
  /// Makes the queue's later work wait for `operation`; null: nothing to wait for.
  void enqueueWait(const QueuePtr& queue, const OperationPtr& operation);
  /// A new queue whose work comes after everything queued in the context so far.
  QueuePtr queueBehindAll();
  /// Makes all later work of the context wait for `operation`, also in queues that are created later.
  void enqueueWaitEverywhere(const OperationPtr& operation);
  /// The work that must be done before the queue counts as idle. Null pointers are ignored.
  std::vector<OperationPtr> pendingOf(const QueuePtr& queue);
  /// Whether it has work of its own that is not done.
  bool isAtWork(const QueuePtr& queue);

  /// Waits for one queue or for all work of the context, and returns its fault.
  CUresult synchronize(const QueuePtr& queue);
  CUresult synchronize();

  /// cuCtxGetLimit and cuCtxSetLimit.
  CUresult limit(CUlimit limit, size_t* value);
  CUresult setLimit(CUlimit limit, size_t value);

  /// The memory from which malloc() in kernels allocates. Created by `make` when it is first needed, with the size in
  /// bytes that the limit then has, which is fixed from then on.
  std::shared_ptr<ptx::DeviceHeap> kernelHeap(
      const std::function<std::shared_ptr<ptx::DeviceHeap>(uint64_t bytes)>& make);

  GridWorkspaces& gridWorkspaces() { return gridWorkspaces_; }
  ContextMemory& ownMemory() { return ownMemory_; }

 private:
  WorkPlace placeOf(const Queue& queue) const;
  std::vector<OperationPtr> precedingOf(const Queue& queue);
  std::function<void()> guarded(std::function<void()> body);
  /// Waits for a place in the queue, which `body` leaves when it is done.
  std::function<void()> inPlace(const QueuePtr& queue, std::function<void()> body);
  OperationPtr append(const QueuePtr& queue, Operation::Kind kind, std::function<void()> body,
                      const OperationPtr& alsoAfter, Dispatcher::Next next);
  void waitForAll(const std::vector<OperationPtr>& operations);
  std::vector<OperationPtr> allPending();
  void dropRetired();

  Device& device_;
  const Kind kind_;
  std::atomic<unsigned> flags_;
  std::atomic<uint64_t> id_;
  std::atomic<State> state_;
  /// Whether a fault exists, or is about to.
  std::atomic<bool> isFailing_ = false;
  std::atomic<CUresult> fault_ = CUDA_SUCCESS;
  std::atomic<bool> isCancelled_ = false;

  std::mutex mutex_;
  QueuePtr legacyQueue_;
  std::set<QueuePtr> queues_;  // all but the legacy queue
  std::map<uint64_t, QueuePtr> threadQueues_;
  OperationPtr gate_;  // operations for which new queues wait
  std::map<CUlimit, size_t> limits_;
  std::shared_ptr<ptx::DeviceHeap> kernelHeap_;
  GridWorkspaces gridWorkspaces_;
  ContextMemory ownMemory_;
};
using ContextPtr = std::shared_ptr<Context>;

}  // namespace millpond::softgpu
