// SPDX-License-Identifier: Apache-2.0
// The table of other sessions' pools that this session has opened: their owners, the open memory, and the mappings of
// the runs that contain it. Makes no driver calls.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace millpond::worker {

class OpenedPools {
 public:
  /// A pool, as identified by the worker that created it.
  struct Source {
    std::string worker;
    uint64_t pool = 0;
    bool operator==(const Source&) const = default;
  };
  struct View {
    const Source& source;
    size_t device;
  };

  /// Returns false if a pool of this number exists already.
  bool add(uint64_t pool, Source source, size_t device);
  /// Its open memory stays open until it is freed. Returns false if there is no such pool.
  bool destroy(uint64_t pool);
  std::optional<View> find(uint64_t pool) const;
  /// The number of that open pool.
  std::optional<uint64_t> numberOf(const Source& source) const;

  /// The address of a run of that number, as mapped for the pool.
  std::optional<uint64_t> mapped(uint64_t pool, uint64_t run) const;
  /// It is mapped from now on, until nothing uses it. The next allocation is opened in it.
  void map(uint64_t pool, uint64_t run, uint64_t start);
  bool isMapped(uint64_t start) const { return runs_.contains(start); }
  /// Memory in the run mapped at `start` is in use from now on, if it is not already.
  void open(uint64_t start, uint64_t address);
  bool isOpen(uint64_t address) const { return open_.contains(address); }
  /// Closes it and returns the start of its run, whose use `leave` ends. Nothing if the memory is not open.
  std::optional<uint64_t> close(uint64_t address);
  /// Returns true if nothing uses the run any more; then it is removed from the table.
  bool leave(uint64_t start);

 private:
  struct Pool {
    Source source;
    size_t device = 0;
    bool isDestroyed = false;
    std::map<uint64_t, uint64_t> runs;  ///< number → address of its mapping
  };
  struct Run {
    uint64_t pool = 0;
    uint64_t number = 0;
    uint64_t uses = 0;
  };
  using Pools = std::map<uint64_t, Pool>;

  Pools::const_iterator live(uint64_t pool) const;
  void eraseIfGone(Pools::iterator pool);

  Pools pools_;
  std::map<uint64_t, Run> runs_;       ///< by where they are mapped
  std::map<uint64_t, uint64_t> open_;  ///< address → start of its run
};

}  // namespace millpond::worker
