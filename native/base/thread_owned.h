// SPDX-License-Identifier: Apache-2.0
// State of each thread, valid as long as the thread may call the driver.
#pragma once

#include <pthread.h>

#include <memory>
#include <utility>

namespace millpond {

/// The calling thread's T, created on first use and destroyed with the thread, after its thread-local variables. The T
/// of the thread that ends the process is never destroyed: exit handlers of other libraries call the driver after
/// thread-local variables with destructors are gone, for example to release a framework's plans.
template <typename T>
T& threadOwned() {
  static thread_local constinit T* own = nullptr;
  if (!own) [[unlikely]] {
    // Without a key (a process has 1,024), the state is freed only when the process ends.
    static const auto [key, isMade] = [] {
      pthread_key_t made{};
      const int failure = ::pthread_key_create(&made, [](void*) { std::unique_ptr<T>(std::exchange(own, nullptr)); });
      return std::pair(made, failure == 0);
    }();
    own = std::make_unique<T>().release();
    if (isMade) ::pthread_setspecific(key, own);
  }
  return *own;
}

}  // namespace millpond
