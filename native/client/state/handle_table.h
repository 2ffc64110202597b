// SPDX-License-Identifier: Apache-2.0
// The handles that this client invented. Looking one up takes no lock: it happens on every launch.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/cluster_shape.h"
#include "protocol/handle.h"

namespace millpond::client {

/// Data that the client stores with a handle, to answer queries itself.
struct HandleTraits {
  unsigned flags = 0;
  int priority = 0;
};

/// Settings of cuFuncSetBlockShape and related calls, for cuLaunch.
struct LegacyLaunch {
  unsigned blockX = 1, blockY = 1, blockZ = 1;
  unsigned sharedBytes = 0;
  std::vector<std::byte> parameters;
};

/// Data about a function or kernel for launches and queries.
struct FunctionInfo {
  struct Parameter {
    uint32_t offset;
    uint32_t size;
  };
  std::string name;
  uint64_t owner = 0;  ///< its module or library
  std::vector<Parameter> parameters;
  uint32_t parameterBytes = 0;
  LegacyLaunch legacy;

  /// Whether a launch with at least as many threads per block and as much dynamic shared memory is known to be possible
  /// in that context.
  bool isAllowed(uint16_t context, uint64_t threads, unsigned sharedBytes) const {
    const uint64_t known = allowed_.load(std::memory_order_relaxed);
    return (known >> 48) == context && threads <= (known >> 32 & 0xffff) && sharedBytes <= (known & 0xffffffff);
  }
  void allow(uint16_t context, uint32_t threads, uint32_t sharedBytes) {
    allowed_.store(uint64_t{context} << 48 | uint64_t{threads} << 32 | sharedBytes, std::memory_order_relaxed);
  }
  void forgetAllowed() { allowed_.store(0, std::memory_order_relaxed); }
  void forgetAllowedIn(uint16_t context) {
    if (allowed_.load(std::memory_order_relaxed) >> 48 == context) forgetAllowed();
  }

  /// The clusters for which it was compiled. Valid once a limit has been allowed.
  ClusterShape cluster() const {
    const uint64_t packed = cluster_.load(std::memory_order_relaxed);
    return {static_cast<unsigned>(packed & 0xffff), static_cast<unsigned>(packed >> 16 & 0xffff),
            static_cast<unsigned>(packed >> 32 & 0xffff)};
  }
  void setCluster(const ClusterShape& cluster) {
    cluster_.store(uint64_t{cluster.z & 0xffff} << 32 | uint64_t{cluster.y & 0xffff} << 16 | (cluster.x & 0xffff),
                   std::memory_order_relaxed);
  }

 private:
  /// The limits that were last requested: context, threads (16 bits), bytes (32 bits).
  std::atomic<uint64_t> allowed_{0};
  std::atomic<uint64_t> cluster_{0};  ///< 16 bits each of x, y and z
};

class HandleTable {
 public:
  struct Slot {
    std::atomic<uint64_t> wire{0};  ///< 0: free
    uint16_t context = 0;           ///< its number
    uint16_t generation = 0;
    HandleTraits traits;
    std::unique_ptr<FunctionInfo> function;
    std::map<std::string, uint64_t, std::less<>> children;  ///< of a module or library; under the table's lock
  };

  /// A new handle; 0 if the table is full.
  uint64_t create(HandleKind kind, uint16_t context, HandleTraits traits = {});
  /// The slot of a live handle of this kind; nullptr: there is none.
  Slot* find(HandleKind kind, const void* handle) {
    const auto wire = reinterpret_cast<uint64_t>(handle);
    return handle::kind(wire) == kind ? find(wire) : nullptr;
  }
  Slot* find(uint64_t wire) {
    const uint32_t index = handle::index(wire);
    Chunk* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    if (!chunk || wire == 0) return nullptr;
    Slot& slot = (*chunk)[index % kChunk];
    return slot.wire.load(std::memory_order_acquire) == wire ? &slot : nullptr;
  }
  /// Claims a handle, and those derived from it, for destruction: the first of two threads that destroy the same handle
  /// succeeds. Their slots are free only after `recycle`, which must follow the command that notifies the worker:
  /// otherwise a new handle in the same slot could reach the worker first. Empty if the handle is not live.
  std::vector<uint64_t> claim(HandleKind kind, const void* handle);
  void recycle(const std::vector<uint64_t>& claimed);
  /// Whether a claimed handle that is not recycled yet came from a module or library.
  bool wasChild(uint64_t claimed);
  /// Completes a function or kernel: it ends with `owner`, and is found there by its name.
  void describe(uint64_t owner, uint64_t child, std::unique_ptr<FunctionInfo> info);
  /// The function or kernel of that name that was requested before; 0: there is none.
  uint64_t childNamed(uint64_t owner, std::string_view name);
  /// A context has ended: launches that were allowed there must be checked again.
  void forgetAllowed(uint16_t context);
  /// Claims all handles whose objects live in a context.
  std::vector<uint64_t> claimAll(uint16_t context);

 private:
  static constexpr uint32_t kChunk = 1024;
  using Chunk = std::array<Slot, kChunk>;

  Slot& slot(uint32_t index) { return (*chunks_[index / kChunk].load(std::memory_order_acquire))[index % kChunk]; }
  void claimLocked(uint64_t wire, std::vector<uint64_t>& claimed);

  std::mutex mutex_;
  std::array<std::atomic<Chunk*>, handle::kMaxHandles / kChunk> chunks_{};
  std::deque<std::unique_ptr<Chunk>> owned_;
  std::vector<uint32_t> free_;
  uint32_t used_ = 1;  // index 0 is unused, so that no handle is small
};

}  // namespace millpond::client
