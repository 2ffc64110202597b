// SPDX-License-Identifier: Apache-2.0
#include "worker/ipc/opened_pools.h"

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

std::optional<uint64_t> OpenedPools::numberOf(const Source& source) const {
  for (const auto& [number, pool] : pools_)
    if (!pool.isDestroyed && pool.source == source) return number;
  return std::nullopt;
}

std::optional<uint64_t> OpenedPools::mapped(uint64_t pool, uint64_t run) const {
  const auto found = live(pool);
  if (found == pools_.end()) return std::nullopt;
  const auto place = found->second.runs.find(run);
  if (place == found->second.runs.end()) return std::nullopt;
  return place->second;
}

void OpenedPools::map(uint64_t pool, uint64_t run, uint64_t start) {
  pools_.find(pool)->second.runs.emplace(run, start);
  runs_.emplace(start, Run{pool, run, 0});
}

void OpenedPools::open(uint64_t start, uint64_t address) {
  if (open_.emplace(address, start).second) ++runs_.find(start)->second.uses;
}

std::optional<uint64_t> OpenedPools::close(uint64_t address) {
  const auto found = open_.find(address);
  if (found == open_.end()) return std::nullopt;
  const uint64_t start = found->second;
  open_.erase(found);
  return start;
}

bool OpenedPools::leave(uint64_t start) {
  const auto run = runs_.find(start);
  if (--run->second.uses) return false;
  const auto pool = pools_.find(run->second.pool);
  pool->second.runs.erase(run->second.number);
  runs_.erase(run);
  eraseIfGone(pool);
  return true;
}

}  // namespace millpond::worker
