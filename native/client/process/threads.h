// SPDX-License-Identifier: Apache-2.0
// The program's threads: their numbers in frames, and the default streams of their own.
#pragma once

#include <atomic>
#include <cstdint>

namespace millpond::client {

/// The program's threads that have made calls.
class Threads {
 public:
  /// Small number of the calling one, from 1.
  static uint32_t number() noexcept {
    if (mine_ == 0) [[unlikely]]
      mine_ = last_.fetch_add(1, std::memory_order_relaxed) + 1;
    return mine_;
  }

 private:
  static inline std::atomic<uint32_t> last_{0};
  // Like Context::top_: read by every call.
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit uint32_t mine_ = 0;
};

inline uint32_t threadNumber() noexcept { return Threads::number(); }

/// The calling thread's own default streams, one for each context in which it has used one. They end with the thread.
class ThreadStreams {
 public:
  /// Destroys a stream of a thread that ends, on that thread.
  using End = void (*)(uint16_t context, uint64_t wire);

  /// Number of the stream in that context; 0: there is none.
  static uint64_t get(uint16_t context) noexcept;
  static void set(uint16_t context, uint64_t wire, End end) noexcept;
  /// Forgets the streams of all threads in a context that has ended.
  static void forget(uint16_t context) noexcept;
};

}  // namespace millpond::client
