// SPDX-License-Identifier: Apache-2.0
// Objects that are freed when no stream can still use them: allocations, blocks of pools, and other device objects; and
// commands that wait for that.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "worker/commands/memory/device_memory.h"
#include "worker/core/function_order.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

/// An object that ends when the devices have finished with it.
struct Ending {
  /// Ends it. `context`: as below, or 0 if that context, and its objects, have ended since.
  std::function<void(uint16_t context)> finish;
  uint16_t context = 0;     ///< of the object; 0: of none
  CUdeviceptr address = 0;  ///< for mappings and reservations: they end before anything new is mapped there
  uint64_t bytes = 0;
  /// the driver waits for the device while the object ends, so it ends when no function of the client is expected
  bool mayWait = false;
};

class Frees : private SessionPart {
 public:
  /// The frees for which a command waits.
  enum class Which { kOrdinary, kOfPoolsToo };

  Frees(SessionCore& session, Budgets& budgets, DeviceMemory& memory, FunctionOrder& functions);

  /// Returns an allocation to its arena, or ends one use of memory of an opened pool, when no stream can still use it.
  void later(size_t device, CUdeviceptr address);
  /// Whether an allocation is about to be freed.
  bool isFreed(size_t device, CUdeviceptr address) const;
  /// Begins to wait for all frees so far, of a device or of all.
  void retire(size_t device);
  void retire();
  /// Ends an object when the devices have finished their work so far, in this order; with a fence from the caller, when
  /// they have reached it.
  void end(Ending ending);
  void end(Ending ending, std::vector<Mark> fence);
  /// Same, without waiting for the devices, but after those before it.
  void endAtOnce(Ending ending) { end(std::move(ending), {}); }
  /// Immediately ends everything that blocks a mapping there, and everything before it.
  void settle(uint64_t address, uint64_t bytes);

  /// The number of a free that this class does not retire: that of a pool block, which is free when its stream has
  /// reached the mark. The highest number of all.
  uint64_t nextNumber() { return ++last_; }
  uint64_t lastNumber() const { return last_; }
  void freeBlock(uint64_t number, const Mark& mark) { blocks_.push_back({number, mark}); }

  /// The program waits for the device: pools release memory beyond their thresholds.
  void synchronisePools();

  /// Runs `command` when all memory freed in the current context so far is available again: immediately if there is
  /// none.
  CUresult after(std::function<CUresult()> command, Which which = Which::kOrdinary);
  size_t waiting() const { return after_.size(); }

  bool progress();
  bool progressRetired();
  bool progressEndings();
  bool progressBlocks();
  bool progressWaiting();
  /// Nothing is being retired, and no object is about to end.
  bool isQuiet() const { return retired_.empty() && endings_.empty() && blocks_.empty(); }
  void forgetContext(uint16_t number);

 private:
  /// Freed memory that streams may still use.
  struct Retired {
    uint64_t number;
    size_t device;
    std::vector<CUdeviceptr> addresses;
    std::vector<Mark> fence;
  };
  struct NumberedEnding {
    uint64_t number;
    Ending ending;
    std::vector<Mark> fence;
  };
  struct Block {
    uint64_t number;
    Mark mark;
  };
  /// A command whose reply waits until memory freed before it is available again.
  struct After {
    Request request;
    uint64_t number;  ///< of the last free before
    Which which;
    std::function<CUresult()> run;
  };

  bool isPending(size_t device, uint64_t number, Which which) const;
  void finishFirst();

  Budgets& budgets_;
  DeviceMemory& memory_;
  FunctionOrder& functions_;
  std::vector<std::vector<CUdeviceptr>> freed_;  ///< by device
  std::deque<Retired> retired_;
  std::deque<NumberedEnding> endings_;
  std::deque<Block> blocks_;
  std::deque<After> after_;
  uint64_t last_ = 0;
};

}  // namespace millpond::worker
