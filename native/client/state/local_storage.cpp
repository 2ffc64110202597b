// SPDX-License-Identifier: Apache-2.0
#include "client/state/local_storage.h"

#include <memory>

namespace millpond::client {

namespace {
// Marks the storage as being modified during its lifetime. Data is stored with release, so a reader that sees new data
// also sees the odd version.
class Changing {
 public:
  explicit Changing(std::atomic<uint32_t>& version) : version_(version) {
    version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  ~Changing() { version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;

 private:
  std::atomic<uint32_t>& version_;
};
}  // namespace

LocalStorage::~LocalStorage() {
  for (Chunk* chunk = first_.next.load(); chunk;) {
    const std::unique_ptr<Chunk> ended(chunk);
    chunk = chunk->next.load();
  }
}

LocalStorage::Slot* LocalStorage::find(const void* key) {
  for (Chunk* chunk = &first_; chunk; chunk = chunk->next.load(std::memory_order_relaxed)) {
    for (Slot& slot : chunk->slots) {
      if (slot.key.load(std::memory_order_relaxed) == key) return &slot;
    }
  }
  return nullptr;
}

void LocalStorage::put(void* key, void* value, Destructor destructor) {
  const std::lock_guard lock(mutex_);
  Slot* slot = find(key);
  if (!slot) slot = find(nullptr);
  if (!slot) {
    Chunk* last = &first_;
    while (Chunk* next = last->next.load(std::memory_order_relaxed)) last = next;
    Chunk* added = std::make_unique<Chunk>().release();
    slot = &added->slots[0];
    last->next.store(added, std::memory_order_release);
  }
  const Changing changing(version_);
  slot->value.store(value, std::memory_order_release);
  slot->key.store(key, std::memory_order_release);
  slot->destructor = destructor;
}

bool LocalStorage::remove(const void* key) {
  const std::lock_guard lock(mutex_);
  Slot* slot = find(key);
  if (!slot) return false;
  const Changing changing(version_);
  slot->key.store(nullptr, std::memory_order_release);
  slot->value.store(nullptr, std::memory_order_release);
  return true;
}

std::vector<LocalStorage::Entry> LocalStorage::takeAll() {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  const Changing changing(version_);
  for (Chunk* chunk = &first_; chunk; chunk = chunk->next.load(std::memory_order_relaxed)) {
    for (Slot& slot : chunk->slots) {
      void* key = slot.key.load(std::memory_order_relaxed);
      if (!key) continue;
      entries.push_back({key, slot.value.load(std::memory_order_relaxed), slot.destructor});
      slot.key.store(nullptr, std::memory_order_release);
      slot.value.store(nullptr, std::memory_order_release);
    }
  }
  return entries;
}

}  // namespace millpond::client
