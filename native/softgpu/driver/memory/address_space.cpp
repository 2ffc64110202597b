// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/memory/address_space.h"

#include <algorithm>
#include <mutex>

namespace millpond::softgpu {

// The region that begins at or before `address`, with the mutex held. It may end before it.
AddressSpace::Regions::const_iterator AddressSpace::locate(uint64_t address) const {
  auto next = regions_.upper_bound(address);
  return next == regions_.begin() ? regions_.end() : std::prev(next);
}

bool AddressSpace::add(Region region) {
  std::unique_lock lock(mutex_);
  auto position = locate(region.base);
  if (position == regions_.end()) position = regions_.lower_bound(region.base);
  while (position != regions_.end() && position->first < region.end()) {
    const Region& other = *position->second;
    if (std::max(other.end(), other.base + other.reach) <= region.base) {
      ++position;
    } else if (other.kind == Region::Kind::registered && region.kind != Region::Kind::registered) {
      position = regions_.erase(position);
    } else {
      return false;
    }
  }
  region.id = ++lastId_;
  region.reach = std::max(region.reach, region.bytes);
  const uint64_t base = region.base;
  regions_.emplace(base, std::make_shared<const Region>(std::move(region)));
  return true;
}

RegionPtr AddressSpace::find(uint64_t address) const {
  std::shared_lock lock(mutex_);
  const auto position = locate(address);
  if (position == regions_.end() || address >= position->second->end()) return nullptr;
  if (position->second->kind == Region::Kind::heap) return nullptr;
  return position->second;
}

RegionPtr AddressSpace::remove(uint64_t base, Region::Kind kind) {
  std::unique_lock lock(mutex_);
  const auto position = regions_.find(base);
  if (position == regions_.end() || position->second->kind != kind) return nullptr;
  RegionPtr region = std::move(position->second);
  regions_.erase(position);
  return region;
}

std::vector<RegionPtr> AddressSpace::removeOwnedBy(uint64_t context) {
  std::vector<RegionPtr> removed;
  std::unique_lock lock(mutex_);
  for (auto position = regions_.begin(); position != regions_.end();) {
    if (position->second->context == context && context != 0) {
      removed.push_back(std::move(position->second));
      position = regions_.erase(position);
    } else {
      ++position;
    }
  }
  return removed;
}

void AddressSpace::setAccess(uint64_t base, bool isReadable, bool isWritable) {
  std::unique_lock lock(mutex_);
  const auto position = regions_.find(base);
  if (position == regions_.end()) return;
  Region changed = *position->second;
  changed.isReadable = isReadable;
  changed.isWritable = isWritable;
  position->second = std::make_shared<const Region>(changed);
}

void AddressSpace::setManaged(uint64_t base) {
  std::unique_lock lock(mutex_);
  const auto position = regions_.find(base);
  if (position == regions_.end()) return;
  Region changed = *position->second;
  changed.isManaged = true;
  position->second = std::make_shared<const Region>(changed);
}

bool AddressSpace::overlaps(uint64_t address, uint64_t bytes) const {
  std::shared_lock lock(mutex_);
  const auto before = locate(address);
  if (before != regions_.end() && before->second->end() > address) return true;
  const auto next = regions_.lower_bound(address);
  return next != regions_.end() && next->first - address < bytes;
}

bool AddressSpace::covers(uint64_t address, uint64_t bytes, Access access) const {
  if (bytes == 0) return true;
  if (bytes > UINT64_MAX - address) return false;
  const uint64_t end = address + bytes;
  std::shared_lock lock(mutex_);
  auto position = locate(address);
  while (position != regions_.end()) {
    const Region& region = *position->second;
    if (address < region.base || address >= region.end()) return false;
    if (region.kind == Region::Kind::heap) return false;
    // Copies by the host may write to memory that kernels can only read, such as constant variables.
    const bool isAllowed =
        region.kind != Region::Kind::mapped || (access == Access::write ? region.isWritable : region.isReadable);
    if (!isAllowed) return false;
    if (end <= region.end()) return true;
    // Only pieces that a program has mapped next to each other form one range.
    if (region.kind != Region::Kind::mapped) return false;
    address = region.end();
    ++position;
  }
  return false;
}

RegionPtr AddressSpace::nearest(uint64_t address, uint64_t reach) const {
  std::shared_lock lock(mutex_);
  const auto before = locate(address);
  const auto next = regions_.upper_bound(address);
  const uint64_t behind = before == regions_.end()          ? UINT64_MAX
                          : address < before->second->end() ? 0
                                                            : address - before->second->end();
  const uint64_t ahead = next == regions_.end() ? UINT64_MAX : next->first - address;
  if (behind <= ahead && behind <= reach && before != regions_.end()) return before->second;
  return ahead <= reach && next != regions_.end() ? next->second : nullptr;
}

namespace {

ptx::MemoryMap::Range rangeOf(const Region& region, uint64_t bytes, uint64_t address, int device) {
  if (address >= region.base + bytes || !region.isReadable) return {};
  if (region.device >= 0 && region.device != device) return {};
  return {region.base, region.base + bytes, region.isWritable};
}

}  // namespace

ptx::MemoryMap::Range AddressSpace::findExactly(uint64_t address, int device) const {
  std::shared_lock lock(mutex_);
  const auto position = locate(address);
  if (position == regions_.end()) return {};
  return rangeOf(*position->second, position->second->bytes, address, device);
}

ptx::MemoryMap::Range AddressSpace::findForKernel(uint64_t address, int device) const {
  std::shared_lock lock(mutex_);
  const auto position = locate(address);
  if (position == regions_.end()) return {};
  return rangeOf(*position->second, position->second->reach, address, device);
}

}  // namespace millpond::softgpu
