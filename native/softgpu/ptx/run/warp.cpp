// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/run/warp.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "softgpu/ptx/run/block.h"

namespace millpond::softgpu::ptx {
namespace {

/// Turns that lanes wait at a join before they continue alone; fewer if the others appear to wait.
constexpr uint32_t kPatience = 64;
constexpr uint32_t kPatienceWithWaiters = 4;

constexpr size_t kRegisterAlignment = 64;
/// Minimum stack use of every call: return address and the like.
constexpr uint32_t kLeastFrameBytes = 16;

uint32_t lowest(uint32_t mask) { return static_cast<uint32_t>(std::countr_zero(mask)); }

}  // namespace

Frame* FrameStore::take(uint32_t function) {
  std::vector<Frame*>& free = free_[function];
  if (!free.empty()) {
    Frame* frame = free.back();
    free.pop_back();
    return frame;
  }
  auto owned = std::make_unique<Owned>();
  const FunctionCode& code = program_.functions[function];
  // Zeroed once: programs that read uninitialized memory get the same every time they run in a fresh grid.
  owned->memory = std::make_unique<std::byte[]>(code.registerBytes + kRegisterAlignment);
  size_t misaligned = reinterpret_cast<uintptr_t>(owned->memory.get()) % kRegisterAlignment;
  owned->frame.registers = owned->memory.get() + (misaligned ? kRegisterAlignment - misaligned : 0);
  owned->frame.function = &code;
  owned->frame.functionIndex = function;
  all_.push_back(std::move(owned));
  return &all_.back()->frame;
}

void Warp::begin(Block& block, uint32_t index, uint32_t lanes) {
  block_ = &block;
  index_ = index;
  alive_ = lanes;
  current_ = kNone;
  freeSplits_ = UINT32_MAX;
  collecting_ = 0;
  order_.clear();
  joins_.clear();
  freeJoins_.clear();
  usedJoins_.clear();
  context.warp = this;
  context.block = &block;
  context.carry = 0;
  context.exchange = nullptr;
  std::fill(std::begin(stackEnd_), std::end(stackEnd_), context.localBytes);
  context.stackEnd = stackEnd_;
  for (uint32_t k = 0; k < 3; ++k) context.threadIndex[k] = thread[k];
  newSplit(block.grid().function->code.data(), lanes, nullptr, kNone);
}

bool Warp::canRun() const {
  return std::any_of(order_.begin(), order_.end(),
                     [&](int32_t s) { return splits_[static_cast<size_t>(s)].state == State::kReady; }) ||
         std::any_of(usedJoins_.begin(), usedJoins_.end(),
                     [&](int32_t j) { return joins_[static_cast<size_t>(j)].arrived != 0; });
}

Stop Warp::run() {
  context.stop = Stop::kNone;
  context.budget = kTurnBudget;
  context.mayWait = false;
  const Instruction* next = pickNext();
  while (next) next = next->run(next, context);
  return context.stop;
}

const Instruction* Warp::stop(Stop reason) {
  context.stop = reason;
  return nullptr;
}

int32_t Warp::newSplit(const Instruction* next, uint32_t mask, Frame* frame, int32_t parent) {
  // The lanes of splits are disjoint and not empty, so there is always a free one.
  int32_t index = static_cast<int32_t>(lowest(freeSplits_));
  freeSplits_ &= freeSplits_ - 1;
  Split& split = splits_[static_cast<size_t>(index)];
  split = Split{};
  split.next = next;
  split.mask = mask;
  split.frame = frame;
  split.parent = parent;
  order_.push_back(index);
  return index;
}

void Warp::freeSplit(int32_t split) {
  freeSplits_ |= uint32_t{1} << split;
  order_.erase(std::find(order_.begin(), order_.end(), split));
}

int32_t Warp::newJoin(const Instruction* at, uint32_t pending, Frame* frame, int32_t parent) {
  int32_t index;
  if (freeJoins_.empty()) {
    index = static_cast<int32_t>(joins_.size());
    joins_.emplace_back();
  } else {
    index = freeJoins_.back();
    freeJoins_.pop_back();
  }
  joins_[static_cast<size_t>(index)] = {at, frame, parent, pending, 0, 0};
  usedJoins_.push_back(index);
  return index;
}

void Warp::freeJoin(int32_t join) {
  usedJoins_.erase(std::find(usedJoins_.begin(), usedJoins_.end(), join));
  freeJoins_.push_back(join);
}

const Instruction* Warp::load(int32_t index) {
  current_ = index;
  Split& split = current();
  if (!split.frame) {
    split.frame = block_->frames().take(block_->grid().kernel->function);
    split.frame->caller = nullptr;
    split.frame->lanes = split.mask;
    split.frame->localBase = 0;
  }
  context.mask = split.mask;
  context.bases[0] = split.frame->registers;
  context.localBase = split.frame->localBase;
  context.exchange = split.hasExchange ? &exchanges_[static_cast<size_t>(index)] : nullptr;
  context.exchangeMask = split.exchangeMask;
  split.hasExchange = false;
  return split.next;
}

/// The current split cannot continue, or its turn is over; it resumes at `resumeAt`.
const Instruction* Warp::switchAway(const Instruction* resumeAt) {
  current().next = resumeAt;
  return pickNext();
}

const Instruction* Warp::pickNext() {
  for (size_t i = order_.size(); i > 0; --i) {
    if (splits_[static_cast<size_t>(order_[i - 1])].state == State::kReady) return load(order_[i - 1]);
  }
  // Running lanes wait for something, possibly for lanes at a join.
  for (size_t i = usedJoins_.size(); i > 0; --i) {
    int32_t join = usedJoins_[i - 1];
    if (joins_[static_cast<size_t>(join)].arrived == 0) continue;
    releaseArrived(join);
    return load(order_.back());
  }
  return stop(alive_ ? Stop::kBlocked : Stop::kExited);
}

/// Lanes that wait at a join continue without the others.
void Warp::releaseArrived(int32_t index) {
  Join& join = joins_[static_cast<size_t>(index)];
  newSplit(join.at, join.arrived, join.frame, join.parent);
  join.arrived = 0;
  join.age = 0;
}

/// From `join` outwards: joins that no other lane will reach pass their lanes on.
void Warp::completeJoins(int32_t index) {
  while (index != kNone) {
    Join join = joins_[static_cast<size_t>(index)];
    if (join.pending != 0) return;
    freeJoin(index);
    if (join.arrived != 0) {
      newSplit(join.at, join.arrived, join.frame, join.parent);
      return;
    }
    index = join.parent;
  }
}

const Instruction* Warp::diverge(const Instruction* branch, const Instruction* const* targets, const uint32_t* masks,
                                 uint32_t count) {
  Frame* frame = current().frame;
  int32_t parent = current().parent;
  const Instruction* meeting = branch->join;
  if (meeting) {
    bool isKnown = parent != kNone && joins_[static_cast<size_t>(parent)].at == meeting &&
                   joins_[static_cast<size_t>(parent)].frame == frame;
    if (!isKnown) parent = newJoin(meeting, context.mask, frame, parent);
  }
  // Groups whose target is the meeting point have arrived. The first other one becomes the current split.
  int32_t self = current_;
  const Instruction* next = nullptr;
  uint32_t mine = 0;
  for (uint32_t g = 0; g < count; ++g) {
    if (targets[g] == meeting) {
      Join& join = joins_[static_cast<size_t>(parent)];
      join.pending &= ~masks[g];
      join.arrived |= masks[g];
    } else if (!next) {
      next = targets[g];
      mine = masks[g];
    } else {
      newSplit(targets[g], masks[g], frame, parent);
    }
  }
  Split& split = splits_[static_cast<size_t>(self)];
  split.mask = mine;
  split.parent = parent;
  context.mask = mine;
  return next;
}

const Instruction* Warp::join(const Instruction* at) {
  Split& split = current();
  int32_t index = split.parent;
  if (index == kNone) return at + 1;
  Join& join = joins_[static_cast<size_t>(index)];
  if (join.at != at || join.frame != split.frame) return at + 1;
  join.pending &= ~split.mask;
  join.arrived |= split.mask;
  if (join.pending != 0) {
    freeSplit(current_);
    return pickNext();
  }
  split.mask = join.arrived;
  split.parent = join.parent;
  context.mask = split.mask;
  freeJoin(index);
  // The next join outwards may be at the same place.
  return at;
}

const Instruction* Warp::pause(const Instruction* next) {
  GridState& grid = block_->grid();
  current().next = next;
  if (grid.isCancelled() || grid.isStopped.load(std::memory_order_relaxed) || grid.isOverdue())
    return stop(Stop::kFailed);
  uint32_t patience = context.mayWait ? kPatienceWithWaiters : kPatience;
  for (int32_t j = current().parent; j != kNone; j = joins_[static_cast<size_t>(j)].parent) {
    Join& join = joins_[static_cast<size_t>(j)];
    if (join.arrived != 0 && ++join.age >= patience) releaseArrived(j);
  }
  // To the end of the queue, after all others.
  auto self = std::find(order_.begin(), order_.end(), current_);
  std::rotate(order_.begin(), self, self + 1);
  context.budget = kTurnBudget;
  context.mayWait = false;
  return stop(Stop::kPaused);
}

const Instruction* Warp::exit(const Instruction* at, uint32_t lanes) {
  Split& split = current();
  for (int32_t j = split.parent; j != kNone; j = joins_[static_cast<size_t>(j)].parent) {
    joins_[static_cast<size_t>(j)].pending &= ~lanes;
  }
  for (Frame* frame = split.frame; frame;) {
    Frame* caller = frame->caller;
    frame->lanes &= ~lanes;
    if (frame->lanes == 0) block_->frames().giveBack(frame);
    frame = caller;
  }
  alive_ &= ~lanes;
  split.mask &= ~lanes;
  context.mask = split.mask;
  bool isOver = split.mask == 0;
  if (isOver) {
    int32_t parent = split.parent;
    freeSplit(current_);
    current_ = kNone;
    completeJoins(parent);
  } else {
    split.next = at + 1;
  }
  completeCollectives();
  block_->lanesEnded(static_cast<uint32_t>(std::popcount(lanes)));
  return isOver ? pickNext() : at + 1;
}

uint32_t Warp::leastStackEnd(uint32_t lanes) const {
  uint32_t least = context.localBytes;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) least = std::min(least, stackEnd_[lowest(rest)]);
  return least;
}

const Instruction* Warp::call(const Instruction* at, uint32_t function) {
  const CallSite& site = *static_cast<const CallSite*>(at->table);
  Split& split = current();
  Frame* caller = split.frame;
  const FunctionCode& callee = block_->grid().module->code().functions[function];
  uint32_t base = caller->localBase + std::max(caller->function->localBytes, kLeastFrameBytes);
  const uint32_t end = leastStackEnd(context.mask);
  if (base > end || end - base < callee.localBytes) {
    return fault(at, FaultKind::kStackOverflow, {lowest(context.mask), 0, 0, false});
  }
  Frame* frame = block_->frames().take(function);
  frame->caller = caller;
  frame->returnTo = at + 1;
  frame->site = &site;
  frame->lanes = context.mask;
  frame->localBase = base;
  for (uint32_t a = 0; a < site.argumentCount; ++a) {
    const CallValue& value = site.values[a];
    for (uint32_t rest = context.mask; rest; rest &= rest - 1) {
      std::byte* lane = context.local + size_t{lowest(rest)} * context.localBytes;
      std::memcpy(lane + base + value.calleeOffset, lane + caller->localBase + value.callerOffset, value.bytes);
    }
  }
  split.frame = frame;
  context.bases[0] = frame->registers;
  context.localBase = base;
  return callee.code.data();
}

const Instruction* Warp::callEach(const Instruction* at, const uint64_t* address) {
  uint32_t first = lowest(context.mask);
  const std::vector<FunctionCode>& functions = block_->grid().module->code().functions;
  uint64_t target = address[first];
  uint32_t same = 0;
  for (uint32_t rest = context.mask; rest; rest &= rest - 1) {
    uint32_t l = lowest(rest);
    if (address[l] == target) same |= uint32_t{1} << l;
  }
  uint64_t index = target - kFunctionWindow;
  bool isGood = target >= kFunctionWindow && index < functions.size() && functions[index].hasBody &&
                !functions[index].isEntry && functions[index].signature == static_cast<uint64_t>(at->immediate);
  if (!isGood) return fault(at, FaultKind::kIllegalInstruction, {first, target, 0, false});
  if (same != context.mask) {
    // The others execute the call again, to their own targets; all reconverge after it.
    const Instruction* targets[2] = {at, at};
    uint32_t masks[2] = {same, context.mask & ~same};
    diverge(at, targets, masks, 2);
  }
  return call(at, static_cast<uint32_t>(index));
}

const Instruction* Warp::returnToCaller() {
  Split& split = current();
  Frame* frame = split.frame;
  const CallSite& site = *frame->site;
  Frame* caller = frame->caller;
  for (uint32_t r = 0; r < site.returnCount; ++r) {
    const CallValue& value = site.values[site.argumentCount + r];
    for (uint32_t rest = context.mask; rest; rest &= rest - 1) {
      std::byte* lane = context.local + size_t{lowest(rest)} * context.localBytes;
      std::memcpy(lane + caller->localBase + value.callerOffset, lane + frame->localBase + value.calleeOffset,
                  value.bytes);
    }
  }
  const Instruction* next = frame->returnTo;
  frame->lanes &= ~context.mask;
  if (frame->lanes == 0) block_->frames().giveBack(frame);
  split.frame = caller;
  context.bases[0] = caller->registers;
  context.localBase = caller->localBase;
  return next;
}

const Instruction* Warp::waitFor(const Instruction* at, uint32_t lanes, uint32_t members, const uint64_t* values) {
  int32_t self = current_;
  if (lanes != context.mask) {
    newSplit(at, context.mask & ~lanes, current().frame, current().parent);
    current().mask = lanes;
  }
  Split& split = splits_[static_cast<size_t>(self)];
  split.state = State::kAtCollective;
  collecting_ |= uint32_t{1} << self;
  split.members = members;
  split.next = at;
  std::memcpy(exchanges_[static_cast<size_t>(self)].value, values, sizeof(Exchange));
  completeCollectives();
  return split.state == State::kReady ? load(self) : pickNext();
}

/// Wakes the splits whose collective instruction all members have reached.
void Warp::completeCollectives() {
  for (uint32_t open = collecting_; open;) {
    uint32_t members = splits_[lowest(open)].members;
    uint32_t group = 0;
    uint32_t present = 0;
    for (uint32_t rest = open; rest; rest &= rest - 1) {
      const Split& split = splits_[lowest(rest)];
      if (split.members != members) continue;
      group |= uint32_t{1} << lowest(rest);
      present |= split.mask;
    }
    open &= ~group;
    if (members & alive_ & ~present) continue;
    Exchange all{};
    for (uint32_t rest = group; rest; rest &= rest - 1) {
      const Exchange& own = exchanges_[lowest(rest)];
      for (uint32_t lanes = splits_[lowest(rest)].mask; lanes; lanes &= lanes - 1)
        all.value[lowest(lanes)] = own.value[lowest(lanes)];
    }
    for (uint32_t rest = group; rest; rest &= rest - 1) {
      Split& split = splits_[lowest(rest)];
      exchanges_[lowest(rest)] = all;
      split.exchangeMask = present;
      split.hasExchange = true;
      split.state = State::kReady;
    }
    collecting_ &= ~group;
  }
}

uint32_t Warp::actForAll(const Instruction* at) {
  uint32_t lanes = context.mask;
  for (const int32_t s : order_) {
    Split& split = splits_[static_cast<size_t>(s)];
    if (s == current_ || !split.hasExchange || split.next != at) continue;
    // Their registers are not in this frame.
    if (split.frame != current().frame) return 0;
    lanes |= split.mask;
    split.next = at + 1;
    split.hasExchange = false;
  }
  return lanes;
}

const Instruction* Warp::barrier(const Instruction* at, BarrierKind kind, uint32_t id, uint32_t threads,
                                 uint32_t predicate) {
  Split& split = current();
  bool reduces = kind != BarrierKind::kSync && kind != BarrierKind::kArrive;
  if (kind != BarrierKind::kArrive) {
    split.state = State::kAtBarrier;
    split.barrier = static_cast<uint8_t>(id);
    split.barrierKind = kind;
    split.next = reduces ? at : at + 1;
  }
  int32_t self = current_;
  bool isComplete = block_->reach(id, *this, context.mask, kind, threads, predicate & context.mask);
  if (kind == BarrierKind::kArrive) return at + 1;
  return isComplete ? load(self) : pickNext();
}

void Warp::wakeFromBarrier(uint32_t barrier, uint32_t countTrue, bool areAllTrue) {
  for (int32_t s : order_) {
    Split& split = splits_[static_cast<size_t>(s)];
    if (split.state != State::kAtBarrier || split.barrier != barrier) continue;
    split.state = State::kReady;
    if (split.barrierKind == BarrierKind::kSync) continue;
    exchanges_[static_cast<size_t>(s)].value[0] = split.barrierKind == BarrierKind::kReduceCount ? countTrue
                                                  : split.barrierKind == BarrierKind::kReduceAnd ? areAllTrue
                                                                                                 : countTrue != 0;
    split.hasExchange = true;
  }
}

void Warp::describeWait(Fault& fault) const {
  if (order_.empty()) return;
  const Split& split = splits_[static_cast<size_t>(order_.back())];
  uint32_t lane = lowest(split.mask);
  fault.thread = {thread[0][lane], thread[1][lane], thread[2][lane]};
  fault.line = split.next->line;
  fault.function = split.frame->function->name;
}

void Warp::abandon() {
  // Frames are shared by splits and joins: each is returned once, when its last lane is removed.
  auto leave = [&](Frame* frame, uint32_t lanes) {
    while (frame) {
      Frame* caller = frame->caller;
      bool hadLanes = frame->lanes != 0;
      frame->lanes &= ~lanes;
      if (hadLanes && frame->lanes == 0) block_->frames().giveBack(frame);
      frame = caller;
    }
  };
  for (int32_t s : order_) leave(splits_[static_cast<size_t>(s)].frame, splits_[static_cast<size_t>(s)].mask);
  for (int32_t j : usedJoins_) leave(joins_[static_cast<size_t>(j)].frame, joins_[static_cast<size_t>(j)].arrived);
  order_.clear();
  usedJoins_.clear();
  alive_ = 0;
}

const Instruction* Warp::fault(const Instruction* at, FaultKind kind, const FaultSite& site, std::string detail) {
  Fault out;
  out.kind = kind;
  const uint32_t* position = block_->position();
  out.block = {position[0], position[1], position[2]};
  out.thread = {thread[0][site.lane], thread[1][site.lane], thread[2][site.lane]};
  out.address = site.address;
  out.bytes = site.bytes;
  out.isWrite = site.isWrite;
  out.line = at->line;
  out.function = current().frame->function->name;
  out.detail = std::move(detail);
  block_->grid().fail(std::move(out));
  return stop(Stop::kFailed);
}

}  // namespace millpond::softgpu::ptx
