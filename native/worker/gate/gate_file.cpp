// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/gate_file.h"

#include <sys/mman.h>

#include <new>

#include "base/log.h"
#include "worker/claim/shared_file.h"

namespace millpond::worker::gate {
namespace {

std::atomic_ref<uint32_t> atomic(const uint32_t& word) { return std::atomic_ref(const_cast<uint32_t&>(word)); }

}  // namespace

/// All zeros except for the table, when new.
struct GateFile::Content {
  std::atomic<uint32_t> lock;
  uint32_t owners[kSlots];  ///< identifies sessions to the lock
  Table table;
};

Result<std::unique_ptr<GateFile>> GateFile::open(const std::string& path, int64_t patienceNs) {
  auto lock = GateLock::open(path + ".lock", patienceNs);
  if (!lock) return lock.error();
  // The file has no magic number: any of the workers could change it and thereby keep all others out. Only the size is
  // checked.
  auto place = mapSharedBytes(path, "the gate", sizeof(Content), [](void* zeros) {
    new (&static_cast<Content*>(zeros)->table) Table;
    return true;
  });
  if (!place) return place.error();
  return std::unique_ptr<GateFile>(new GateFile(static_cast<Content*>(*place), std::move(*lock)));
}

GateFile::~GateFile() { ::munmap(content_, sizeof(Content)); }

Table& GateFile::table() { return own_ ? *own_ : content_->table; }
const Table& GateFile::table() const { return own_ ? *own_ : content_->table; }

// Each number in the table is valid by itself, so a half-finished change of a dead worker at most loses some charged
// time.
Table& GateFile::lock() {
  isLocked_ = !own_ && lock_.lock(content_->lock);
  if (!isLocked_ && !own_) leaveTable();
  return table();
}

void GateFile::unlock() {
  if (isLocked_) lock_.unlock(content_->lock);
  isLocked_ = false;
}

/// The slots and shares are those known to this process, whatever the table now contains.
void GateFile::leaveTable() {
  log(LogLevel::Error,
      "a process that uses the same device does not release the time slicer's lock: this session continues without it, within its share");
  own_ = std::make_unique<Table>();
  for (const auto& [slot, held] : held_) TimeSlicer(*own_).joinAt(slot, held.claim, held.share, 0);
}

GateFile::Locked::Locked(GateFile& file) : slicer(file.lock()), file_(file) {}
GateFile::Locked::~Locked() { file_.unlock(); }

std::optional<uint32_t> GateFile::join(uint64_t claim, Share share, int64_t now) {
  Locked locked(*this);
  if (!own_) sweepLocked(now);
  const auto slot = locked.slicer.join(claim, share, now);
  if (!slot) return slot;
  held_[*slot] = {claim, share};
  if (!own_) atomic(content_->owners[*slot]).store(lock_.id(), std::memory_order_relaxed);
  return slot;
}

void GateFile::setShare(uint32_t slot, Share share, int64_t now) {
  Locked locked(*this);
  held_[slot].share = share;
  locked.slicer.setShare(slot, share, now);
}

void GateFile::leave(uint32_t slot, int64_t now) {
  Locked locked(*this);
  held_.erase(slot);
  locked.slicer.leave(slot, now);
  if (!own_) atomic(content_->owners[slot]).store(0, std::memory_order_relaxed);
}

void GateFile::sweep(int64_t now) {
  const Locked locked(*this);
  if (!own_) sweepLocked(now);
}

void GateFile::sweepLocked(int64_t now) {
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    if (content_->table.slots[slot].state == Slot::State::kFree) continue;
    if (!lock_.isAlive(atomic(content_->owners[slot]).load(std::memory_order_relaxed)))
      TimeSlicer(content_->table).leave(slot, now);
  }
}

bool GateFile::mayGoOn(uint32_t slot) const {
  return atomic(table().holder).load(std::memory_order_relaxed) == slot &&
         atomic(table().slots[slot % kSlots].mustYield).load(std::memory_order_relaxed) == 0;
}

uint32_t GateFile::taken() const { return atomic(table().taken).load(std::memory_order_relaxed); }
uint32_t GateFile::claims() const { return atomic(table().claims).load(std::memory_order_relaxed); }

}  // namespace millpond::worker::gate
