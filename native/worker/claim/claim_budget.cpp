// SPDX-License-Identifier: Apache-2.0
#include "worker/claim/claim_budget.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "protocol/futex.h"
#include "worker/claim/shared_file.h"

namespace millpond::worker {
namespace {

/// "claim", and the layout version.
constexpr uint64_t kMagic = 0x636c61696d000001;

struct Seat {
  uint32_t isTaken;
  int32_t pid;
  int64_t deadSince;  ///< monotonic clock; 0: it has not been seen dead
  uint64_t used;      ///< bytes that it does not share, including its context
};

struct SharedMemory {
  uint64_t bytes;  ///< 0: the entry is free
  uint64_t number;
  std::array<uint64_t, kClaimSeats / 64> holders;  ///< one bit for each seat

  bool isHeld() const {
    return std::any_of(holders.begin(), holders.end(), [](uint64_t word) { return word != 0; });
  }
  void hold(uint32_t seat) { holders[seat / 64] |= uint64_t{1} << seat % 64; }
  void letGo(uint32_t seat) {
    holders[seat / 64] &= ~(uint64_t{1} << seat % 64);
    if (!isHeld()) bytes = 0;
  }
};

}  // namespace

/// All zeros, but for the header and the mutexes, when it is new.
struct ClaimBudget::Content {
  SharedFileHeader header;
  pthread_mutex_t mutex;
  uint64_t limit;  ///< with one context
  uint64_t revision;
  uint32_t seatsUsed;   ///< the seats from here on are free
  uint32_t sharedUsed;  ///< and so are these entries
  uint64_t lastShared;
  std::array<Seat, kClaimSeats> seats;
  std::array<SharedMemory, kClaimShared> shared;
  std::array<pthread_mutex_t, kClaimSeats> lives;  ///< held by the session that sits there

  SharedMemory* find(uint64_t number) {
    for (uint32_t i = 0; i < sharedUsed; ++i)
      if (shared[i].bytes && shared[i].number == number) return &shared[i];
    return nullptr;
  }
  /// A new entry without a holder; null if all are taken.
  SharedMemory* add(uint64_t bytes) {
    for (uint32_t i = 0; i < kClaimShared; ++i) {
      if (shared[i].bytes) continue;
      shared[i].number = ++lastShared;
      shared[i].holders = {};
      shared[i].bytes = bytes;
      sharedUsed = std::max(sharedUsed, i + 1);
      return &shared[i];
    }
    return nullptr;
  }
};

struct ClaimBudget::Lock {
  explicit Lock(Content& content) : content_(content) { lockRobust(content_.mutex); }
  ~Lock() { ::pthread_mutex_unlock(&content_.mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Content& content_;
};

ClaimBudget::ClaimBudget(uint64_t limitBytes, uint64_t contextBytes) : contextBytes_(contextBytes) {
  void* zeros = ::mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (zeros == MAP_FAILED || !makeRobustMutex(static_cast<Content*>(zeros)->mutex)) std::abort();
  content_ = static_cast<Content*>(zeros);
  content_->limit = withContext(limitBytes);
  content_->seatsUsed = 1;
  content_->seats[0].isTaken = 1;
}

ClaimBudget::~ClaimBudget() { unmap(); }

uint64_t ClaimBudget::withContext(uint64_t limitBytes) const {
  return limitBytes > UINT64_MAX - contextBytes_ ? UINT64_MAX : limitBytes + contextBytes_;
}

void ClaimBudget::unmap() {
  if (isShared_) {
    rest();
    const Lock lock(*content_);
    clearSeat(seat_);
  }
  ::munmap(content_, sizeof(Content));
}

Status ClaimBudget::enter(const std::string& path, uint64_t revision) {
  auto place = mapSharedFile(path, "the budget", {kMagic, sizeof(Content)}, [](void* zeros) {
    auto* content = static_cast<Content*>(zeros);
    bool made = makeRobustMutex(content->mutex);
    for (pthread_mutex_t& life : content->lives) made = made && makeRobustMutex(life);
    return made;
  });
  if (!place) return place.error();
  auto* content = static_cast<Content*>(*place);
  const uint64_t limit = content_->limit;
  unmap();
  content_ = content;
  seat_ = kClaimSeats;
  const Lock lock(*content_);
  sweep();
  seat_ = takeSeat(*content_);
  if (seat_ == kClaimSeats)
    return Error{"the budget " + path + " has no free slot: " + std::to_string(kClaimSeats) +
                 " sessions of the claim use the device, or have not ended yet"};
  isShared_ = true;
  if (revision >= content_->revision) {
    content_->revision = revision;
    content_->limit = limit;
  }
  return Done{};
}

void ClaimBudget::rest() {
  if (!isShared_ || isAtRest_) return;
  isAtRest_ = true;
  ::pthread_mutex_unlock(&content_->lives[seat_]);
}

uint64_t ClaimBudget::sum() const {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < content_->seatsUsed; ++i)
    if (content_->seats[i].isTaken) bytes += content_->seats[i].used;
  for (uint32_t i = 0; i < content_->sharedUsed; ++i) bytes += content_->shared[i].bytes;
  return bytes;
}

void ClaimBudget::clearSeat(uint32_t seat) const {
  for (uint32_t i = 0; i < content_->sharedUsed; ++i)
    if (content_->shared[i].bytes) content_->shared[i].letGo(seat);
  content_->seats[seat].isTaken = 0;
}

void ClaimBudget::sweep() const {
  if (!isShared_ && seat_ != kClaimSeats) return;
  clearEndedSeats(*content_, seat_, [this](uint32_t seat) { clearSeat(seat); });
  while (content_->sharedUsed > 0 && !content_->shared[content_->sharedUsed - 1].bytes) --content_->sharedUsed;
}

bool ClaimBudget::fits(uint64_t bytes) {
  const auto hasRoom = [&] { return bytes <= content_->limit - std::min(content_->limit, sum()); };
  if (hasRoom()) return true;
  sweep();
  return hasRoom();
}

bool ClaimBudget::takeContext() {
  const Lock lock(*content_);
  if (!fits(contextBytes_)) return false;
  content_->seats[seat_].used += contextBytes_;
  takenContext_ = contextBytes_;
  return true;
}

bool ClaimBudget::awaitsEnd() {
  const Lock lock(*content_);
  return isShared_ && hasEndingSeat(*content_, seat_);
}

uint32_t ClaimBudget::sessions() const {
  const Lock lock(*content_);
  sweep();
  return static_cast<uint32_t>(std::count_if(content_->seats.begin(), content_->seats.begin() + content_->seatsUsed,
                                             [](const Seat& seat) { return seat.isTaken != 0; }));
}

uint64_t ClaimBudget::contextInLimit() const {
  // Seats may change in the meantime: the next check is right again.
  for (uint32_t i = 0; i < seat_; ++i)
    if (std::atomic_ref(content_->seats[i].isTaken).load(std::memory_order_relaxed)) return takenContext_;
  return 0;
}

std::optional<ClaimBudget::Charge> ClaimBudget::take(uint64_t bytes) {
  const Lock lock(*content_);
  if (!fits(bytes)) return std::nullopt;
  content_->seats[seat_].used += bytes;
  own_.fetch_add(bytes, std::memory_order_relaxed);
  return Charge{bytes};
}

void ClaimBudget::give(const Charge& charge) {
  const Lock lock(*content_);
  if (!charge.shared) {
    content_->seats[seat_].used -= charge.bytes;
    own_.fetch_sub(charge.bytes, std::memory_order_relaxed);
    return;
  }
  const auto opened = opened_.find(charge.shared);
  if (--opened->second != 0) return;
  opened_.erase(opened);
  own_.fetch_sub(charge.bytes, std::memory_order_relaxed);
  if (SharedMemory* memory = content_->find(charge.shared)) memory->letGo(seat_);
}

void ClaimBudget::share(Charge& charge) {
  if (!isShared_ || charge.shared) return;
  const Lock lock(*content_);
  SharedMemory* memory = content_->add(charge.bytes);
  if (!memory) return;
  memory->hold(seat_);
  content_->seats[seat_].used -= charge.bytes;
  charge.shared = memory->number;
  opened_.emplace(memory->number, 1);
}

std::optional<ClaimBudget::Charge> ClaimBudget::join(uint64_t shared, uint64_t bytes) {
  {
    const Lock lock(*content_);
    SharedMemory* memory = shared ? content_->find(shared) : nullptr;
    if (memory && memory->bytes == bytes) {
      memory->hold(seat_);
      if (++opened_[shared] == 1) own_.fetch_add(bytes, std::memory_order_relaxed);
      return Charge{bytes, shared};
    }
  }
  // The session that shared it has released it in the meantime, or cannot report that it does.
  return take(bytes);
}

bool ClaimBudget::setLimit(uint64_t bytes, uint64_t revision) {
  const Lock lock(*content_);
  sweep();
  if (sum() > withContext(bytes)) return false;
  if (revision < content_->revision) return true;
  content_->revision = revision;
  content_->limit = withContext(bytes);
  return true;
}

uint64_t ClaimBudget::limitBytes() const {
  const Lock lock(*content_);
  return content_->limit - std::min(content_->limit, contextBytes_);
}

uint64_t ClaimBudget::usedBytes() const {
  const Lock lock(*content_);
  sweep();
  const uint64_t bytes = sum();
  return bytes - std::min(bytes, takenContext_);
}

uint64_t ClaimBudget::left() const {
  const Lock lock(*content_);
  sweep();
  // The memory for the context beside the limit is for nothing else.
  const uint64_t limit = content_->limit - std::min(content_->limit, contextBytes_);
  return std::min(limit, content_->limit - std::min(content_->limit, sum()));
}

}  // namespace millpond::worker
