// SPDX-License-Identifier: Apache-2.0
// The table of stream-ordered memory: the blocks of a device's arena by pool, and whether each is in use, reusable in
// its stream only, or reusable everywhere. Makes no driver calls.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace millpond::worker {

class MemoryPools {
 public:
  /// A stream, or the default stream of a context.
  struct StreamKey {
    uint64_t stream = 0;
    uint16_t context = 0;
    bool operator==(const StreamKey&) const = default;
  };
  struct Block {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t pool = 0;
  };
  struct Usage {
    uint64_t reserved = 0, reservedHigh = 0, used = 0, usedHigh = 0;
  };

  /// Bytes of an allocation in its pool's usage: as with the driver, the requested bytes, not the block's.
  static constexpr uint64_t countedBytes(uint64_t bytes) { return (bytes + 511) / 512 * 512; }

  /// Adds a pool of at most `maxBytes`, 0 for unlimited. Returns false if a pool of this number exists already.
  bool create(uint64_t pool, size_t device, uint64_t maxBytes);
  /// Its blocks in use stay until they are freed. Unused ones are appended to `released`.
  bool destroy(uint64_t pool, std::vector<Block>& released);
  /// All pools.
  std::vector<uint64_t> all() const;
  /// The number of a device's blocks that are unused, or may not be used yet.
  size_t idleBlocks(size_t device) const;
  /// The device of a pool; nothing for an unknown pool.
  std::optional<size_t> device(uint64_t pool) const;
  /// Bytes that the pool keeps at a synchronisation.
  bool setThreshold(uint64_t pool, uint64_t bytes);
  /// Resets the highest use.
  bool resetHigh(uint64_t pool, bool ofReserved);
  std::optional<Usage> usage(uint64_t pool) const;
  /// Resets the high-water mark. Returns false for an unknown pool.
  bool raiseHigh(uint64_t pool, uint64_t reserved, uint64_t used);

  /// A block for `bytes` that the stream may use now, taken into use. `wanted`: bytes of it that count as used.
  std::optional<uint64_t> reuse(uint64_t pool, uint64_t bytes, StreamKey stream, uint64_t wanted);
  /// Whether the pool may have that many more bytes, if necessary after releasing unused blocks.
  bool makeRoom(uint64_t pool, uint64_t bytes, std::vector<Block>& released);
  /// A new block, in use, of which `wanted` bytes count.
  void add(const Block& block, uint64_t wanted);
  bool isUsed(uint64_t address) const { return used_.contains(address); }
  /// The pool of a block in use.
  std::optional<uint64_t> poolOf(uint64_t address) const;
  /// Whether a block that is unused, or may not be used yet, begins there.
  bool isKept(uint64_t address) const { return blocks_.contains(address) && !isUsed(address); }
  /// Removes a block in use from the table.
  std::optional<Block> take(uint64_t address);
  /// Frees the block in stream order: other streams may use it once the free with `number` is done. Returns false if it
  /// is not in use.
  bool free(uint64_t address, StreamKey stream, uint64_t number);
  /// The free with that number is done; appends the blocks that its pool does not keep to `released`.
  void happened(uint64_t number, std::vector<Block>& released);
  /// The program synchronises: memory freed up to `number` is kept only up to the pools' thresholds.
  void synchronise(uint64_t number, std::vector<Block>& released);
  /// Releases unused blocks until the pool has at most `bytes`.
  bool trim(uint64_t pool, uint64_t bytes, std::vector<Block>& released);
  /// Releases all unused blocks of a device.
  void trimDevice(size_t device, std::vector<Block>& released);

 private:
  struct Pool {
    size_t device = 0;
    uint64_t maxBytes = 0;
    uint64_t threshold = 0;
    bool destroyed = false;
    Usage usage;
    std::multimap<uint64_t, uint64_t> idle;  ///< bytes → address
  };
  struct Used {
    Block block;
    uint64_t wanted;
  };
  struct Freed {
    Block block;
    StreamKey stream;
    uint64_t number;
  };
  using Pools = std::map<uint64_t, Pool>;

  Pool* find(uint64_t pool);
  void use(Pool& pool, const Block& block, uint64_t wanted);
  void releaseDownTo(uint64_t number, Pool& pool, uint64_t bytes, std::vector<Block>& released);
  void eraseIfGone(Pools::iterator pool);

  Pools pools_;
  std::set<uint64_t> blocks_;      ///< addresses of all
  std::map<uint64_t, Used> used_;  ///< by address
  std::list<Freed> freed_;
  uint64_t synchronised_ = 0;
};

}  // namespace millpond::worker
