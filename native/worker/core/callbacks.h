// SPDX-License-Identifier: Apache-2.0
// The client's functions that streams have reached, passed between the driver's threads and the issuing thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "cuda/gen/cuda_api.h"

namespace millpond::worker {

/// A function that the client is asked to run.
enum class CallbackKind : uint32_t {
  kHostFunction = 0,
  kStreamCallback = 1,
  kDestructor = 2,
  kNothing = 3,  ///< the operation failed: the client need not wait for it
};

struct Callback {
  CallbackKind kind = CallbackKind::kNothing;
  uint16_t context = 0;
  uint64_t function = 0;  ///< addresses of the client
  uint64_t data = 0;
  uint64_t handle = 0;  ///< the stream in the program's terms
};

class Callbacks {
 public:
  struct Due {
    uint64_t number = 0;
    Callback callback;
    CUresult status = CUDA_SUCCESS;
    /// The graph launch that reached it; nullptr outside graphs.
    const void* node = nullptr;
  };

  /// `wake` makes the issuing thread check here soon; it may be called on any thread until `close`.
  explicit Callbacks(std::function<void()> wake) : wake_(std::move(wake)) {}

  /// Called on a thread of the driver: returns when the client has run the function, or when the client is gone.
  void runAndWait(const Callback& callback, CUresult status, const void* node);
  /// Same, for a function that no thread waits for.
  void announce(const Callback& callback);
  /// The next request of a context.
  std::optional<Due> take(uint16_t context);
  /// The client has run it. Returns false if there is no such request.
  bool done(uint64_t number);
  /// Number of the driver's threads that wait for the client.
  size_t running();
  /// The client is gone: waiting threads continue.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> wake_;
  std::deque<Due> due_;
  std::set<uint64_t> running_;  ///< due or sent to the client, with a waiting thread
  uint64_t last_ = 0;
  bool closed_ = false;
};

/// The driver's argument for the callback. Used for one run, unless it belongs to a node of a graph.
struct HostCall {
  std::shared_ptr<Callbacks> callbacks;
  Callback callback;
  bool isCopy = false;  ///< it copies between memory of the client

  /// The driver's CUhostFn and CUstreamCallback for a single run: `self` is deleted by it.
  static void runOnce(void* self);
  static void runOnceWithStatus(CUstream stream, CUresult status, void* self);
  /// The CUhostFn that ends a user object: no thread waits for the client's function.
  static void announceOnce(void* self);
  /// The CUhostFn of a graph's node: `self` stays.
  static void runNode(void* self);
};

}  // namespace millpond::worker
