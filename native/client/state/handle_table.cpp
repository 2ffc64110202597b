// SPDX-License-Identifier: Apache-2.0
#include "client/state/handle_table.h"

namespace millpond::client {

uint64_t HandleTable::create(HandleKind kind, uint16_t context, HandleTraits traits) {
  std::lock_guard lock(mutex_);
  uint32_t index;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else {
    if (used_ == handle::kMaxHandles) return 0;
    index = used_++;
    if (!chunks_[index / kChunk].load(std::memory_order_relaxed)) {
      owned_.push_back(std::make_unique<Chunk>());
      chunks_[index / kChunk].store(owned_.back().get(), std::memory_order_release);
    }
  }
  Slot& fresh = slot(index);
  fresh.context = context;
  fresh.traits = traits;
  const uint64_t wire = handle::make(kind, index, ++fresh.generation);
  fresh.wire.store(wire, std::memory_order_release);
  return wire;
}

void HandleTable::claimLocked(uint64_t wire, std::vector<uint64_t>& claimed) {
  Slot* live = find(wire);
  if (!live) return;
  live->wire.store(0, std::memory_order_release);
  claimed.push_back(wire);
  for (const auto& [name, child] : live->children) claimLocked(child, claimed);
  live->children.clear();
}

std::vector<uint64_t> HandleTable::claim(HandleKind kind, const void* handle) {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> claimed;
  if (find(kind, handle)) claimLocked(reinterpret_cast<uint64_t>(handle), claimed);
  return claimed;
}

void HandleTable::recycle(const std::vector<uint64_t>& claimed) {
  std::lock_guard lock(mutex_);
  for (const uint64_t wire : claimed) {
    slot(handle::index(wire)).function.reset();
    free_.push_back(handle::index(wire));
  }
}

bool HandleTable::wasChild(uint64_t claimed) {
  std::lock_guard lock(mutex_);
  return slot(handle::index(claimed)).function != nullptr;
}

void HandleTable::describe(uint64_t owner, uint64_t child, std::unique_ptr<FunctionInfo> info) {
  std::lock_guard lock(mutex_);
  if (Slot* live = find(owner)) live->children.insert_or_assign(info->name, child);
  Slot* made = find(child);
  if (!made) return;
  made->function = std::move(info);
  // A thread that finds the handle also finds this data, however the program has passed the handle on.
  made->wire.store(child, std::memory_order_release);
}

uint64_t HandleTable::childNamed(uint64_t owner, std::string_view name) {
  std::lock_guard lock(mutex_);
  const Slot* live = find(owner);
  if (!live) return 0;
  const auto found = live->children.find(name);
  // The module of a library in a context may have ended with the context.
  return found == live->children.end() || !find(found->second) ? 0 : found->second;
}

void HandleTable::forgetAllowed(uint16_t context) {
  std::lock_guard lock(mutex_);
  for (uint32_t index = 1; index < used_; ++index)
    if (FunctionInfo* function = slot(index).function.get()) function->forgetAllowedIn(context);
}

std::vector<uint64_t> HandleTable::claimAll(uint16_t context) {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> claimed;
  for (uint32_t index = 1; index < used_; ++index) {
    Slot& each = slot(index);
    const uint64_t wire = each.wire.load(std::memory_order_relaxed);
    if (wire != 0 && each.context == context && handle::livesInContext(handle::kind(wire))) claimLocked(wire, claimed);
  }
  return claimed;
}

}  // namespace millpond::client
