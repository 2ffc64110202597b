// SPDX-License-Identifier: Apache-2.0
// What is freed when no stream can still use it: allocations, blocks of pools, and other things of the devices that end;
// and commands that wait until it is.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "worker/commands/memory/device_memory.h"
#include "worker/core/function_order.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

/// Something that ends when the devices are done with it.
struct Ending {
  /// Ends it. `context`: as below, or 0 when that one has ended since, and its objects with it.
  std::function<void(uint16_t context)> finish;
  uint16_t context = 0;     ///< of the object; 0: of none
  CUdeviceptr address = 0;  ///< of mappings and reservations: nothing new is mapped there before
  uint64_t bytes = 0;
  /// the driver waits for the device meanwhile: it ends when no function of the client is expected
  bool mayWait = false;
};

class Frees : private SessionPart {
 public:
  /// Which frees a command waits for.
  enum class Which { kOrdinary, kOfPoolsToo };

  Frees(SessionCore& session, Budgets& budgets, DeviceMemory& memory, FunctionOrder& functions);

  /// Gives back an allocation of an arena, or one use of memory of an opened pool, when no stream can still use it.
  void later(size_t device, CUdeviceptr address);
  /// Whether an allocation is about to be given back.
  bool isFreed(size_t device, CUdeviceptr address) const;
  /// Begins to wait for the frees so far, of a device or of all.
  void retire(size_t device);
  void retire();
  /// Ends something when the devices have done their work so far, all in this order; with a fence of the caller, when they have
  /// reached that.
  void end(Ending ending);
  void end(Ending ending, std::vector<Mark> fence);
  /// Without waiting for the devices, but behind those before it.
  void endAtOnce(Ending ending) { end(std::move(ending), {}); }
  /// Ends at once what stands in the way of a mapping there, and all before it.
  void settle(uint64_t address, uint64_t bytes);

  /// The number of a free that is not retired by this: of a block of a pool, which is free when its stream has come to
  /// the mark. The last number of all.
  uint64_t nextNumber() { return ++last_; }
  uint64_t lastNumber() const { return last_; }
  void freeBlock(uint64_t number, const Mark& mark) { blocks_.push_back({number, mark}); }

  /// The program waits for the device: pools give back what is over their thresholds.
  void synchronisePools();

  /// Runs `command` when everything freed of the current context so far is given back: at once where nothing is.
  CUresult after(std::function<CUresult()> command, Which which = Which::kOrdinary);
  size_t waiting() const { return after_.size(); }

  bool progress();
  bool progressRetired();
  bool progressEndings();
  bool progressBlocks();
  bool progressWaiting();
  /// Nothing is retired and nothing ends.
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
  /// A command that can be answered when the memory that was freed before has come back.
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
