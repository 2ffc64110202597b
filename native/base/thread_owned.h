// SPDX-License-Identifier: Apache-2.0
// State of each thread, for as long as it may call the driver.
#pragma once

#include <pthread.h>

#include <memory>
#include <utility>

namespace millpond {

/// The calling thread's T, made when it is asked for first and ended with the thread, after its thread-local variables.
/// That of the thread which ends the process is never ended: other libraries' exit handlers call the driver when
/// thread-local variables with destructors are gone already, as those of the plans that a framework keeps do.
template <typename T>
T& threadOwned() {
  static thread_local constinit T* own = nullptr;
  if (!own) [[unlikely]] {
    // Without a key, of which a process has 1,024, what a thread has is left to the process's end.
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
