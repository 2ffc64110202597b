// SPDX-License-Identifier: Apache-2.0
// The contexts of a session by number, and the driver's current one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/claim/driver_memory.h"
#include "worker/device/driver.h"

namespace millpond::worker {

/// A context of the session. Primary contexts come first: their numbers are 1 + the ordinal of their device.
struct Context {
  uint16_t device = 0;                ///< ordinal in the session
  CUcontext handle = nullptr;         ///< null: no context has this number
  bool used = false;                  ///< it existed at some time
  bool ending = false;                ///< destroyed as soon as its work is done
  std::vector<CUevent> pool;          ///< unused events
  CUstream quiet = nullptr;           ///< a stream on which nothing ever runs; created when needed
  CUgreenCtx green = nullptr;         ///< a primary context with a part of the device's resources
  bool hasLaunched = false;           ///< kernels were launched, which may have written variables
  uint32_t streams = 0;               ///< of the program
  uint32_t mostStreams = 0;           ///< maximum at a time
  uint64_t stackBytes = kUsualStack;  ///< of each thread, as set by the program
  uint64_t localBytes = 0;            ///< maximum over the threads of its kernels
};

class Contexts {
 public:
  explicit Contexts(const Driver& driver) : driver_(driver) {}

  size_t size() const { return all_.size(); }
  std::vector<Context>& all() { return all_; }
  const std::vector<Context>& all() const { return all_; }
  /// Context by its number, from 1 to `size()`.
  Context& at(uint64_t number) { return all_[number - 1]; }
  const Context& at(uint64_t number) const { return all_[number - 1]; }
  /// Whether the session has a context of this number now.
  bool isThere(uint64_t number) const { return number >= 1 && number <= all_.size() && at(number).handle; }
  /// Ordinal of the device of a context, and the number of that device's primary context.
  uint16_t deviceOf(uint16_t number) const { return at(number).device; }
  uint16_t primaryOf(uint16_t number) const { return static_cast<uint16_t>(deviceOf(number) + 1); }
  /// The number of the context that owns objects created in this one: only streams belong to green contexts.
  uint16_t homeOf(uint16_t number) const { return number && at(number).green ? primaryOf(number) : number; }

  /// The number of the driver's current context; 0: none.
  uint16_t bound() const { return bound_; }
  /// Makes a context current. Returns false if no context has this number, or the driver refuses it.
  bool use(uint16_t number) {
    if (number == bound_) return true;
    if (number == 0 || !isThere(number) || driver_.cuCtxSetCurrent(at(number).handle) != CUDA_SUCCESS) return false;
    bound_ = number;
    return true;
  }
  /// Notes that the driver has made `handle` current, in place of the context that had this number.
  void replaceBound(uint16_t number, CUcontext handle) {
    at(number).handle = handle;
    bound_ = number;
  }

 private:
  const Driver& driver_;
  std::vector<Context> all_;
  uint16_t bound_ = 0;
};

}  // namespace millpond::worker
