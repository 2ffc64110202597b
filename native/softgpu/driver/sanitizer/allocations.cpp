// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/sanitizer/allocations.h"

#include <iterator>
#include <mutex>
#include <utility>

namespace millpond::softgpu {

uint64_t Allocations::now() const {
  std::shared_lock lock(mutex_);
  return time_;
}

void Allocations::manage(uint64_t address, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  managed_[address] = bytes;
}

bool Allocations::isManaged(uint64_t address) const {
  std::shared_lock lock(mutex_);
  const auto next = managed_.upper_bound(address);
  return next != managed_.begin() && address - std::prev(next)->first < std::prev(next)->second;
}

// With the mutex held.
Allocations::ByBase::const_iterator Allocations::atOrBefore(uint64_t address) const {
  const auto next = all_.upper_bound(address);
  return next == all_.begin() ? all_.end() : std::prev(next);
}

void Allocations::allocated(uint64_t address, uint64_t bytes, const char* by, Call call, bool keepsWritten) {
  std::unique_lock lock(mutex_);
  auto old = all_.lower_bound(address);
  if (old != all_.begin() && std::prev(old)->second.end() > address) --old;
  while (old != all_.end() && old->first < address + bytes) old = all_.erase(old);
  auto written = keepsWritten && !isShared_ ? std::make_shared<ptx::WrittenBytes>(bytes) : nullptr;
  all_[address] = {address, bytes, ++count_, ++time_, 0, by, "", call, std::move(written)};
}

void Allocations::share() {
  std::unique_lock lock(mutex_);
  isShared_ = true;
  for (const auto& [base, allocation] : all_)
    if (allocation.written) allocation.written->mark(0, allocation.bytes);
}

void Allocations::written(uint64_t address, uint64_t bytes) {
  std::shared_lock lock(mutex_);
  const auto found = atOrBefore(address);
  if (found == all_.end() || address >= found->second.end() || !found->second.written) return;
  found->second.written->mark(address - found->first, bytes);
}

void Allocations::copied(uint64_t to, uint64_t from, uint64_t bytes) {
  std::shared_lock lock(mutex_);
  const auto target = atOrBefore(to), source = atOrBefore(from);
  if (target == all_.end() || to >= target->second.end() || !target->second.written) return;
  const uint64_t offset = to - target->first;
  if (source == all_.end() || from >= source->second.end() || !source->second.written)
    target->second.written->mark(offset, bytes);
  else
    target->second.written->copy(offset, *source->second.written, from - source->first, bytes);
}

void Allocations::freed(uint64_t address, const char* by) {
  std::unique_lock lock(mutex_);
  const auto found = all_.find(address);
  if (found == all_.end() || found->second.until != 0) return;
  found->second.until = ++time_;
  found->second.freedBy = by;
}

std::optional<Allocation> Allocations::find(uint64_t address, uint64_t time) const {
  std::shared_lock lock(mutex_);
  const auto found = atOrBefore(address);
  if (found == all_.end() || address >= found->second.end() || !found->second.isThere(time)) return std::nullopt;
  return found->second;
}

std::optional<Allocation> Allocations::nearest(uint64_t address, uint64_t reach) const {
  std::shared_lock lock(mutex_);
  const auto before = atOrBefore(address);
  const auto next = all_.upper_bound(address);
  const uint64_t behind = before == all_.end()             ? UINT64_MAX
                          : address < before->second.end() ? 0
                                                           : address - before->second.end();
  const uint64_t ahead = next == all_.end() ? UINT64_MAX : next->first - address;
  if (behind <= ahead && behind <= reach && before != all_.end()) return before->second;
  if (ahead <= reach && next != all_.end()) return next->second;
  return std::nullopt;
}

std::vector<Allocation> Allocations::left() const {
  std::shared_lock lock(mutex_);
  std::vector<Allocation> out;
  for (const auto& [base, allocation] : all_)
    if (allocation.until == 0) out.push_back(allocation);
  return out;
}

}  // namespace millpond::softgpu
