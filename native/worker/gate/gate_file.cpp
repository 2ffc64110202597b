// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/gate_file.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

#include "worker/claim/shared_file.h"

namespace millpond::worker::gate {
namespace {

/// "gate", and the layout of what follows.
constexpr uint64_t kMagic = 0x6761746500000002;

}  // namespace

struct GateFile::Content {
  SharedFileHeader header;
  pthread_mutex_t mutex;         ///< of the table
  pthread_mutex_t lives[kSeats];  ///< held by whoever sits there
  Table table;
};

Result<std::unique_ptr<GateFile>> GateFile::open(const std::string& path) {
  auto place = mapSharedFile(path, "the gate", {kMagic, sizeof(Content)}, [](void* zeros) {
    auto* content = static_cast<Content*>(zeros);
    new (&content->table) Table;
    bool made = makeRobustMutex(content->mutex);
    for (pthread_mutex_t& life : content->lives) made = made && makeRobustMutex(life);
    return made;
  });
  if (!place) return place.error();
  return std::unique_ptr<GateFile>(new GateFile(static_cast<Content*>(*place)));
}

GateFile::~GateFile() { ::munmap(content_, sizeof(Content)); }

// Each number in the table is good by itself, so what a dead worker had half done is at most some time not charged.
void GateFile::lock() { lockRobust(content_->mutex); }

GateFile::Locked::Locked(GateFile& file) : turns(file.content_->table), file_(file) { file_.lock(); }
GateFile::Locked::~Locked() { ::pthread_mutex_unlock(&file_.content_->mutex); }

std::optional<uint32_t> GateFile::sit(uint64_t claim, Share share, int64_t now) {
  const Locked locked(*this);
  sweepLocked(now);
  auto turns = Turns(content_->table);
  const auto seat = turns.sit(claim, share, now);
  if (!seat) return std::nullopt;
  if (tryLockRobust(content_->lives[*seat])) return seat;
  // Somebody holds it who does not sit there: not a worker of ours.
  turns.leave(*seat, now);
  return std::nullopt;
}

void GateFile::leave(uint32_t seat, int64_t now) {
  const Locked locked(*this);
  Turns(content_->table).leave(seat, now);
  ::pthread_mutex_unlock(&content_->lives[seat]);
}

void GateFile::sweep(int64_t now) {
  const Locked locked(*this);
  sweepLocked(now);
}

void GateFile::sweepLocked(int64_t now) {
  for (uint32_t seat = 0; seat < kSeats; ++seat) {
    if (content_->table.seats[seat].state == Seat::State::kFree) continue;
    if (!tryLockRobust(content_->lives[seat])) continue;
    Turns(content_->table).leave(seat, now);
    ::pthread_mutex_unlock(&content_->lives[seat]);
  }
}

bool GateFile::mayGoOn(uint32_t seat) const {
  Table& table = content_->table;
  return std::atomic_ref(table.holder).load(std::memory_order_relaxed) == seat &&
         std::atomic_ref(table.seats[seat].mustYield).load(std::memory_order_relaxed) == 0;
}

uint32_t GateFile::taken() const { return std::atomic_ref(content_->table.taken).load(std::memory_order_relaxed); }
uint32_t GateFile::claims() const { return std::atomic_ref(content_->table.claims).load(std::memory_order_relaxed); }

}  // namespace millpond::worker::gate
