// SPDX-License-Identifier: Apache-2.0
// Which addresses this process got from the driver: device memory, and pinned memory of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <vector>

#include "client/addresses/pages/word_search.h"

namespace millpond::client {

enum class MemoryKind : uint8_t {
  kDevice,
  kPinnedShared,  ///< the worker maps the same pages at the same address
  kPinnedLocal,   ///< this process's own: the worker is on another host, or the program allocated it
  kMirrored,      ///< this process and the worker each have their own at the same address: see mirror.h
};

struct MemoryRun {
  /// A variable of a module: cannot be freed.
  static constexpr unsigned kBorrowed = 1u << 31;
  /// Mapped by cuMemMap: it belongs to no context, and is unmapped instead of freed. Adjacent runs count as one.
  static constexpr unsigned kMapped = 1u << 30;

  /// Managed: freed like device memory.
  static constexpr unsigned kManaged = 1u << 29;
  /// The program's own memory, which it has registered.
  static constexpr unsigned kRegistered = 1u << 28;
  /// Allocated by a node of a graph with each launch; the worker's driver knows whether it can be freed.
  static constexpr unsigned kOfGraph = 1u << 27;
  /// Memory of another process: closed, not freed.
  static constexpr unsigned kOpened = 1u << 26;
  /// Flags as passed by the program.
  static constexpr unsigned kOfProgram = kOpened - 1;

  uint64_t address = 0;
  uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  uint16_t context = 0;  ///< 1 + device ordinal
  unsigned flags = 0;    ///< of cuMemHostAlloc or cuMemHostRegister, and the above
  uint64_t id = 0;       ///< CU_POINTER_ATTRIBUTE_BUFFER_ID, unique in the process
  uint64_t pool = 0;     ///< handle of the pool that it came from

  /// Whether commands may refer to it as device memory.
  bool isWithinReach() const { return kind != MemoryKind::kPinnedLocal; }
  /// Whether commands refer to the worker's memory, and not to pages that this process maps too.
  bool isOfWorker() const { return kind == MemoryKind::kDevice || kind == MemoryKind::kMirrored; }
  /// Whether other processes can be given a handle of it: only memory from cuMemAlloc.
  bool isShareable() const {
    constexpr unsigned kOthers = kBorrowed | kMapped | kManaged | kOfGraph | kOpened;
    return kind == MemoryKind::kDevice && pool == 0 && (flags & kOthers) == 0;
  }
  /// Whether a call that frees device memory takes this address.
  bool isFreedByAddress(uint64_t at) const {
    return kind == MemoryKind::kDevice && address == at && (flags & (kBorrowed | kMapped | kOpened)) == 0;
  }
};

class MemoryMap {
 public:
  void add(MemoryRun run);
  /// Adds a run unless some of it is already known.
  bool addApart(MemoryRun run);
  /// Removes and returns the run that begins at `address`.
  std::optional<MemoryRun> take(uint64_t address);
  /// The run that contains `address`.
  std::optional<MemoryRun> find(uint64_t address) const;
  /// Whether all of [address, address + bytes) is known: as one run, or as adjacent mapped ones.
  bool covers(uint64_t address, uint64_t bytes) const;
  /// Whether a copy or a fill may refer to [address, address + bytes): it is covered, or unknown to this map, so that
  /// the worker's driver decides. Freed memory is refused.
  bool mayUse(uint64_t address, uint64_t bytes) const;
  /// Whether there is memory of that pool.
  bool hasOfPool(uint64_t pool) const;
  /// Whether memory from cuMemAlloc that has been freed was there.
  bool wasFreed(uint64_t address) const;
  /// Addresses that had been freed are in use again, without a run.
  void reuse(uint64_t address, uint64_t bytes);
  /// The run that contains all of [address, address + bytes).
  std::optional<MemoryRun> find(uint64_t address, uint64_t bytes) const;
  /// From now on the worker has memory like the run that begins there.
  void setMirrored(uint64_t address);
  /// Whether memory that only this process has may be there. Costs two reads, because every launch checks each of its
  /// parameters.
  bool mayBeLocal(uint64_t address) const {
    return address >= lowestLocal_.load(std::memory_order_relaxed) &&
           address < highestLocal_.load(std::memory_order_relaxed);
  }
  /// Whether there is any such memory. Costs one read.
  bool hasLocal() const { return locals_.load(std::memory_order_relaxed) != 0; }
  /// Calls `use` with each 8-byte-aligned value in `bytes`, which are or will be at `address`, that may be the address
  /// of such memory, or the address just after it.
  template <typename Use>
  void eachLocalAddress(uint64_t address, std::span<const std::byte> bytes, Use&& use) const {
    const uint64_t lowest = lowestLocal_.load(std::memory_order_relaxed);
    const uint64_t range = highestLocal_.load(std::memory_order_relaxed) - lowest + 1;
    const size_t skipped = (sizeof(uint64_t) - address % sizeof(uint64_t)) % sizeof(uint64_t);
    if (skipped >= bytes.size()) return;
    std::span<const std::byte> left = bytes.subspan(skipped);
    for (size_t at = findWord(left, lowest, range); at < left.size(); at = findWord(left, lowest, range)) {
      uint64_t word;
      std::memcpy(&word, left.data() + at, sizeof(word));
      use(word);
      left = left.subspan(at + sizeof(word));
    }
  }
  /// Forgets the device memory of a context, including mirrored managed memory but not mapped memory; returns the
  /// addresses of its allocations on the device.
  std::vector<uint64_t> dropDevice(uint16_t context);

 private:
  std::map<uint64_t, MemoryRun>::const_iterator at(uint64_t address) const;
  bool coversLocked(uint64_t address, uint64_t bytes) const;
  bool wasFreedLocked(uint64_t address) const;
  void end(const MemoryRun& run);
  void insert(MemoryRun run);
  void reuseLocked(uint64_t address, uint64_t bytes);

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, MemoryRun> runs_;
  /// Addresses of memory freed by cuMemFree, which the worker may keep mapped for a while: disjoint ranges, by first
  /// address, with their end.
  std::map<uint64_t, uint64_t> freed_;
  uint64_t nextId_ = 1;
  /// The bounds of all runs that only this process has ever had.
  std::atomic<uint64_t> lowestLocal_{UINT64_MAX}, highestLocal_{0};
  std::atomic<uint64_t> locals_{0};  ///< runs of this process alone
};

}  // namespace millpond::client
