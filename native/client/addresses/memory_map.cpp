// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/memory_map.h"

#include <algorithm>

namespace millpond::client {

void MemoryMap::add(MemoryRun run) {
  std::lock_guard lock(mutex_);
  // There is no message when variables or graph memory end: new memory at the same address shows it.
  auto each = runs_.upper_bound(run.address);
  if (each != runs_.begin()) --each;
  while (each != runs_.end() && (each->first < run.address || each->first - run.address < run.bytes)) {
    const bool overlaps = each->first >= run.address || run.address - each->first < each->second.bytes;
    each = overlaps && (each->second.flags & MemoryRun::kBorrowed) ? runs_.erase(each) : std::next(each);
  }
  insert(run);
}

bool MemoryMap::addApart(MemoryRun run) {
  std::lock_guard lock(mutex_);
  const auto next = runs_.lower_bound(run.address);
  if (next != runs_.end() && next->first - run.address < run.bytes) return false;
  if (next != runs_.begin())
    if (const MemoryRun& before = std::prev(next)->second; run.address - before.address < before.bytes) return false;
  insert(run);
  return true;
}

void MemoryMap::insert(MemoryRun run) {
  run.id = nextId_++;
  runs_[run.address] = run;
  reuseLocked(run.address, run.bytes);
  if (run.kind != MemoryKind::kPinnedLocal) return;
  locals_.fetch_add(1, std::memory_order_relaxed);
  lowestLocal_.store(std::min(lowestLocal_.load(std::memory_order_relaxed), run.address), std::memory_order_relaxed);
  highestLocal_.store(std::max(highestLocal_.load(std::memory_order_relaxed), run.address + run.bytes),
                      std::memory_order_relaxed);
}

void MemoryMap::setMirrored(uint64_t address) {
  std::lock_guard lock(mutex_);
  if (const auto found = runs_.find(address); found != runs_.end()) {
    if (found->second.kind == MemoryKind::kPinnedLocal) locals_.fetch_sub(1, std::memory_order_relaxed);
    found->second.kind = MemoryKind::kMirrored;
  }
}

std::optional<MemoryRun> MemoryMap::take(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = runs_.find(address);
  if (found == runs_.end()) return std::nullopt;
  const MemoryRun run = found->second;
  if (run.kind == MemoryKind::kPinnedLocal) locals_.fetch_sub(1, std::memory_order_relaxed);
  runs_.erase(found);
  end(run);
  return run;
}

void MemoryMap::end(const MemoryRun& run) {
  constexpr unsigned kOthers = MemoryRun::kBorrowed | MemoryRun::kMapped | MemoryRun::kManaged;
  // A pool keeps its memory, and memory freed in the order of a stream is still valid for earlier work.
  if (run.kind != MemoryKind::kDevice || (run.flags & kOthers) || run.pool != 0 || run.bytes == 0) return;
  uint64_t first = run.address;
  uint64_t last = run.address + run.bytes;
  auto next = freed_.upper_bound(first);
  if (next != freed_.begin())
    if (const auto before = std::prev(next); before->second >= first) {
      first = before->first;
      last = std::max(last, before->second);
      freed_.erase(before);
    }
  for (; next != freed_.end() && next->first <= last; next = freed_.erase(next)) last = std::max(last, next->second);
  freed_.emplace(first, last);
}

void MemoryMap::reuse(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  reuseLocked(address, bytes);
}

void MemoryMap::reuseLocked(uint64_t address, uint64_t bytes) {
  if (freed_.empty() || bytes > UINT64_MAX - address) return;
  const uint64_t end = address + bytes;
  auto each = freed_.upper_bound(address);
  if (each != freed_.begin()) --each;
  while (each != freed_.end() && each->first < end) {
    const auto [first, last] = *each;
    if (last <= address) {
      ++each;
      continue;
    }
    each = freed_.erase(each);
    if (first < address) freed_.emplace(first, address);
    if (last > end) each = freed_.emplace(end, last).first;
  }
}

std::map<uint64_t, MemoryRun>::const_iterator MemoryMap::at(uint64_t address) const {
  const auto next = runs_.upper_bound(address);
  if (next == runs_.begin()) return runs_.end();
  const auto run = std::prev(next);
  return address - run->first < run->second.bytes ? run : runs_.end();
}

std::optional<MemoryRun> MemoryMap::find(uint64_t address) const { return find(address, 1); }

std::optional<MemoryRun> MemoryMap::find(uint64_t address, uint64_t bytes) const {
  std::shared_lock lock(mutex_);
  const auto found = at(address);
  if (found == runs_.end() || bytes > found->second.bytes - (address - found->first)) return std::nullopt;
  return found->second;
}

bool MemoryMap::covers(uint64_t address, uint64_t bytes) const {
  std::shared_lock lock(mutex_);
  return coversLocked(address, bytes);
}

bool MemoryMap::coversLocked(uint64_t address, uint64_t bytes) const {
  if (bytes > UINT64_MAX - address) return false;
  const uint64_t end = address + bytes;
  for (auto run = at(address); run != runs_.end() && address - run->first < run->second.bytes; ++run) {
    address = run->first + run->second.bytes;
    if (end <= address) return true;
    if (!(run->second.flags & MemoryRun::kMapped)) return false;
  }
  return false;
}

bool MemoryMap::mayUse(uint64_t address, uint64_t bytes) const {
  if (bytes == 0) return true;
  std::shared_lock lock(mutex_);
  return at(address) != runs_.end() ? coversLocked(address, bytes) : !wasFreedLocked(address);
}

bool MemoryMap::wasFreed(uint64_t address) const {
  std::shared_lock lock(mutex_);
  return wasFreedLocked(address);
}

bool MemoryMap::wasFreedLocked(uint64_t address) const {
  const auto next = freed_.upper_bound(address);
  return next != freed_.begin() && address < std::prev(next)->second;
}

bool MemoryMap::hasOfPool(uint64_t pool) const {
  std::shared_lock lock(mutex_);
  return std::any_of(runs_.begin(), runs_.end(), [pool](const auto& run) { return run.second.pool == pool; });
}

std::vector<uint64_t> MemoryMap::dropDevice(uint16_t context) {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> allocated;
  for (auto run = runs_.begin(); run != runs_.end();) {
    const bool isManaged = run->second.kind == MemoryKind::kMirrored && (run->second.flags & MemoryRun::kManaged);
    if ((run->second.kind != MemoryKind::kDevice && !isManaged) || run->second.context != context ||
        (run->second.flags & MemoryRun::kMapped)) {
      ++run;
      continue;
    }
    if (!isManaged && !(run->second.flags & MemoryRun::kBorrowed)) allocated.push_back(run->first);
    end(run->second);
    run = runs_.erase(run);
  }
  return allocated;
}

}  // namespace millpond::client
