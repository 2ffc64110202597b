// SPDX-License-Identifier: Apache-2.0
// Data that libraries attach to a context under their own keys.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

/// Key → value, for a handful of keys. Every call of the CUDA runtime begins with `get`, so it takes no lock and writes
/// nothing: readers retry if a writer was active meanwhile.
class LocalStorage {
 public:
  using Destructor = void (*)(CUcontext context, void* key, void* value);
  struct Entry {
    void* key;
    void* value;
    Destructor destructor;
  };

  LocalStorage() = default;
  ~LocalStorage();
  LocalStorage(const LocalStorage&) = delete;
  LocalStorage& operator=(const LocalStorage&) = delete;

  /// False when the key is absent.
  bool get(const void* key, void*& value) const {
    for (;;) {
      const uint32_t before = version_.load(std::memory_order_acquire);
      const bool found = scan(key, value);
      // The loads of `scan` acquire, so this one comes after them.
      if (!(before & 1) && version_.load(std::memory_order_relaxed) == before) return found;
    }
  }

  /// Adds the key or replaces its value. The key is not null.
  void put(void* key, void* value, Destructor destructor);
  /// False when the key is absent. Does not call the destructor.
  bool remove(const void* key);
  /// Empties the storage and returns its entries.
  std::vector<Entry> takeAll();

 private:
  static constexpr size_t kSlots = 16;
  struct Slot {
    std::atomic<void*> key{nullptr};  // null: free
    std::atomic<void*> value{nullptr};
    Destructor destructor = nullptr;  // guarded by mutex_
  };
  // Chunks are added and never removed, so that a reader can always follow them.
  struct Chunk {
    Slot slots[kSlots];
    std::atomic<Chunk*> next{nullptr};
  };

  bool scan(const void* key, void*& value) const {
    for (const Chunk* chunk = &first_; chunk; chunk = chunk->next.load(std::memory_order_acquire)) {
      for (const Slot& slot : chunk->slots) {
        if (slot.key.load(std::memory_order_acquire) != key) continue;
        value = slot.value.load(std::memory_order_acquire);
        return true;
      }
    }
    return false;
  }
  Slot* find(const void* key);

  std::atomic<uint32_t> version_{0};  // odd while a writer is active
  Chunk first_;
  std::mutex mutex_;  // of writers
};

}  // namespace millpond::client
