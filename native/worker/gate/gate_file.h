// SPDX-License-Identifier: Apache-2.0
// The table of one GPU in a file that all of its workers map. Whoever dies leaves nothing locked: the kernel marks what
// a dead thread held, and the next one to come tidies up.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "worker/gate/turns.h"

namespace millpond::worker::gate {

class GateFile {
 public:
  /// Makes the file where it is missing.
  static Result<std::unique_ptr<GateFile>> open(const std::string& path);
  /// Whoever sat down through it and lives has left.
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

  /// Takes a seat of that claim for the calling thread: when that ends, in whatever way, others find it empty. None where
  /// all are taken.
  std::optional<uint32_t> sit(uint64_t claim, Share share, int64_t now);
  /// By the thread that sat down.
  void leave(uint32_t seat, int64_t now);
  /// Empties the seats of the dead.
  void sweep(int64_t now);

  /// Without the lock: whether that session has the turn and nobody presses it.
  bool mayGoOn(uint32_t seat) const;
  /// Seats, and claims that have some. Without the lock.
  uint32_t taken() const;
  uint32_t claims() const;

 private:
  struct Content;
  explicit GateFile(Content* content) : content_(content) {}
  void lock();
  void sweepLocked(int64_t now);

  Content* content_;
};

}  // namespace millpond::worker::gate
