// SPDX-License-Identifier: Apache-2.0
// Detects unordered accesses to the shared memory of a block.
//
// Every byte records its last writer and two threads that have read it since. An access races with one of
// those when they are of different threads, at least one writes, not both are atomic, and neither happens
// before the other. Happens-before is kept in vector clocks, as in FastTrack (Flanagan and Freund, 2009): a
// thread's own component advances with each release (a barrier, a member of a warp's synchronisation, a fence
// and an atomic after it), and an acquire joins the releasing clock. A barrier of the whole block orders
// everything, so it only begins a new epoch for all clocks.
//
// No false positives: a reported pair is unordered. Races may be missed, because only two readers of a byte are recorded,
// from two warps where there are two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "softgpu/ptx/run/context.h"

namespace millpond::softgpu::ptx {

struct Instruction;
struct FunctionCode;

class RaceDetector {
 public:
  static constexpr uint32_t kLanes = 32;
  static constexpr uint32_t kBarriers = kNamedBarriers + 1;

  struct Access {
    uint32_t thread = 0;
    uint32_t offset = 0;
    uint32_t bytes = 0;
    bool isWrite = false;
    bool isAtomic = false;
    const std::byte* written = nullptr;  // the value that a non-atomic write is about to store
    const std::byte* memory = nullptr;   // the present value
  };
  struct Site {
    const Instruction* instruction = nullptr;
    const FunctionCode* function = nullptr;
  };
  struct Race {
    uint32_t offset = 0;
    uint32_t thread = 0;  // of the earlier access
    Site site;
    bool isWrite = false;
    bool isAtomic = false;
  };

  RaceDetector(uint32_t threads, uint32_t sharedBytes);

  /// All threads start from the beginning, and so does the memory.
  void begin();

  /// The number that identifies a place in the code.
  uint32_t siteOf(const Instruction* instruction, const FunctionCode* function);
  /// Records the access; returns the first race on its bytes.
  std::optional<Race> access(const Access& access, uint32_t site);

  /// Threads of a warp have reached an instruction at which lanes wait for one another, and have left it.
  void arriveInWarp(uint32_t warp, uint32_t lanes);
  void leaveInWarp(uint32_t warp, uint32_t lanes, const uint32_t* members);

  /// Threads of a warp arrive at a barrier; arriving threads that do not wait only release their clock.
  void arriveAtBarrier(uint32_t id, uint32_t warp, uint32_t lanes, bool waits);
  /// All threads that wait at it continue. `alive`: threads of the block that have not ended.
  void completeBarrier(uint32_t id, uint32_t alive);

  void fence(uint32_t warp, uint32_t lanes);
  /// An atomic access to any memory: with a fence before the write and one after the read it orders surrounding
  /// accesses.
  struct Atomic {
    bool isRead = false;
    bool isWrite = false;
    bool acquires = false;  // needs no fence behind it
    bool releases = false;  // needs no fence before it
  };
  void synchronise(uint32_t thread, uint64_t address, const Atomic& atomic);

 private:
  /// A vector clock: one component for each thread.
  using Row = std::vector<uint32_t>;
  using RowPtr = std::shared_ptr<const Row>;
  struct Knowledge {
    std::array<uint32_t, kLanes> warp{};  // of the lanes of its own warp
    RowPtr block;                         // of all threads; null: nothing
  };
  struct Thread {
    uint32_t epoch = 0;  // the rest means nothing when this is not the current one
    uint32_t clock = 1;
    Knowledge known;
    bool hasArrived = false;
    Knowledge arrived;  // what it let others know at the last synchronisation of its warp
    bool hasFence = false;
    Knowledge fenced;  // what it knew at its last fence
    RowPtr pending;    // what atomics have read: known behind the next fence
  };
  struct Stamp {
    uint32_t epoch = 0;
    uint32_t clock = 0;
    uint32_t site = 0;
    uint16_t thread = 0;
    bool isAtomic = false;
  };
  struct Cell {
    Stamp write;
    Stamp reads[2];
  };
  struct Barrier {
    std::vector<uint32_t> waiting;  // lanes, by warp
    RowPtr passed;                  // what threads let others know that did not wait; null: there were none
  };

  Thread& self(uint32_t thread);
  static RowPtr joined(const RowPtr& a, const RowPtr& b);
  void raise(Row& row, uint32_t thread, const Knowledge& knowledge) const;
  static Knowledge publish(Thread& thread, uint32_t number);
  static uint32_t heard(const Thread& thread, uint32_t number, uint32_t of);
  bool isUnordered(const Stamp& stamp, uint32_t number, bool isAtomic);
  const Stamp* conflictOf(const Cell& cell, const Access& access, uint32_t byte);
  void rememberReader(Cell& cell, const Stamp& stamp);

  uint32_t threads_;
  uint32_t epoch_ = 0;
  std::vector<Thread> state_;
  std::vector<Cell> cells_;
  std::array<Barrier, kBarriers> barriers_;
  std::unordered_map<uint64_t, RowPtr> atomics_;
  uint32_t atomicsEpoch_ = 0;
  std::vector<Site> sites_;
  std::unordered_map<const Instruction*, uint32_t> siteNumbers_;
};

}  // namespace millpond::softgpu::ptx
