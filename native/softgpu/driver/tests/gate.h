// SPDX-License-Identifier: Apache-2.0
// A host function that holds up its stream until the test lets it go: what makes tests of order
// deterministic.
#pragma once

#include <condition_variable>
#include <mutex>

#include "softgpu/driver/tests/loaded_driver.h"

namespace millpond::softgpu::testing {

class Gate {
 public:
  ~Gate() { open(); }

  /// Queues the gate; the stream's later work waits until open().
  void close(CUstream stream) { OK(CU(cuLaunchHostFunc)(stream, &Gate::wait, this)); }
  void open() {
    std::lock_guard lock(mutex_);
    isOpen_ = true;
    changed_.notify_all();
  }
  /// Returns when the stream has reached the gate.
  void awaitArrival() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return hasArrived_; });
  }

 private:
  static void wait(void* self) {
    auto* gate = static_cast<Gate*>(self);
    std::unique_lock lock(gate->mutex_);
    gate->hasArrived_ = true;
    gate->changed_.notify_all();
    gate->changed_.wait(lock, [&] { return gate->isOpen_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool isOpen_ = false;
  bool hasArrived_ = false;
};

}  // namespace millpond::softgpu::testing
