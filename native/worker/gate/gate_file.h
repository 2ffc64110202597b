// SPDX-License-Identifier: Apache-2.0
// The table of one GPU in a file that all of its workers map. A worker that dies leaves nothing locked: the next one that
// comes takes over its lock and empties its seats. A worker that was taken over can write anything into the table. The others
// read it with that in mind (turns.h), and where they cannot lock it they leave it: each goes on with a table of its own, in
// which its share is kept as if it were alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "worker/gate/gate_lock.h"
#include "worker/gate/turns.h"

namespace millpond::worker::gate {

class GateFile {
 public:
  /// Makes the file where it is missing, and one for the lock beside it. What sits through it counts as there until it is
  /// closed, or the process ends.
  static Result<std::unique_ptr<GateFile>> open(const std::string& path, int64_t patienceNs = GateLock::kPatienceNs);
  ~GateFile();
  GateFile(const GateFile&) = delete;
  GateFile& operator=(const GateFile&) = delete;

  /// The table, locked for as long as this lives.
  class Locked {
   public:
    explicit Locked(GateFile& file);
    ~Locked();
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
    Turns turns;

   private:
    GateFile& file_;
  };

  /// Takes a seat of that claim. None where all are taken.
  std::optional<uint32_t> sit(uint64_t claim, Share share, int64_t now);
  void leave(uint32_t seat, int64_t now);
  /// Of the claim that sits there.
  void setShare(uint32_t seat, Share share, int64_t now);
  /// Empties the seats of processes that have ended.
  void sweep(int64_t now);

  /// Without the lock: whether that session has the turn and nobody presses it.
  bool mayGoOn(uint32_t seat) const;
  /// Seats, and claims that have some. Without the lock.
  uint32_t taken() const;
  uint32_t claims() const;
  /// Whether the table was left, because it could not be locked.
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
  std::map<uint32_t, Held> held_;  ///< by seat
  std::unique_ptr<Table> own_;     ///< null: the one of all
};

}  // namespace millpond::worker::gate
