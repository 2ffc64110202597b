// SPDX-License-Identifier: Apache-2.0
// The table of one GPU in a file that all of its workers map. A dead worker leaves nothing locked: the next worker
// takes over its lock and frees its slots. A compromised worker can write anything into the table. The others read it
// as hostile input (time_slicer.h), and if they cannot lock it they stop using it: each continues with a private table, in
// which its share is enforced as if it were alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "worker/gate/gate_lock.h"
#include "worker/gate/time_slicer.h"

namespace millpond::worker::gate {

class GateFile {
 public:
  /// Creates the file if it is missing, and another one for the lock. Sessions that join through this object count
  /// until it is closed, or the process ends.
  static Result<std::unique_ptr<GateFile>> open(const std::string& path, int64_t patienceNs = GateLock::kPatienceNs);
  ~GateFile();
  GateFile(const GateFile&) = delete;
  GateFile& operator=(const GateFile&) = delete;

  /// The table, locked during the lifetime of this object.
  class Locked {
   public:
    explicit Locked(GateFile& file);
    ~Locked();
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
    TimeSlicer slicer;

   private:
    GateFile& file_;
  };

  /// Takes a slot for that claim. None if all are taken.
  std::optional<uint32_t> join(uint64_t claim, Share share, int64_t now);
  void leave(uint32_t slot, int64_t now);
  /// Share of the claim in that slot.
  void setShare(uint32_t slot, Share share, int64_t now);
  /// Frees the slots of processes that have ended.
  void sweep(int64_t now);

  /// Whether that session has the time slice and no other session requests it. Does not lock.
  bool mayGoOn(uint32_t slot) const;
  /// Numbers of slots in use and of their claims. Does not lock.
  uint32_t taken() const;
  uint32_t claims() const;
  /// Whether the table was abandoned because it could not be locked.
  bool isAlone() const { return own_ != nullptr; }

 private:
  struct Content;
  GateFile(Content* content, GateLock lock) : content_(content), lock_(std::move(lock)) {}
  Table& lock();
  void unlock();
  Table& table();
  const Table& table() const;
  void leaveTable();
  void sweepLocked(int64_t now);

  Content* content_;
  GateLock lock_;
  bool isLocked_ = false;
  struct Held {
    uint64_t claim = 0;
    Share share;
  };
  std::map<uint32_t, Held> held_;  ///< by slot
  std::unique_ptr<Table> own_;     ///< null: the shared table
};

}  // namespace millpond::worker::gate
