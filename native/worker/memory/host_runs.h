// SPDX-License-Identifier: Apache-2.0
// The table of a session's pinned host memory: its runs, and the freed runs that a graph may still use. Makes no driver
// calls.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace millpond::worker {

class HostRuns {
 public:
  struct Run {
    uint64_t bytes = 0;
    bool isPrivate = false;   ///< only this worker has it, for memory that the client mirrors
    bool isKept = false;      ///< its client has the file
    bool isRecorded = false;  ///< a graph has been given addresses in it
  };
  using Runs = std::map<uint64_t, Run>;

  void add(uint64_t address, Run run) { runs_.emplace(address, run); }
  /// The client has the file of the run that begins there.
  void keep(uint64_t address) { runs_.at(address).isKept = true; }
  /// The run that begins there; null if none does.
  const Run* at(uint64_t address) const {
    const auto found = runs_.find(address);
    return found == runs_.end() ? nullptr : &found->second;
  }
  const Runs& all() const { return runs_; }
  /// How many bytes from there on are in one run that only this worker has.
  uint64_t privateBytes(uint64_t address) const {
    const auto behind = runs_.upper_bound(address);
    if (behind == runs_.begin()) return 0;
    const auto& [begin, run] = *std::prev(behind);
    const uint64_t offset = address - begin;
    return run.isPrivate && offset < run.bytes ? run.bytes - offset : 0;
  }
  /// Whether all of that is in one run that only this worker has.
  bool isPrivate(uint64_t address, uint64_t bytes) const { return bytes != 0 && bytes <= privateBytes(address); }
  /// Whether all of that is in one run. `isRecorded`: a graph gets the address.
  bool contains(uint64_t address, uint64_t bytes, bool isRecorded) {
    const auto behind = runs_.upper_bound(address);
    if (behind == runs_.begin()) return false;
    auto& [begin, run] = *std::prev(behind);
    const uint64_t offset = address - begin;
    if (offset > run.bytes || bytes > run.bytes - offset) return false;
    run.isRecorded = run.isRecorded || isRecorded;
    return true;
  }
  /// The program has freed it: its addresses no longer belong to the session. True: it can be unmapped. False: a graph
  /// may still use it, so it must stay until `takeForgotten`.
  bool remove(uint64_t address) {
    const auto found = runs_.find(address);
    const bool isRecorded = found->second.isRecorded;
    if (isRecorded) forgotten_.emplace_back(address, found->second);
    runs_.erase(found);
    return !isRecorded;
  }
  bool hasForgotten() const { return !forgotten_.empty(); }
  /// Freed memory that is kept until there is no graph any more, with its addresses.
  std::vector<std::pair<uint64_t, Run>> takeForgotten() { return std::exchange(forgotten_, {}); }
  /// No graph that could hold an address is left.
  void forgetGraphs() {
    for (auto& [address, run] : runs_) run.isRecorded = false;
  }

 private:
  Runs runs_;
  std::vector<std::pair<uint64_t, Run>> forgotten_;
};

}  // namespace millpond::worker
