// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/memory_pools.h"

#include <algorithm>

namespace millpond::worker {
namespace {

/// A block is reused for a request that needs most of it.
bool fits(uint64_t block, uint64_t bytes) { return block >= bytes && block <= bytes + bytes / 4 + 512; }

}  // namespace

MemoryPools::Pool* MemoryPools::find(uint64_t pool) {
  const auto found = pools_.find(pool);
  return found == pools_.end() || found->second.destroyed ? nullptr : &found->second;
}

bool MemoryPools::create(uint64_t pool, size_t device, uint64_t maxBytes) {
  Pool fresh;
  fresh.maxBytes = maxBytes;
  fresh.device = device;
  return pools_.emplace(pool, std::move(fresh)).second;
}

bool MemoryPools::destroy(uint64_t pool, std::vector<Block>& released) {
  Pool* live = find(pool);
  if (!live) return false;
  live->destroyed = true;
  live->threshold = 0;
  releaseDownTo(pool, *live, 0, released);
  eraseIfGone(pools_.find(pool));
  return true;
}

void MemoryPools::eraseIfGone(Pools::iterator pool) {
  if (pool->second.destroyed && pool->second.usage.reserved == 0) pools_.erase(pool);
}

std::optional<size_t> MemoryPools::device(uint64_t pool) const {
  const auto found = pools_.find(pool);
  if (found == pools_.end() || found->second.destroyed) return std::nullopt;
  return found->second.device;
}

bool MemoryPools::setThreshold(uint64_t pool, uint64_t bytes) {
  Pool* live = find(pool);
  if (live) live->threshold = bytes;
  return live != nullptr;
}

bool MemoryPools::resetHigh(uint64_t pool, bool ofReserved) {
  Pool* live = find(pool);
  if (!live) return false;
  if (ofReserved)
    live->usage.reservedHigh = live->usage.reserved;
  else
    live->usage.usedHigh = live->usage.used;
  return true;
}

std::vector<uint64_t> MemoryPools::all() const {
  std::vector<uint64_t> numbers;
  for (const auto& [number, pool] : pools_)
    if (!pool.destroyed) numbers.push_back(number);
  return numbers;
}

size_t MemoryPools::idleBlocks(size_t device) const {
  size_t blocks = 0;
  for (const auto& [number, pool] : pools_)
    if (pool.device == device) blocks += pool.idle.size();
  return blocks;
}

bool MemoryPools::raiseHigh(uint64_t pool, uint64_t reserved, uint64_t used) {
  Pool* live = find(pool);
  if (!live) return false;
  live->usage.reservedHigh = std::max(live->usage.reservedHigh, reserved);
  live->usage.usedHigh = std::max(live->usage.usedHigh, used);
  return true;
}

std::optional<MemoryPools::Usage> MemoryPools::usage(uint64_t pool) const {
  const auto found = pools_.find(pool);
  if (found == pools_.end() || found->second.destroyed) return std::nullopt;
  return found->second.usage;
}

void MemoryPools::use(Pool& pool, const Block& block, uint64_t wanted) {
  used_.emplace(block.address, Used{block, wanted});
  pool.usage.used += wanted;
  pool.usage.usedHigh = std::max(pool.usage.usedHigh, pool.usage.used);
}

std::optional<uint64_t> MemoryPools::reuse(uint64_t pool, uint64_t bytes, StreamKey stream, uint64_t wanted) {
  Pool* live = find(pool);
  if (!live) return std::nullopt;
  // The block freed last is the most likely to be in caches.
  const auto own = std::find_if(freed_.rbegin(), freed_.rend(), [&](const Freed& each) {
    return each.stream == stream && each.block.pool == pool && fits(each.block.bytes, bytes);
  });
  if (own != freed_.rend()) {
    const Block block = own->block;
    freed_.erase(std::next(own).base());
    use(*live, block, wanted);
    return block.address;
  }
  const auto idle = live->idle.lower_bound(bytes);
  if (idle == live->idle.end() || !fits(idle->first, bytes)) return std::nullopt;
  const Block block{idle->second, idle->first, pool};
  live->idle.erase(idle);
  use(*live, block, wanted);
  return block.address;
}

bool MemoryPools::makeRoom(uint64_t pool, uint64_t bytes, std::vector<Block>& released) {
  Pool* live = find(pool);
  if (!live || live->maxBytes == 0) return live != nullptr;
  if (bytes > live->maxBytes) return false;
  releaseDownTo(pool, *live, live->maxBytes - bytes, released);
  return live->usage.reserved <= live->maxBytes - bytes;
}

void MemoryPools::add(const Block& block, uint64_t wanted) {
  Pool& pool = pools_.find(block.pool)->second;
  pool.usage.reserved += block.bytes;
  pool.usage.reservedHigh = std::max(pool.usage.reservedHigh, pool.usage.reserved);
  blocks_.insert(block.address);
  use(pool, block, wanted);
}

std::optional<uint64_t> MemoryPools::poolOf(uint64_t address) const {
  const auto found = used_.find(address);
  if (found == used_.end()) return std::nullopt;
  return found->second.block.pool;
}

std::optional<MemoryPools::Block> MemoryPools::take(uint64_t address) {
  const auto found = used_.find(address);
  if (found == used_.end()) return std::nullopt;
  const auto [block, wanted] = found->second;
  used_.erase(found);
  blocks_.erase(address);
  const auto pool = pools_.find(block.pool);
  pool->second.usage.used -= wanted;
  pool->second.usage.reserved -= block.bytes;
  eraseIfGone(pool);
  return block;
}

bool MemoryPools::free(uint64_t address, StreamKey stream, uint64_t number) {
  const auto found = used_.find(address);
  if (found == used_.end()) return false;
  const auto& [block, wanted] = found->second;
  pools_.find(block.pool)->second.usage.used -= wanted;
  freed_.push_back({block, stream, number});
  used_.erase(found);
  return true;
}

void MemoryPools::happened(uint64_t number, std::vector<Block>& released) {
  const auto freed =
      std::find_if(freed_.begin(), freed_.end(), [&](const Freed& each) { return each.number == number; });
  if (freed == freed_.end()) return;  // in use again
  const Block block = freed->block;
  freed_.erase(freed);
  const auto pool = pools_.find(block.pool);
  pool->second.idle.emplace(block.bytes, block.address);
  if (pool->second.destroyed || number <= synchronised_)
    releaseDownTo(block.pool, pool->second, pool->second.threshold, released);
  eraseIfGone(pool);
}

void MemoryPools::synchronise(uint64_t number, std::vector<Block>& released) {
  synchronised_ = number;
  for (auto& [pool, entry] : pools_) releaseDownTo(pool, entry, entry.threshold, released);
}

bool MemoryPools::trim(uint64_t pool, uint64_t bytes, std::vector<Block>& released) {
  Pool* live = find(pool);
  if (live) releaseDownTo(pool, *live, bytes, released);
  return live != nullptr;
}

void MemoryPools::trimDevice(size_t device, std::vector<Block>& released) {
  for (auto& [pool, entry] : pools_)
    if (entry.device == device) releaseDownTo(pool, entry, 0, released);
}

void MemoryPools::releaseDownTo(uint64_t number, Pool& pool, uint64_t bytes, std::vector<Block>& released) {
  while (pool.usage.reserved > bytes && !pool.idle.empty()) {
    const auto largest = std::prev(pool.idle.end());
    released.push_back({largest->second, largest->first, number});
    pool.usage.reserved -= largest->first;
    blocks_.erase(largest->second);
    pool.idle.erase(largest);
  }
}

}  // namespace millpond::worker
