// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/run/race.h"

#include <algorithm>
#include <bit>

#include "softgpu/ptx/run/lane_set.h"

namespace millpond::softgpu::ptx {
namespace {

/// Limit on the addresses of atomics that are tracked separately; the others count as one, so that more accesses appear
/// ordered, never fewer.
constexpr size_t kMostAtomics = 4096;

}  // namespace

RaceDetector::RaceDetector(uint32_t threads, uint32_t sharedBytes)
    : threads_(threads), state_(threads), cells_(sharedBytes) {
  const size_t warps = (threads + kLanes - 1) / kLanes;
  for (Barrier& barrier : barriers_) barrier.waiting.assign(warps, 0);
}

void RaceDetector::begin() {
  ++epoch_;
  for (Barrier& barrier : barriers_) {
    std::fill(barrier.waiting.begin(), barrier.waiting.end(), 0);
    barrier.passed = nullptr;
  }
}

RaceDetector::Thread& RaceDetector::self(uint32_t thread) {
  Thread& out = state_[thread];
  if (out.epoch != epoch_) {
    out = Thread{};
    out.epoch = epoch_;
  }
  return out;
}

uint32_t RaceDetector::siteOf(const Instruction* instruction, const FunctionCode* function) {
  const auto [place, isNew] = siteNumbers_.try_emplace(instruction, static_cast<uint32_t>(sites_.size()));
  if (isNew) sites_.push_back({instruction, function});
  return place->second;
}

RaceDetector::RowPtr RaceDetector::joined(const RowPtr& a, const RowPtr& b) {
  if (!b || a == b) return a;
  if (!a) return b;
  Row out = *a;
  for (size_t i = 0; i < out.size(); ++i) out[i] = std::max(out[i], (*b)[i]);
  return std::make_shared<const Row>(std::move(out));
}

void RaceDetector::raise(Row& row, uint32_t thread, const Knowledge& knowledge) const {
  const uint32_t first = thread / kLanes * kLanes;
  const uint32_t count = std::min(kLanes, threads_ - first);
  for (uint32_t l = 0; l < count; ++l) row[first + l] = std::max(row[first + l], knowledge.warp[l]);
  if (!knowledge.block) return;
  for (size_t i = 0; i < row.size(); ++i) row[i] = std::max(row[i], (*knowledge.block)[i]);
}

/// The thread's vector clock, itself included, as released to others; later events are not part of it.
RaceDetector::Knowledge RaceDetector::publish(Thread& thread, uint32_t number) {
  thread.known.block = joined(thread.known.block, thread.pending);
  thread.pending = nullptr;
  Knowledge out = thread.known;
  out.warp[number % kLanes] = thread.clock++;
  return out;
}

uint32_t RaceDetector::heard(const Thread& thread, uint32_t number, uint32_t of) {
  uint32_t out = thread.known.block ? (*thread.known.block)[of] : 0;
  if (of / kLanes == number / kLanes) out = std::max(out, thread.known.warp[of % kLanes]);
  return out;
}

bool RaceDetector::isUnordered(const Stamp& stamp, uint32_t number, bool isAtomic) {
  if (stamp.epoch != epoch_ || stamp.thread == number || (stamp.isAtomic && isAtomic)) return false;
  return heard(self(number), number, stamp.thread) < stamp.clock;
}

const RaceDetector::Stamp* RaceDetector::conflictOf(const Cell& cell, const Access& access, uint32_t byte) {
  // The order of two writes of the same value is not observable.
  const bool isSame = access.isWrite && access.written && access.written[byte] == access.memory[byte];
  if (!isSame && isUnordered(cell.write, access.thread, access.isAtomic)) return &cell.write;
  if (!access.isWrite) return nullptr;
  for (const Stamp& read : cell.reads)
    if (isUnordered(read, access.thread, access.isAtomic)) return &read;
  return nullptr;
}

void RaceDetector::rememberReader(Cell& cell, const Stamp& stamp) {
  const auto isStale = [&](const Stamp& read) {
    return read.epoch != epoch_ || read.thread == stamp.thread || !isUnordered(read, stamp.thread, false);
  };
  for (Stamp& read : cell.reads) {
    if (!isStale(read)) continue;
    read = stamp;
    return;
  }
  // Readers of two warps are more useful than two of one: lanes of a warp are ordered more often.
  if (cell.reads[0].thread / kLanes == cell.reads[1].thread / kLanes) cell.reads[1] = stamp;
}

std::optional<RaceDetector::Race> RaceDetector::access(const Access& access, uint32_t site) {
  std::optional<Race> race;
  const Stamp stamp{epoch_, self(access.thread).clock, site, static_cast<uint16_t>(access.thread), access.isAtomic};
  for (uint32_t byte = 0; byte < access.bytes; ++byte) {
    Cell& cell = cells_[access.offset + byte];
    const Stamp* conflict = race ? nullptr : conflictOf(cell, access, byte);
    if (conflict)
      race = Race{access.offset + byte, conflict->thread, sites_[conflict->site], conflict == &cell.write,
                  conflict->isAtomic};
    if (access.isWrite) {
      cell.write = stamp;
      cell.reads[0].epoch = cell.reads[1].epoch = 0;
    } else {
      rememberReader(cell, stamp);
    }
  }
  return race;
}

void RaceDetector::arriveInWarp(uint32_t warp, uint32_t lanes) {
  forLanes(lanes, [&](uint32_t l) {
    Thread& thread = self(warp * kLanes + l);
    thread.arrived = publish(thread, warp * kLanes + l);
    thread.hasArrived = true;
  });
}

void RaceDetector::leaveInWarp(uint32_t warp, uint32_t lanes, const uint32_t* members) {
  while (lanes) {
    // The lanes that name the same members, together.
    const uint32_t named = members[std::countr_zero(lanes)];
    uint32_t group = 0;
    forLanes(lanes, [&](uint32_t l) { group |= members[l] == named ? uint32_t{1} << l : 0; });
    Knowledge all;
    forLanes(named, [&](uint32_t l) {
      if (warp * kLanes + l >= threads_) return;
      const Thread& thread = self(warp * kLanes + l);
      if (!thread.hasArrived) return;
      for (uint32_t k = 0; k < kLanes; ++k) all.warp[k] = std::max(all.warp[k], thread.arrived.warp[k]);
      all.block = joined(all.block, thread.arrived.block);
    });
    forLanes(group, [&](uint32_t l) {
      Knowledge& known = self(warp * kLanes + l).known;
      for (uint32_t k = 0; k < kLanes; ++k) known.warp[k] = std::max(known.warp[k], all.warp[k]);
      known.block = joined(known.block, all.block);
    });
    lanes &= ~group;
  }
}

void RaceDetector::arriveAtBarrier(uint32_t id, uint32_t warp, uint32_t lanes, bool waits) {
  Barrier& barrier = barriers_[id];
  if (waits) {
    barrier.waiting[warp] |= lanes;
    return;
  }
  Row row = barrier.passed ? *barrier.passed : Row(threads_);
  forLanes(lanes, [&](uint32_t l) {
    const uint32_t number = warp * kLanes + l;
    raise(row, number, publish(self(number), number));
  });
  barrier.passed = std::make_shared<const Row>(std::move(row));
}

void RaceDetector::completeBarrier(uint32_t id, uint32_t alive) {
  Barrier& barrier = barriers_[id];
  uint32_t count = 0;
  for (const uint32_t lanes : barrier.waiting) count += static_cast<uint32_t>(std::popcount(lanes));
  const auto forWaiting = [&](auto body) {
    for (uint32_t w = 0; w < barrier.waiting.size(); ++w)
      forLanes(barrier.waiting[w], [&](uint32_t l) { body(w * kLanes + l); });
  };
  if (!barrier.passed && count == alive) {
    ++epoch_;
  } else {
    Row row = barrier.passed ? *barrier.passed : Row(threads_);
    forWaiting([&](uint32_t number) { raise(row, number, publish(self(number), number)); });
    const RowPtr all = std::make_shared<const Row>(std::move(row));
    forWaiting([&](uint32_t number) { self(number).known.block = joined(self(number).known.block, all); });
  }
  std::fill(barrier.waiting.begin(), barrier.waiting.end(), 0);
  barrier.passed = nullptr;
}

void RaceDetector::fence(uint32_t warp, uint32_t lanes) {
  forLanes(lanes, [&](uint32_t l) {
    Thread& thread = self(warp * kLanes + l);
    thread.fenced = publish(thread, warp * kLanes + l);
    thread.hasFence = true;
  });
}

void RaceDetector::synchronise(uint32_t number, uint64_t address, const Atomic& atomic) {
  if (atomicsEpoch_ != epoch_) {
    atomics_.clear();
    atomicsEpoch_ = epoch_;
  }
  Thread& thread = self(number);
  if (atomics_.size() >= kMostAtomics && !atomics_.contains(address)) address = 0;
  if (const auto found = atomics_.find(address); atomic.isRead && found != atomics_.end()) {
    RowPtr& to = atomic.acquires ? thread.known.block : thread.pending;
    to = joined(to, found->second);
  }
  if (!atomic.isWrite || (!atomic.releases && !thread.hasFence)) return;
  RowPtr& at = atomics_[address];
  Row row = at ? *at : Row(threads_);
  raise(row, number, atomic.releases ? publish(thread, number) : thread.fenced);
  at = std::make_shared<const Row>(std::move(row));
}

}  // namespace millpond::softgpu::ptx
