// SPDX-License-Identifier: Apache-2.0
// The books of other sessions' pools that this one has opened: whose they are, which of their memory is open, and where
// the runs in which it lies are mapped. Knows nothing of the driver.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace millpond::worker {

class OpenedPools {
 public:
  /// A pool as the worker knows it that made it.
  struct Source {
    std::string worker;
    uint64_t pool = 0;
    bool operator==(const Source&) const = default;
  };
  struct View {
    const Source& source;
    size_t device;
  };

  /// False when there is a pool of this number already.
  bool add(uint64_t pool, Source source, size_t device);
  /// Its memory that is open stays open until it is freed. False when there is no such pool.
  bool destroy(uint64_t pool);
  std::optional<View> find(uint64_t pool) const;
  /// The number under which that pool is open.
  std::optional<uint64_t> numberOf(const Source& source) const;

  /// Where a run of that number is mapped for the pool.
  std::optional<uint64_t> mapped(uint64_t pool, uint64_t run) const;
  /// It is mapped from here on, until nothing uses it any more. Something is opened in it next.
  void map(uint64_t pool, uint64_t run, uint64_t start);
  bool isMapped(uint64_t start) const { return runs_.contains(start); }
  /// Memory in the run that is mapped at `start` is used from here on, if it is not already.
  void open(uint64_t start, uint64_t address);
  bool isOpen(uint64_t address) const { return open_.contains(address); }
  /// It is open no more: where the run begins that it was of, whose use `leave` ends. Nothing for memory that is not open.
  std::optional<uint64_t> close(uint64_t address);
  /// True when nothing uses the run any more: it is out of the books.
  bool leave(uint64_t start);

 private:
  struct Pool {
    Source source;
    size_t device = 0;
    bool isDestroyed = false;
    std::map<uint64_t, uint64_t> runs;  ///< number → where it is mapped
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
  std::map<uint64_t, uint64_t> open_;  ///< address → where its run begins
};

}  // namespace millpond::worker
