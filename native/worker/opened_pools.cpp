// SPDX-License-Identifier: Apache-2.0
#include "worker/opened_pools.h"

#include <algorithm>
#include <utility>

namespace millpond::worker {

OpenedPools::Pools::const_iterator OpenedPools::live(uint64_t pool) const {
  const auto found = pools_.find(pool);
  return found != pools_.end() && found->second.isDestroyed ? pools_.end() : found;
}

bool OpenedPools::add(uint64_t pool, Source source, size_t device) {
  Pool fresh;
  fresh.source = std::move(source);
  fresh.device = device;
  return pools_.emplace(pool, std::move(fresh)).second;
}

bool OpenedPools::destroy(uint64_t pool) {
  if (live(pool) == pools_.end()) return false;
  const auto found = pools_.find(pool);
  found->second.isDestroyed = true;
  eraseIfGone(found);
  return true;
}

void OpenedPools::eraseIfGone(Pools::iterator pool) {
  if (pool->second.isDestroyed && pool->second.runs.empty()) pools_.erase(pool);
}

std::optional<OpenedPools::View> OpenedPools::find(uint64_t pool) const {
  const auto found = live(pool);
  if (found == pools_.end()) return std::nullopt;
  return View{found->second.source, found->second.device};
}

std::optional<MemoryPools::Usage> OpenedPools::usage(uint64_t pool) const {
  const auto found = live(pool);
  if (found == pools_.end()) return std::nullopt;
  return found->second.usage;
}

bool OpenedPools::resetHigh(uint64_t pool, bool ofReserved) {
  if (live(pool) == pools_.end()) return false;
  MemoryPools::Usage& usage = pools_.find(pool)->second.usage;
  if (ofReserved)
    usage.reservedHigh = usage.reserved;
  else
    usage.usedHigh = usage.used;
  return true;
}

std::optional<uint64_t> OpenedPools::mapped(uint64_t pool, uint64_t run) const {
  const auto found = live(pool);
  if (found == pools_.end()) return std::nullopt;
  const auto place = found->second.runs.find(run);
  if (place == found->second.runs.end()) return std::nullopt;
  return place->second;
}

void OpenedPools::map(uint64_t pool, uint64_t run, uint64_t start, uint64_t bytes) {
  Pool& of = pools_.find(pool)->second;
  of.runs.emplace(run, start);
  of.usage.reserved += bytes;
  of.usage.reservedHigh = std::max(of.usage.reservedHigh, of.usage.reserved);
  runs_.emplace(start, Run{pool, run, bytes, 0});
}

void OpenedPools::open(uint64_t start, uint64_t address, uint64_t bytes) {
  Run& run = runs_.find(start)->second;
  ++run.uses;
  const auto [opened, isNew] = open_.try_emplace(address, Open{start, bytes, 0});
  ++opened->second.uses;
  if (!isNew) return;
  MemoryPools::Usage& usage = pools_.find(run.pool)->second.usage;
  usage.used += bytes;
  usage.usedHigh = std::max(usage.usedHigh, usage.used);
}

std::optional<uint64_t> OpenedPools::close(uint64_t address) {
  const auto found = open_.find(address);
  if (found == open_.end()) return std::nullopt;
  const uint64_t start = found->second.start;
  if (--found->second.uses == 0) {
    pools_.find(runs_.find(start)->second.pool)->second.usage.used -= found->second.bytes;
    open_.erase(found);
  }
  return start;
}

bool OpenedPools::leave(uint64_t start) {
  const auto run = runs_.find(start);
  if (--run->second.uses) return false;
  const auto pool = pools_.find(run->second.pool);
  pool->second.runs.erase(run->second.number);
  pool->second.usage.reserved -= run->second.bytes;
  runs_.erase(run);
  eraseIfGone(pool);
  return true;
}

}  // namespace millpond::worker
