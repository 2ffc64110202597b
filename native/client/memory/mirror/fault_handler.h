// SPDX-License-Identifier: Apache-2.0
// Faults of the program in memory that is mirrored. The handler of SIGSEGV does nothing but hand them to a thread and
// wait: it may be running on a small stack, and the interrupted code may hold any lock but ours. Every other fault goes
// to the handler that the program had, or has set since.
#pragma once

#include <atomic>
#include <cstdint>

namespace millpond::client {

class FaultHandler {
 public:
  struct Fault {
    uint64_t address;
    bool isWrite;
    bool inHostFunction;  ///< the device waits for the thread that faulted
  };
  /// Fetches the touched memory; false if it is not mirrored. Called on threads of this class: faults of host functions
  /// have their own.
  using Serve = bool (*)(void* of, const Fault&);

  /// Begins to serve with that function, which is given `of`. False when the system does not let us.
  static bool start(Serve serve, void* of) noexcept;
  /// Faults outside of [begin, end) are not ours. The range only grows.
  static void cover(uint64_t begin, uint64_t end) noexcept;
  /// Takes the signal back from a handler that the program has set meanwhile, which stays the one for all other faults.
  static void keepInstalled() noexcept;
  /// In a forked child: no fault is ours any more.
  static void abandon() noexcept;
};

}  // namespace millpond::client
