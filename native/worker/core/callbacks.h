// SPDX-License-Identifier: Apache-2.0
// The client's functions that streams have come to: what the driver's threads and the issuing thread tell each other.
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

/// What the client is asked to run.
enum class CallbackKind : uint32_t {
  kHostFunction = 0,
  kStreamCallback = 1,
  kDestructor = 2,
  kNothing = 3,  ///< what was asked for failed: the client need not wait for it
};

struct Callback {
  CallbackKind kind = CallbackKind::kNothing;
  uint16_t context = 0;
  uint64_t function = 0;  ///< addresses of the client
  uint64_t data = 0;
  uint64_t handle = 0;  ///< the stream as the program named it
};

class Callbacks {
 public:
  struct Due {
    uint64_t number = 0;
    Callback callback;
    CUresult status = CUDA_SUCCESS;
    /// Of the graph launch that came to it; nullptr outside of graphs.
    const void* node = nullptr;
  };

  /// `wake` makes the issuing thread look here soon; it is called from any thread until `close`.
  explicit Callbacks(std::function<void()> wake) : wake_(std::move(wake)) {}

  /// On a thread of the driver: returns when the client has run it, or when there is no client any more.
  void runAndWait(const Callback& callback, CUresult status, const void* node);
  /// As that, for what nobody waits for.
  void announce(const Callback& callback);
  /// The next one of a context.
  std::optional<Due> take(uint16_t context);
  /// The client has run it. False: there is no such one.
  bool done(uint64_t number);
  /// How many of the driver's threads wait for the client.
  size_t running();
  /// The client is gone: whoever waits goes on.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> wake_;
  std::deque<Due> due_;
  std::set<uint64_t> running_;  ///< due or with the client, and waited for
  uint64_t last_ = 0;
  bool closed_ = false;
};

/// What the driver is given to come back with. Used for one run, unless it is a node of a graph.
struct HostCall {
  std::shared_ptr<Callbacks> callbacks;
  Callback callback;

  /// The driver's CUhostFn and CUstreamCallback for a single run: `self` ends with it.
  static void runOnce(void* self);
  static void runOnceWithStatus(CUstream stream, CUresult status, void* self);
  /// The CUhostFn that ends a user object: nobody waits for the client's.
  static void announceOnce(void* self);
  /// The CUhostFn of a graph's node: `self` stays.
  static void runNode(void* self);
};

}  // namespace millpond::worker
