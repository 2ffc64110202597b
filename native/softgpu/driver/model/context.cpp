// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/model/context.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "softgpu/driver/host/log.h"
#include "softgpu/driver/model/device.h"
#include "softgpu/driver/queue/activities.h"

namespace millpond::softgpu {
namespace {

uint64_t nextContextId() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

unsigned long long nextQueueId() {
  // The default stream has its own small number, as in the real driver.
  static std::atomic<unsigned long long> last = 7;
  return ++last;
}

uint64_t threadNumber() {
  static std::atomic<uint64_t> last = 0;
  thread_local const uint64_t number = ++last;
  return number;
}

QueuePtr makeLegacyQueue() {
  auto queue = std::make_shared<Queue>();
  queue->order = Queue::Order::legacy;
  queue->id = 7;
  return queue;
}

// Bytes or counts, as a real card has them.
std::map<CUlimit, size_t> defaultLimits() {
  return {
      {CU_LIMIT_STACK_SIZE, 1024},
      {CU_LIMIT_PRINTF_FIFO_SIZE, 8650752},
      {CU_LIMIT_MALLOC_HEAP_SIZE, size_t{8} << 20},
      {CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2},
      {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048},
      {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
      {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0},
  };
}

}  // namespace

Context::Context(Device& device, Kind kind, unsigned flags)
    : device_(device),
      kind_(kind),
      flags_(flags),
      id_(nextContextId()),
      state_(kind == Kind::primary ? State::dormant : State::alive),
      legacyQueue_(makeLegacyQueue()),
      limits_(defaultLimits()),
      ownMemory_(device) {}

CUstreamAttrValue Queue::attribute(CUstreamAttrID attributeId) {
  std::lock_guard lock(attributesMutex);
  const auto found = attributes.find(attributeId);
  if (found != attributes.end()) return found->second;
  CUstreamAttrValue value{};
  if (attributeId == CU_LAUNCH_ATTRIBUTE_PRIORITY) value.priority = priority;
  // As on a card: none of the existing policies.
  constexpr int32_t kNoPolicy = -1;
  if (attributeId == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) std::memcpy(&value, &kNoPolicy, sizeof kNoPolicy);
  return value;
}

void Queue::setAttribute(CUstreamAttrID attributeId, const CUstreamAttrValue& value) {
  std::lock_guard lock(attributesMutex);
  attributes[attributeId] = value;
}

void Queue::copyAttributes(Queue& from) {
  if (&from == this) return;
  std::scoped_lock lock(attributesMutex, from.attributesMutex);
  attributes = from.attributes;
}

bool Context::activate() {
  if (state() == State::alive) return true;
  if (!ownMemory_.takeContext()) return false;
  std::lock_guard lock(mutex_);
  id_ = nextContextId();
  isCancelled_ = false;
  isFailing_ = false;
  fault_ = CUDA_SUCCESS;
  limits_ = defaultLimits();
  state_ = State::alive;
  return true;
}

void Context::destroy() {
  state_ = State::destroyed;
  waitForAll(allPending());
  std::lock_guard lock(mutex_);
  queues_.clear();
  threadQueues_.clear();
  legacyQueue_->last = nullptr;
  gate_ = nullptr;
  // Their memory belongs to the context, and ends with it.
  kernelHeap_ = nullptr;
  gridWorkspaces_.forget();
  ownMemory_.release();
}

void Context::fail(CUresult code, const std::string& message) {
  if (isFailing_.exchange(true)) return;
  // The message is logged before the fault becomes visible.
  log(LogLevel::error, message);
  fault_ = code;
  isCancelled_ = true;
}

QueuePtr Context::threadQueue() {
  std::lock_guard lock(mutex_);
  QueuePtr& queue = threadQueues_[threadNumber()];
  if (!queue) {
    queue = std::make_shared<Queue>();
    queue->id = nextQueueId();
    queue->last = gate_;
    queues_.insert(queue);
  }
  return queue;
}

QueuePtr Context::createQueue(unsigned flags, int priority) {
  auto queue = std::make_shared<Queue>();
  queue->order = flags & CU_STREAM_NON_BLOCKING ? Queue::Order::free : Queue::Order::blocking;
  queue->flags = flags;
  queue->priority = priority;
  queue->id = nextQueueId();
  std::lock_guard lock(mutex_);
  dropRetired();
  queue->last = gate_;
  queues_.insert(queue);
  return queue;
}

void Context::retireQueue(const QueuePtr& queue) {
  std::lock_guard lock(mutex_);
  queue->isRetired = true;
  dropRetired();
}

// With the mutex held.
void Context::dropRetired() {
  std::erase_if(queues_,
                [](const QueuePtr& queue) { return queue->isRetired && (!queue->last || queue->last->isDone()); });
}

std::function<void()> Context::guarded(std::function<void()> body) {
  return [context = shared_from_this(), body = std::move(body)] {
    if (context->fault() != CUDA_SUCCESS) return;
    Device& device = context->device();
    if (device.isLost()) {
      const std::string which = std::to_string(device.ordinal());
      return context->fail(CUDA_ERROR_LAUNCH_FAILED, "device " + which + " has fallen off its bus");
    }
    try {
      body();
    } catch (const std::exception& error) {
      context->fail(CUDA_ERROR_UNKNOWN, std::string("an operation failed: ") + error.what());
    }
  };
}

std::function<void()> Context::inPlace(const QueuePtr& queue, std::function<void()> body) {
  queue->places.enter(device_.dispatcher().queueDepth());
  return [queue, body = std::move(body)] {
    body();
    queue->places.leave();
  };
}

OperationPtr Context::enqueue(const QueuePtr& queue, Operation::Kind kind, std::function<void()> body) {
  body = guarded(std::move(body));
  if (kind != Operation::Kind::host) body = inPlace(queue, std::move(body));
  return append(queue, kind, std::move(body), nullptr, Dispatcher::Next::left);
}

CUresult Context::run(const QueuePtr& queue, std::function<void()> body) {
  const OperationPtr operation =
      append(queue, Operation::Kind::work, guarded(std::move(body)), nullptr, Dispatcher::Next::takenByCaller);
  device_.dispatcher().wait(operation);
  return fault();
}

OperationPtr Context::enqueueMarker(const QueuePtr& queue, std::function<void()> body, Operation::Kind kind) {
  return append(queue, kind, std::move(body), nullptr, Dispatcher::Next::left);
}

OperationPtr Context::enqueueTimedMarker(const QueuePtr& queue, std::function<void()> body) {
  return enqueueMarker(queue, inPlace(queue, std::move(body)));
}

void Context::enqueueWait(const QueuePtr& queue, const OperationPtr& operation) {
  if (!operation) return;
  append(queue, Operation::Kind::brief, nullptr, operation, Dispatcher::Next::left);
}

QueuePtr Context::queueBehindAll() {
  const std::vector<OperationPtr> before = allPending();
  QueuePtr queue = createQueue(CU_STREAM_NON_BLOCKING, 0);
  for (const OperationPtr& operation : before) enqueueWait(queue, operation);
  return queue;
}

void Context::enqueueWaitEverywhere(const OperationPtr& operation) {
  if (!operation) return;
  std::vector<QueuePtr> all;
  OperationPtr gate;
  {
    std::lock_guard lock(mutex_);
    all.assign(queues_.begin(), queues_.end());
    all.push_back(legacyQueue_);
    gate = gate_;
  }
  for (const QueuePtr& queue : all) enqueueWait(queue, operation);
  // New queues wait for this one and for those before it.
  auto both = std::make_shared<Operation>(Operation::Kind::brief, nullptr);
  std::lock_guard lock(mutex_);
  gate_ = both;
  const std::vector<OperationPtr> after = {gate, operation};
  device_.dispatcher().submit(both, after, Dispatcher::Next::left);
}

WorkPlace Context::placeOf(const Queue& queue) const {
  return {device_.ordinal(), static_cast<uint32_t>(id()), static_cast<uint32_t>(queue.id)};
}

OperationPtr Context::append(const QueuePtr& queue, Operation::Kind kind, std::function<void()> body,
                             const OperationPtr& alsoAfter, Dispatcher::Next next) {
  if (Activities::instance().isOn() && body) body = Activities::instance().placed(placeOf(*queue), std::move(body));
  auto operation = std::make_shared<Operation>(kind, std::move(body));
  std::lock_guard lock(mutex_);
  std::vector<OperationPtr> after = precedingOf(*queue);
  after.push_back(alsoAfter);
  queue->last = operation;
  // With the mutex held: later operations must find this one submitted.
  device_.dispatcher().submit(operation, after, next);
  return operation;
}

// With the mutex held.
std::vector<OperationPtr> Context::precedingOf(const Queue& queue) {
  std::vector<OperationPtr> after = {queue.last};
  if (queue.order == Queue::Order::legacy) {
    for (const QueuePtr& other : queues_) {
      if (other->order == Queue::Order::blocking) after.push_back(other->last);
    }
  } else if (queue.order == Queue::Order::blocking) {
    after.push_back(legacyQueue_->last);
  }
  return after;
}

OperationPtr Context::enqueueGroup(const QueuePtr& queue, std::vector<GroupMember> members,
                                   const OperationPtr& alsoAfter) {
  Dispatcher& dispatcher = device_.dispatcher();
  const auto make = [](Operation::Kind kind, std::function<void()> body) {
    return std::make_shared<Operation>(kind, std::move(body));
  };
  queue->places.enter(device_.dispatcher().queueDepth());
  std::lock_guard lock(mutex_);
  std::vector<OperationPtr> before = precedingOf(*queue);
  before.push_back(alsoAfter);
  const OperationPtr start = make(Operation::Kind::brief, nullptr);
  dispatcher.submit(start, before, Dispatcher::Next::left);
  std::vector<OperationPtr> operations = {start};
  for (GroupMember& member : members) {
    std::vector<OperationPtr> after = {start};
    for (const size_t place : member.after) after.push_back(operations[place + 1]);
    if (member.alsoAfter) after.push_back(member.alsoAfter());
    std::function<void()> body = std::move(member.body);
    if (body && !member.always) body = guarded(std::move(body));
    if (body && Activities::instance().isOn()) body = Activities::instance().placed(placeOf(*queue), std::move(body));
    const OperationPtr operation = make(member.kind, std::move(body));
    if (member.submitted) member.submitted(operation);
    dispatcher.submit(operation, after, Dispatcher::Next::left);
    operations.push_back(operation);
  }
  const OperationPtr end = make(Operation::Kind::brief, [queue] { queue->places.leave(); });
  queue->last = end;
  dispatcher.submit(end, operations, Dispatcher::Next::left);
  return end;
}

std::vector<OperationPtr> Context::pendingOf(const QueuePtr& queue) {
  std::lock_guard lock(mutex_);
  std::vector<OperationPtr> pending = {queue->last};
  if (queue->order == Queue::Order::legacy) {
    for (const QueuePtr& other : queues_) {
      if (other->order == Queue::Order::blocking) pending.push_back(other->last);
    }
  }
  std::erase_if(pending, [](const OperationPtr& operation) { return !operation || operation->isDone(); });
  return pending;
}

bool Context::isAtWork(const QueuePtr& queue) {
  std::lock_guard lock(mutex_);
  return queue->last && !queue->last->isDone();
}

std::vector<OperationPtr> Context::allPending() {
  std::lock_guard lock(mutex_);
  std::vector<OperationPtr> pending = {legacyQueue_->last};
  for (const QueuePtr& queue : queues_) pending.push_back(queue->last);
  std::erase_if(pending, [](const OperationPtr& operation) { return !operation || operation->isDone(); });
  return pending;
}

void Context::waitForAll(const std::vector<OperationPtr>& operations) {
  for (const OperationPtr& operation : operations) device_.dispatcher().wait(operation);
}

CUresult Context::synchronize(const QueuePtr& queue) {
  waitForAll(pendingOf(queue));
  return fault();
}

CUresult Context::synchronize() {
  waitForAll(allPending());
  return fault();
}

namespace {
/// The error for a limit that this device does not support, or for an unknown limit.
CUresult noSuchLimit(CUlimit limit) {
  return static_cast<unsigned>(limit) < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
}
}  // namespace

CUresult Context::limit(CUlimit limit, size_t* value) {
  std::lock_guard lock(mutex_);
  const auto position = limits_.find(limit);
  if (position == limits_.end()) return noSuchLimit(limit);
  *value = position->second;
  return CUDA_SUCCESS;
}

CUresult Context::setLimit(CUlimit limit, size_t value) {
  std::lock_guard lock(mutex_);
  const auto position = limits_.find(limit);
  if (position == limits_.end()) return noSuchLimit(limit);
  constexpr size_t kLargestStack = 512 * 1024;
  if (limit == CU_LIMIT_STACK_SIZE && value > kLargestStack) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && kernelHeap_) return CUDA_ERROR_INVALID_VALUE;
  position->second = value;
  return CUDA_SUCCESS;
}

std::shared_ptr<ptx::DeviceHeap> Context::kernelHeap(
    const std::function<std::shared_ptr<ptx::DeviceHeap>(uint64_t bytes)>& make) {
  std::lock_guard lock(mutex_);
  if (!kernelHeap_) kernelHeap_ = make(limits_.at(CU_LIMIT_MALLOC_HEAP_SIZE));
  return kernelHeap_;
}

}  // namespace millpond::softgpu
