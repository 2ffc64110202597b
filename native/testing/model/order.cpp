// SPDX-License-Identifier: Apache-2.0
#include "testing/model/order.h"

#include <algorithm>
#include <cstddef>

namespace millpond::model {
namespace {

/// A card's streams take about a thousand commands each; then calls wait. Some commands are several.
constexpr size_t kMostHeldUp = 400;

bool callsDriver(OpKind kind) {
  switch (kind) {
    case OpKind::storeWord:
    case OpKind::fulfil:
    case OpKind::hostUpdate:
    case OpKind::hostCheck:
    case OpKind::send:
    case OpKind::receive: return false;
    default: return true;
  }
}

}  // namespace

void Moments::insert(size_t moment) {
  if (words_.size() <= moment / 64) words_.resize(moment / 64 + 1);
  words_[moment / 64] |= uint64_t{1} << (moment % 64);
}

void Moments::insertAll(const Moments& others) {
  if (words_.size() < others.words_.size()) words_.resize(others.words_.size());
  for (size_t i = 0; i < others.words_.size(); ++i) words_[i] |= others.words_[i];
}

bool Moments::contains(size_t moment) const {
  return moment / 64 < words_.size() && (words_[moment / 64] >> (moment % 64) & 1) != 0;
}

Order::Order(const Program& program)
    : program_(program),
      threads_(program.threads, kNever),
      blocked_(program.threads, kNever),
      waitedForAll_(program.threads, kNever),
      lanes_(kFirstStream + program.streams.size() + program.threads),
      slots_(slotCount(program)),
      events_(program.events),
      graphs_(program.graphs),
      signals_(program.signals, kNever),
      wordsSet_(program.words),
      promisesUsed_(program.promises),
      promisesFulfilled_(program.promises) {
  lanes_[kLegacy].isLegacy = true;
  for (size_t i = 0; i < program.streams.size(); ++i)
    lanes_[kFirstStream + i].isBlocking = program.streams[i].isBlocking;
}

size_t Order::moment() {
  moments_.emplace_back();
  return moments_.size() - 1;
}

void Order::after(size_t later, size_t earlier) {
  if (earlier == kNever) return;
  moments_[later].before.insertAll(moments_[earlier].before);
  moments_[later].before.insert(earlier);
  maybeAfter(later, earlier);
}

void Order::maybeAfter(size_t later, size_t earlier) {
  if (earlier == kNever) return;
  moments_[later].maybe.insertAll(moments_[earlier].maybe);
  moments_[later].maybe.insert(earlier);
}

bool Order::isBefore(size_t earlier, size_t later) const {
  return earlier == kNever || earlier == later || moments_[later].before.contains(earlier);
}

Order::Lane& Order::laneOf(const Op& op) {
  if (op.isSynchronous) return lanes_[kLegacy];
  return op.stream == kPerThread ? lanes_[kFirstStream + program_.streams.size() + op.thread] : lanes_[op.stream];
}

/// An object: its calls come one after the other.
bool Order::use(size_t& used) {
  if (!isBefore(used, begin_)) return false;
  used = end_;
  return true;
}

bool Order::read(int slot, size_t at, size_t done) {
  Access& access = slots_[static_cast<size_t>(slot)];
  if (!isBefore(access.write, at)) return false;
  access.reads.push_back(done);
  return true;
}

bool Order::write(int slot, size_t at, size_t done) {
  Access& access = slots_[static_cast<size_t>(slot)];
  if (!isBefore(access.write, at)) return false;
  for (const size_t each : access.reads)
    if (!isBefore(each, at)) return false;
  access.write = done;
  access.reads.clear();
  return true;
}

/// Whether it could wait for something that only later ops set.
bool Order::isHeld(size_t moment) const {
  return std::any_of(holds_.begin(), holds_.end(), [&](const Hold& hold) {
    return hold.work == moment || moments_[moment].maybe.contains(hold.work);
  });
}

/// The op's call returns when `work` is done, or could.
void Order::blocksOn(size_t work, bool isCertain) {
  isWait_ = true;
  if (isCertain) {
    after(end_, work);
  } else {
    maybeAfter(end_, work);
  }
}

/// The operation's work follows its stream's work.
Refusal Order::submit(const Op& op) {
  Lane& lane = laneOf(op);
  if (!isBefore(lane.used, begin_)) return Refusal::unordered;
  // The driver creates a thread's default stream when the thread first uses it.
  allocates_ = op.stream == kPerThread && !op.isSynchronous && lane.used == kNever;
  work_ = moment();
  after(work_, begin_);
  after(work_, lane.last);
  early_ = moment();
  after(early_, begin_);
  after(early_, lane.firm);
  const auto behind = [&](const Lane& other) {
    // Which of two calls of different threads comes first may be undetermined; then only what is true in both cases is
    // assumed.
    if (isBefore(other.used, begin_)) {
      after(work_, other.last);
    } else {
      maybeAfter(work_, other.last);
    }
  };
  if (lane.isLegacy) {
    for (Lane& other : lanes_)
      if (other.isBlocking && !other.isLegacy) behind(other);
  } else if (lane.isBlocking) {
    behind(lanes_[kLegacy]);
  }
  lane.last = lane.firm = work_;
  lane.used = end_;
  return Refusal::none;
}

Refusal Order::append(const Op& op) {
  begin_ = moment();
  end_ = moment();
  work_ = kNever;
  isWait_ = locks_ = allocates_ = false;
  after(begin_, threads_[op.thread]);
  after(end_, begin_);
  const Refusal refusal = dispatch(op);
  if (refusal != Refusal::none) return refusal;
  hasBegun_ = hasBegun_ || op.kind != OpKind::graph;
  threads_[op.thread] = end_;
  if (isWait_) blocked_[op.thread] = end_;
  if (isWait_ && op.kind != OpKind::receive) {
    waits_.push_back(end_);
    if (op.kind != OpKind::syncEvent) waitedForAll_[op.thread] = end_;
  }
  if (callsDriver(op.kind))
    calls_.push_back({op.thread, allocates_ || op.kind == OpKind::ask || isByWay(op.variant), end_});
  return settle(op);
}

/// No call may wait for a held op, nor for host functions that could be queued behind one: a driver may run all of them
/// on one thread.
Refusal Order::settle(const Op& op) {
  if (work_ != kNever && isHeld(work_)) {
    // Calls of other threads that wait for all streams could turn out to wait for this, too.
    for (const size_t each : waitedForAll_)
      if (each != end_ && !isBefore(each, begin_)) return Refusal::unordered;
    heldUp_ += op.kind == OpKind::launch ? op.count : 1;
    if (heldUp_ > kMostHeldUp) return Refusal::stuck;
  }
  if (holds_.empty()) heldUp_ = 0;
  if (isWait_ && op.kind != OpKind::receive && couldDeadlock(op)) return Refusal::unordered;
  for (const Hold& hold : holds_) {
    if (moments_[end_].maybe.contains(hold.work)) return Refusal::stuck;
    if (!hold.isPromise) continue;
    for (const size_t each : hostFunctions_)
      if (moments_[end_].maybe.contains(each) && !isBefore(each, hold.call)) return Refusal::stuck;
  }
  return Refusal::none;
}

/// A call that allocates may wait for whatever other threads wait for, and any call for a thread that waits with a lock: what
/// those threads wait for must not depend on anything after the call. Measured on an H200.
bool Order::couldDeadlock(const Op& op) const {
  return std::any_of(calls_.begin(), calls_.end(), [&](const Call& each) {
    if (each.thread == op.thread || (!each.allocates && !locks_) || isBefore(each.end, begin_)) return false;
    return std::any_of(freed_.begin(), freed_.end(), [&](const Freed& hold) {
      return moments_[end_].maybe.contains(hold.work) && isBefore(each.end, hold.by);
    });
  });
}

Refusal Order::dispatch(const Op& op) {
  switch (op.kind) {
    case OpKind::launch: {
      if (Refusal refusal = submit(op); refusal != Refusal::none) return refusal;
      // A card queues about a thousand launches, all of which may be held up by the wait of another stream.
      if (op.count > 200) blocksOn(work_, false);
      return read(op.from, work_, work_) && write(op.to, work_, work_) ? Refusal::none : Refusal::race;
    }
    case OpKind::copy: return copy(op);
    case OpKind::fill: return fill(op);
    case OpKind::record: {
      EventState& event = events_[op.object];
      if (!use(event.used)) return Refusal::unordered;
      if (Refusal refusal = submit(op); refusal != Refusal::none) return refusal;
      event.work = work_;
      laneOf(op).firm = early_;
      return Refusal::none;
    }
    case OpKind::waitEvent: {
      EventState& event = events_[op.object];
      if (event.work == kNever) return Refusal::senseless;
      if (!use(event.used)) return Refusal::unordered;
      if (Refusal refusal = submit(op); refusal != Refusal::none) return refusal;
      after(work_, event.work);
      after(early_, event.work);
      laneOf(op).firm = early_;
      return Refusal::none;
    }
    case OpKind::syncEvent:
    case OpKind::queryEvent: {
      EventState& event = events_[op.object];
      if (event.work == kNever) return Refusal::senseless;
      if (!use(event.used)) return Refusal::unordered;
      if (op.kind == OpKind::queryEvent) return isBefore(event.work, begin_) ? Refusal::none : Refusal::senseless;
      blocksOn(event.work, true);
      return Refusal::none;
    }
    case OpKind::syncStream:
    case OpKind::syncContext: return sync(op);
    case OpKind::queryStream: {
      Lane& lane = laneOf(op);
      if (!isBefore(lane.used, begin_)) return Refusal::unordered;
      for (Hold& hold : holds_) {
        if (lane.last == kNever || !isBefore(hold.work, lane.last)) continue;
        hold.observers.push_back(end_);
        return Refusal::none;
      }
      return Refusal::senseless;
    }
    case OpKind::hostFunction: {
      if (Refusal refusal = submit(op); refusal != Refusal::none) return refusal;
      if (op.object != kNone)
        if (Refusal refusal = hold(op, true); refusal != Refusal::none) return refusal;
      // After all pending host functions.
      for (const size_t each : hostFunctions_) maybeAfter(work_, each);
      hostFunctions_.push_back(work_);
      return op.to < 0 || write(op.to, work_, work_) ? Refusal::none : Refusal::race;
    }
    case OpKind::waitValue:
      if (Refusal refusal = submit(op); refusal != Refusal::none) return refusal;
      return hold(op, false);
    case OpKind::writeValue:
      if (Refusal refusal = submit(op); refusal != Refusal::none) return refusal;
      return release(op, false, work_, work_);
    case OpKind::storeWord: return release(op, false, end_, begin_);
    case OpKind::fulfil: return release(op, true, end_, begin_);
    case OpKind::hostUpdate: return write(op.to, begin_, end_) ? Refusal::none : Refusal::race;
    case OpKind::hostCheck: return read(op.from, begin_, end_) ? Refusal::none : Refusal::race;
    case OpKind::send:
      if (signals_[op.object] != kNever) return Refusal::senseless;
      signals_[op.object] = end_;
      return Refusal::none;
    case OpKind::receive:
      if (signals_[op.object] == kNever) return Refusal::senseless;
      blocksOn(signals_[op.object], true);
      return Refusal::none;
    case OpKind::graph: return graph(op);
    case OpKind::launchGraph: return launchGraph(op);
    case OpKind::updateGraph: {
      GraphState& graph = graphs_[op.object];
      GraphState& other = graphs_[op.count];
      if (!graph.exists || !other.exists || &graph == &other) return Refusal::senseless;
      if (!use(graph.used) || !use(other.used)) return Refusal::unordered;
      graph.body = other.body;
      return Refusal::none;
    }
    case OpKind::ask: return Refusal::none;
  }
  return Refusal::senseless;
}

Refusal Order::copy(const Op& op) {
  const Memory from = bufferOf(program_, op.from).memory;
  const Memory to = bufferOf(program_, op.to).memory;
  const bool isManaged = from == Memory::managed || to == Memory::managed;
  const bool isHostOnly = isHost(from) && isHost(to);
  if (Refusal refusal = submit(op); refusal != Refusal::none) return refusal;
  if (isByWay(op.variant)) {
    // Freeing memory waits for the device.
    if (op.variant == Variant::freed)
      for (const Lane& lane : lanes_) blocksOn(lane.last, false);
    return read(op.from, isHost(from) ? early_ : work_, work_) && write(op.to, work_, work_) ? Refusal::none
                                                                                             : Refusal::race;
  }
  if (isManaged || isHostOnly || (op.isSynchronous && !isHost(from) && !isHost(to))) {
    // How far such a call waits, and when it reads the memory, is unspecified.
    blocksOn(work_, false);
    locks_ = isManaged || isHostOnly;
    return read(op.from, begin_, work_) && write(op.to, begin_, work_) ? Refusal::none : Refusal::race;
  }
  bool isRead = false;
  if (from == Memory::pageable) {
    blocksOn(work_, false);
    isRead = read(op.from, begin_, end_);
  } else if (isHost(from) && !op.isSynchronous) {
    // Measured on an H200: if the stream has no work of its own (events do not count), the call reads the source of a
    // short copy, though what the default stream has, or what the default stream waits for, comes first.
    isRead = read(op.from, early_, work_);
  } else {
    isRead = read(op.from, work_, work_);
  }
  if (!isRead) return Refusal::race;
  if (op.isSynchronous && from != Memory::pageable) blocksOn(work_, true);
  if (to == Memory::pageable) blocksOn(work_, true);
  return write(op.to, work_, work_) ? Refusal::none : Refusal::race;
}

Refusal Order::fill(const Op& op) {
  const Memory to = bufferOf(program_, op.to).memory;
  if (Refusal refusal = submit(op); refusal != Refusal::none) return refusal;
  if (!op.isSynchronous && to != Memory::managed) return write(op.to, work_, work_) ? Refusal::none : Refusal::race;
  blocksOn(work_, false);
  return write(op.to, begin_, work_) ? Refusal::none : Refusal::race;
}

Refusal Order::sync(const Op& op) {
  if (op.kind == OpKind::syncContext) {
    for (const Lane& lane : lanes_) blocksOn(lane.last, isBefore(lane.used, begin_));
    return Refusal::none;
  }
  Lane& lane = laneOf(op);
  if (!isBefore(lane.used, begin_)) return Refusal::unordered;
  allocates_ = op.stream == kPerThread && lane.used == kNever;
  lane.used = end_;
  blocksOn(lane.last, true);
  if (lane.isLegacy)
    for (const Lane& other : lanes_)
      if (other.isBlocking) blocksOn(other.last, isBefore(other.used, begin_));
  return Refusal::none;
}

/// The op's work waits until something later releases it.
Refusal Order::hold(const Op& op, bool isPromise) {
  if (isPromise) {
    if (promisesUsed_[op.object]) return Refusal::senseless;
    promisesUsed_[op.object] = true;
  } else if (wordsSet_[op.object].by != kNever) {
    // The word may still be unset when the stream gets here: what sets it must not come after a call that could wait for this
    // stream, and not be work that could come after the default stream, which waits for this one.
    const WordSet& set = wordsSet_[op.object];
    if (set.isWork && laneOf(op).isBlocking && !isBefore(set.call, begin_)) return Refusal::unordered;
    for (const size_t each : waits_)
      if (!isBefore(each, begin_) && isBefore(each, set.by)) return Refusal::unordered;
    after(work_, set.by);
    return Refusal::none;
  }
  // Work that other threads wait for, or could turn out to wait for, must not follow this.
  for (const size_t each : blocked_)
    if (!isBefore(each, begin_)) return Refusal::unordered;
  holds_.push_back({isPromise, op.object, work_, begin_, {}});
  return Refusal::none;
}

/// `by` releases waits for the operation's object, if `asks` does not wait for that itself.
Refusal Order::release(const Op& op, bool isPromise, size_t by, size_t asks) {
  if (isPromise) {
    if (!promisesUsed_[op.object] || promisesFulfilled_[op.object]) return Refusal::senseless;
    promisesFulfilled_[op.object] = true;
  } else {
    if (wordsSet_[op.object].by != kNever) return Refusal::senseless;
    wordsSet_[op.object] = {by, end_, by == work_};
  }
  for (size_t i = 0; i < holds_.size();) {
    const Hold hold = holds_[i];
    if (hold.isPromise != isPromise || hold.object != op.object) {
      ++i;
      continue;
    }
    if (moments_[asks].maybe.contains(hold.work)) return Refusal::stuck;
    for (const size_t each : hold.observers)
      if (!isBefore(each, asks)) return Refusal::unordered;
    holds_.erase(holds_.begin() + static_cast<std::ptrdiff_t>(i));
    freed_.push_back({hold.work, asks});
    for (size_t each = 0; each < moments_.size(); ++each) {
      if (each == hold.work || moments_[each].before.contains(hold.work)) after(each, by);
      if (each == hold.work || moments_[each].maybe.contains(hold.work)) maybeAfter(each, by);
    }
  }
  return Refusal::none;
}

/// In a graph, the two branches know nothing of each other between joins.
Refusal Order::graph(const Op& op) {
  GraphState& graph = graphs_[op.object];
  if (graph.exists || op.body.empty()) return Refusal::senseless;
  // If other threads run, their calls and a capture could disturb each other.
  if (program_.threads > 1 && (hasBegun_ || op.thread != 0)) return Refusal::senseless;
  std::vector<Access> seen[2] = {std::vector<Access>(slots_.size()), std::vector<Access>(slots_.size())};
  for (const Op& each : op.body) {
    if (each.joins)
      for (auto& branch : seen) branch.assign(slots_.size(), {});
    auto& mine = seen[each.branch];
    const auto& other = seen[1 - each.branch];
    if (each.from >= 0) {
      const auto slot = static_cast<size_t>(each.from);
      if (other[slot].write != kNever) return Refusal::race;
      mine[slot].reads.push_back(0);
    }
    if (each.to >= 0) {
      const auto slot = static_cast<size_t>(each.to);
      if (other[slot].write != kNever || !other[slot].reads.empty()) return Refusal::race;
      mine[slot].write = 0;
    }
  }
  graph.exists = true;
  graph.body = op.body;
  graph.used = end_;
  return Refusal::none;
}

Refusal Order::launchGraph(const Op& op) {
  GraphState& graph = graphs_[op.object];
  if (!graph.exists) return Refusal::senseless;
  if (!use(graph.used)) return Refusal::unordered;
  if (Refusal refusal = submit(op); refusal != Refusal::none) return refusal;
  after(work_, graph.last);
  graph.last = work_;
  bool hasHostFunction = false;
  for (const Op& each : graph.body) {
    hasHostFunction = hasHostFunction || each.kind == OpKind::hostFunction;
    if (each.from >= 0 && !read(each.from, work_, work_)) return Refusal::race;
  }
  for (const Op& each : graph.body) {
    if (each.to < 0) continue;
    Access& access = slots_[static_cast<size_t>(each.to)];
    std::erase(access.reads, work_);
    if (!write(each.to, work_, work_)) return Refusal::race;
  }
  if (hasHostFunction) {
    for (const size_t each : hostFunctions_) maybeAfter(work_, each);
    hostFunctions_.push_back(work_);
  }
  return Refusal::none;
}

std::vector<uint8_t> Order::openPromises() const {
  std::vector<uint8_t> open;
  for (const Hold& hold : holds_)
    if (hold.isPromise) open.push_back(hold.object);
  return open;
}

std::vector<uint8_t> Order::openWords() const {
  std::vector<uint8_t> open;
  for (const Hold& hold : holds_)
    if (!hold.isPromise && std::find(open.begin(), open.end(), hold.object) == open.end()) open.push_back(hold.object);
  return open;
}

Refusal check(const Program& program, size_t* at) {
  Order order(program);
  for (*at = 0; *at < program.ops.size(); ++*at)
    if (Refusal refusal = order.append(program.ops[*at]); refusal != Refusal::none) return refusal;
  return order.openPromises().empty() && order.openWords().empty() ? Refusal::none : Refusal::stuck;
}

}  // namespace millpond::model
