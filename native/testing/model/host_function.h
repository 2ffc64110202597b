// SPDX-License-Identifier: Apache-2.0
// Host functions of a program, and the promises that they and threads wait for.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "testing/model/oracle.h"

namespace millpond::model {

/// Set by a thread, waited for by others.
class Latch {
 public:
  void open() {
    isOpen_ = 1;
    isOpen_.notify_all();
  }
  void wait() const { isOpen_.wait(0); }

 private:
  std::atomic<int> isOpen_ = 0;
};

struct HostFunction {
  uint32_t sleepMs = 0;
  Latch* promise = nullptr;
  uint32_t* words = nullptr;
  size_t count = 0;
  uint32_t value = 0;
};

inline void callHostFunction(void* data) {
  const auto& function = *static_cast<const HostFunction*>(data);
  if (function.sleepMs != 0) std::this_thread::sleep_for(std::chrono::milliseconds(function.sleepMs));
  if (function.promise) function.promise->wait();
  for (size_t i = 0; i < function.count; ++i) function.words[i] = updated(function.words[i], function.value);
}

}  // namespace millpond::model
