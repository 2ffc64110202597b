// SPDX-License-Identifier: Apache-2.0
// Large data on its way to the device, in which addresses of memory of this process alone are looked for: kernels may follow
// them. The threads that send the data look at it on the way, when it is in their processor's cache anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "client/addresses/memory_map.h"

namespace millpond::client {

class DataScans {
  struct State;

 public:
  explicit DataScans(const MemoryMap& memory) : memory_(memory) {}

  /// The search in the data of a call, which is sent in pieces of `pieceBytes`. The data must not change meanwhile.
  class Scan {
   public:
    Scan(DataScans& scans, uint64_t address, std::span<const std::byte> data, size_t pieceBytes);
    ~Scan();
    Scan(const Scan&) = delete;
    Scan& operator=(const Scan&) = delete;
    /// The places that the data names, after all of it was sent: looks at the pieces that no other thread has looked at.
    std::vector<uint64_t> finish();

   private:
    DataScans& scans_;
    std::shared_ptr<State> state_;  ///< null: there is nothing to look for
  };

  /// Looks at a piece that is about to be sent. May be called on any thread.
  void look(std::span<const std::byte> piece);

 private:
  struct State {
    uint64_t address;  ///< of the device
    std::span<const std::byte> data;
    size_t pieceBytes;
    std::mutex mutex;
    std::vector<bool> isDone;  ///< by piece
    std::vector<uint64_t> found;
  };
  void lookAt(State& state, size_t piece) const;

  const MemoryMap& memory_;
  std::mutex mutex_;
  std::list<std::shared_ptr<State>> states_;
};

}  // namespace millpond::client
