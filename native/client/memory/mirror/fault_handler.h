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
  /// Fetches the accessed memory; false if it is not mirrored. Called on threads of this class: faults in host
  /// functions have a thread of their own.
  using Serve = bool (*)(void* of, const Fault&);

  /// Begins to serve with this function, which is called with `of`. False if the system refuses.
  static bool start(Serve serve, void* of) noexcept;
  /// Faults outside of [begin, end) are not ours. The range only grows.
  static void cover(uint64_t begin, uint64_t end) noexcept;
  /// Reinstalls our handler if the program has installed one since, which still handles all other faults.
  static void keepInstalled() noexcept;
  /// In a forked child no fault is ours.
  static void abandon() noexcept;
};

}  // namespace millpond::client
