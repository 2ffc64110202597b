// SPDX-License-Identifier: Apache-2.0
// Maps ranges of addresses to numbers; a later range replaces the overlapping parts of earlier ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace millpond {

class RangeMap {
 public:
  bool empty() const { return runs_.empty(); }

  /// Assigns the number to [begin, begin + bytes), which must not exceed the end of the address space.
  void set(uint64_t begin, uint64_t bytes, uint64_t number) {
    if (bytes == 0) return;
    cut(begin);
    cut(begin + bytes);
    runs_.erase(runs_.lower_bound(begin), runs_.lower_bound(begin + bytes));
    runs_[begin] = {begin + bytes, number};
  }
  /// Removes the number within the range; other numbers stay.
  void erase(uint64_t begin, uint64_t bytes, uint64_t number) {
    if (bytes == 0) return;
    cut(begin);
    cut(begin + bytes);
    const auto end = runs_.lower_bound(begin + bytes);
    for (auto run = runs_.lower_bound(begin); run != end;)
      run = run->second.number == number ? runs_.erase(run) : std::next(run);
  }
  /// Calls `each(begin, end, number)` for all parts of [begin, begin + bytes) in order, with number 0 for parts without
  /// one.
  template <typename Each>
  void visit(uint64_t begin, uint64_t bytes, Each&& each) const {
    if (bytes == 0) return;
    const uint64_t end = begin + bytes;
    auto run = runs_.upper_bound(begin);
    if (run != runs_.begin() && std::prev(run)->second.end > begin) --run;
    uint64_t at = begin;
    for (; run != runs_.end() && run->first < end; ++run) {
      if (run->first > at) each(at, run->first, uint64_t{0});
      at = std::max(at, run->first);
      each(at, std::min(end, run->second.end), run->second.number);
      at = std::min(end, run->second.end);
    }
    if (at < end) each(at, end, uint64_t{0});
  }

 private:
  struct Run {
    uint64_t end = 0;
    uint64_t number = 0;
  };
  /// Splits the range at this address.
  void cut(uint64_t at) {
    auto run = runs_.lower_bound(at);
    if (run == runs_.begin()) return;
    --run;
    if (run->second.end <= at) return;
    runs_[at] = {run->second.end, run->second.number};
    run->second.end = at;
  }

  std::map<uint64_t, Run> runs_;  ///< disjoint, by start address
};

}  // namespace millpond
