// SPDX-License-Identifier: Apache-2.0
// Contexts as the program sees them: one primary context per device, always with the same handle, and those it creates.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "client/state/local_storage.h"
#include "cuda/gen/cuda_api.h"
#include "protocol/wire.h"

namespace millpond::client {

/// Whether the failure is sticky, so that every later call in the context returns it.
bool isSticky(CUresult failure);

/// A context. A primary one has its handle before it is retained, because the runtime makes it current first and
/// retains it afterwards. A destroyed one stays as an object: threads may still have it current.
class Context {
 public:
  enum class Kind : uint8_t { kPrimary, kCreated };

  Context(Kind kind, CUdevice device, uint16_t sessionDevice, uint16_t number, bool isGreen = false)
      : kind_(kind),
        device_(device),
        sessionDevice_(sessionDevice),
        number_(number),
        home_(isGreen ? static_cast<uint16_t>(sessionDevice + 1) : number) {}

  Kind kind() const { return kind_; }
  CUcontext handle() { return reinterpret_cast<CUcontext>(this); }
  /// Ordinal as the program sees it, after CUDA_VISIBLE_DEVICES.
  CUdevice device() const { return device_; }
  /// Ordinal in the session.
  uint16_t sessionDevice() const { return sessionDevice_; }
  /// The number in a command's frame.
  uint16_t wireContext() const { return number_; }
  /// The number of the context that owns objects created in this one: for a green one the primary, except for streams.
  uint16_t home() const { return home_; }
  bool isGreen() const { return home_ != number_; }
  /// Retained and not reset since; or created and not destroyed.
  bool active() const { return id() != 0; }
  /// Unique in this process, and changes with each reset; 0 while not active.
  uint64_t id() const { return id_.load(std::memory_order_acquire); }
  bool destroyed() const { return kind_ == Kind::kCreated && !active(); }
  unsigned flags() const { return flags_.load(std::memory_order_relaxed); }
  void setFlags(unsigned flags) { flags_.store(flags, std::memory_order_relaxed); }

  /// Stores a failure that the next call in this context is to report; the first one counts, and a sticky one stays.
  void fail(CUresult failure);
  void forgetFailure() { failure_.store(0, std::memory_order_relaxed); }
  /// The failure to report; CUDA_SUCCESS if there is none. Each is returned once, except sticky ones.
  CUresult takeFailure() {
    const int32_t failure = failure_.load(std::memory_order_relaxed);
    if (failure == 0) [[likely]]
      return CUDA_SUCCESS;
    return takeFailureSlowly();
  }

  LocalStorage storage;
  /// The program's settings, which it can read back.
  std::atomic<CUfunc_cache> cacheConfig{CU_FUNC_CACHE_PREFER_NONE};

 private:
  friend class ContextTable;
  CUresult takeFailureSlowly();

  const Kind kind_;
  const CUdevice device_;
  const uint16_t sessionDevice_;
  const uint16_t number_;
  const uint16_t home_;
  std::atomic<int32_t> failure_{0};
  std::atomic<uint64_t> id_{0};
  std::atomic<unsigned> flags_{0};
  unsigned retained_ = 0;  // guarded by ContextTable::mutex_
};

/// The contexts of the process. Lives as long as the process: handles stay valid.
class ContextTable {
 public:
  /// Called when a context ends, with the last release or a reset, before anybody can activate it again:
  /// everything that lives in it must go, in order with the calls before and after. Must not call back.
  using OnEnd = std::function<void(const Context&)>;

  /// `sessionDevices[i]`: ordinal in the session of the program's device i. `firstNumber`: the first number of a created
  /// context, above those of the primary ones.
  ContextTable(const std::vector<uint16_t>& sessionDevices, OnEnd onEnd, uint16_t firstNumber = 65);

  /// nullptr when there is no such device.
  Context* primary(CUdevice device) const {
    const auto index = static_cast<size_t>(device);
    return device >= 0 && index < contexts_.size() ? contexts_[index].get() : nullptr;
  }
  /// nullptr if the handle is not ours; never dereferences it.
  Context* find(CUcontext handle) const {
    for (const auto& context : contexts_) {
      if (context->handle() == handle) return context.get();
    }
    const uint16_t end = end_.load(std::memory_order_acquire);
    for (uint16_t number = firstNumber_; number < end; ++number) {
      Context* created = byNumber(number);
      if (created && created->handle() == handle) return created;
    }
    return nullptr;
  }
  /// nullptr when no context has this number.
  Context* byNumber(uint16_t number) const {
    return number < byNumber_.size() ? byNumber_[number].load(std::memory_order_acquire) : nullptr;
  }
  /// Visits all contexts that are active.
  template <typename Visit>
  void each(Visit&& visit) const {
    for (uint16_t number = 1; number < end_.load(std::memory_order_acquire); ++number)
      if (Context* context = byNumber(number); context && context->active()) visit(*context);
  }

  /// A context that is not active yet; nullptr if there are too many.
  Context* create(const Context& primary, unsigned flags, bool isGreen = false);
  /// Makes a created context active, with one user.
  void activate(Context& context);
  /// The creation of a context has failed.
  void discard(Context& context);
  /// Adds a user of a created context, or removes one: removing the last one destroys it.
  CUresult attach(Context& context);
  CUresult detach(Context& context);
  /// CUDA_ERROR_INVALID_CONTEXT when it is destroyed already.
  CUresult destroy(Context& context);

  void retain(Context& context);
  /// CUDA_ERROR_INVALID_CONTEXT if it is not retained. The last release ends it.
  CUresult release(Context& context);
  /// Ends it; each retain still needs its release.
  void reset(Context& context);

 private:
  void end(Context& context, std::unique_lock<std::mutex>& lock);

  const uint16_t firstNumber_;
  std::vector<std::unique_ptr<Context>> contexts_;  ///< the primary ones
  std::vector<std::unique_ptr<Context>> created_;   ///< all that have ever existed
  std::array<std::atomic<Context*>, wire::kContextLimit> byNumber_{};
  std::atomic<uint16_t> end_;         ///< above the highest number in use so far
  std::deque<uint16_t> freeNumbers_;  ///< the least recently used one first
  OnEnd onEnd_;
  std::mutex mutex_;
  uint64_t lastId_ = 0;
};

/// Each thread's stack of current contexts.
class CurrentContext {
 public:
  /// The top; nullptr when the stack is empty.
  static Context* get() { return top_; }
  /// Replaces the top, or pushes onto an empty stack; nullptr pops.
  static void set(Context* context);
  static void push(Context& context);
  /// nullptr when the stack was empty.
  static Context* pop();
  /// In a forked child: the contexts belong to the parent.
  static void forget();

 private:
  // Read by every call, so it avoids the function call that a dynamic thread-local variable costs; one pointer always
  // fits into the room that the C library reserves for such variables of libraries that are loaded later.
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit Context* top_ = nullptr;
};

}  // namespace millpond::client
