// SPDX-License-Identifier: Apache-2.0
#include "client/memory/managed/managed_memory.h"

#include <iterator>

namespace millpond::client {

void ManagedMemory::add(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  pieces_[address] = {bytes, address, {}};
}

void ManagedMemory::drop(uint64_t address) {
  std::lock_guard lock(mutex_);
  auto each = pieces_.find(address);
  while (each != pieces_.end() && each->second.allocation == address) each = pieces_.erase(each);
}

bool ManagedMemory::covers(uint64_t address, uint64_t bytes) const {
  if (bytes == 0 || bytes > UINT64_MAX - address) return false;
  auto each = pieces_.upper_bound(address);
  if (each == pieces_.begin()) return false;
  --each;
  for (uint64_t at = address; each != pieces_.end() && at - each->first < each->second.bytes; ++each) {
    at = each->first + each->second.bytes;
    if (at >= address + bytes) return true;
  }
  return false;
}

void ManagedMemory::split(uint64_t address) {
  const auto next = pieces_.upper_bound(address);
  if (next == pieces_.begin()) return;
  const auto piece = std::prev(next);
  const uint64_t before = address - piece->first;
  if (before == 0 || before >= piece->second.bytes) return;
  Piece rest = piece->second;
  rest.bytes -= before;
  piece->second.bytes = before;
  pieces_.emplace(address, rest);
}

}  // namespace millpond::client
