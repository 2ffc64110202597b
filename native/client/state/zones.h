// SPDX-License-Identifier: Apache-2.0
// Ranges of this process's memory, merged where they touch, so that a few remain however many there were.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace millpond::client {

class Zones {
 public:
  void add(uint64_t address, uint64_t bytes) {
    bytes = std::min(bytes, UINT64_MAX - address);
    auto [zone, added] = zones_.try_emplace(address, bytes);
    if (!added && zone->second < bytes) zone->second = bytes;
    uint64_t end = zone->first + zone->second;
    if (zone != zones_.begin())
      if (const auto before = std::prev(zone); before->first + before->second >= zone->first) {
        end = std::max(end, before->first + before->second);
        zones_.erase(zone);
        zone = before;
      }
    for (auto next = std::next(zone); next != zones_.end() && next->first <= end; next = zones_.erase(next))
      end = std::max(end, next->first + next->second);
    zone->second = end - zone->first;
  }
  /// Whether any byte of the range is in a zone.
  bool meets(uint64_t address, uint64_t bytes) const {
    const auto next = zones_.lower_bound(address + std::min(bytes, UINT64_MAX - address));
    return next != zones_.begin() && std::prev(next)->first + std::prev(next)->second > address;
  }
  /// Whether all of the range is in one zone.
  bool has(uint64_t address, uint64_t bytes) const {
    const auto next = zones_.upper_bound(address);
    if (next == zones_.begin()) return false;
    const auto& [begin, size] = *std::prev(next);
    return address - begin <= size && bytes <= size - (address - begin);
  }

 private:
  std::map<uint64_t, uint64_t> zones_;  ///< address → bytes
};

}  // namespace millpond::client
