// SPDX-License-Identifier: Apache-2.0
#include "client/memory_map.h"

#include <algorithm>

namespace millpond::client {

void MemoryMap::add(MemoryRun run) {
  std::lock_guard lock(mutex_);
  run.id = nextId_++;
  runs_[run.address] = run;
}

bool MemoryMap::addApart(MemoryRun run) {
  std::lock_guard lock(mutex_);
  const auto next = runs_.lower_bound(run.address);
  if (next != runs_.end() && next->first - run.address < run.bytes) return false;
  if (next != runs_.begin())
    if (const MemoryRun& before = std::prev(next)->second; run.address - before.address < before.bytes) return false;
  run.id = nextId_++;
  runs_[run.address] = run;
  return true;
}

std::optional<MemoryRun> MemoryMap::take(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = runs_.find(address);
  if (found == runs_.end()) return std::nullopt;
  const MemoryRun run = found->second;
  runs_.erase(found);
  return run;
}

std::optional<MemoryRun> MemoryMap::find(uint64_t address) const { return find(address, 1); }

std::optional<MemoryRun> MemoryMap::find(uint64_t address, uint64_t bytes) const {
  std::shared_lock lock(mutex_);
  auto next = runs_.upper_bound(address);
  if (next == runs_.begin()) return std::nullopt;
  const MemoryRun& run = std::prev(next)->second;
  const uint64_t offset = address - run.address;
  if (offset >= run.bytes || bytes > run.bytes - offset) return std::nullopt;
  return run;
}

bool MemoryMap::covers(uint64_t address, uint64_t bytes) const {
  if (bytes > UINT64_MAX - address) return false;
  const uint64_t end = address + bytes;
  std::shared_lock lock(mutex_);
  auto run = runs_.upper_bound(address);
  if (run == runs_.begin()) return false;
  for (--run; run != runs_.end() && address - run->first < run->second.bytes; ++run) {
    address = run->first + run->second.bytes;
    if (end <= address) return true;
    if (!(run->second.flags & MemoryRun::kMapped)) return false;
  }
  return false;
}

std::vector<uint64_t> MemoryMap::dropDevice(uint16_t context) {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> allocated;
  for (auto run = runs_.begin(); run != runs_.end();) {
    if (run->second.kind != MemoryKind::kDevice || run->second.context != context ||
        (run->second.flags & MemoryRun::kMapped)) {
      ++run;
      continue;
    }
    if (!(run->second.flags & MemoryRun::kBorrowed)) allocated.push_back(run->first);
    run = runs_.erase(run);
  }
  return allocated;
}

}  // namespace millpond::client
