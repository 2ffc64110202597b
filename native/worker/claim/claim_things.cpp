// SPDX-License-Identifier: Apache-2.0
#include "worker/claim/claim_things.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "worker/claim/claim_seats.h"
#include "worker/claim/shared_file.h"

namespace millpond::worker {
namespace {

/// "things", and the layout version.
constexpr uint64_t kThingsMagic = 0x7468696e67730001;

struct ThingsSeat {
  uint32_t isTaken;
  int32_t pid;
  int64_t deadSince;  ///< monotonic clock; 0: it has not been seen dead
  std::array<uint64_t, kThings> amounts;
};

}  // namespace

/// All zeros, but for the header and the mutexes, when it is new.
struct ClaimThings::Content {
  SharedFileHeader header;
  pthread_mutex_t mutex;
  uint32_t seatsUsed;  ///< the seats from here on are free
  std::array<ThingsSeat, kClaimSeats> seats;
  std::array<pthread_mutex_t, kClaimSeats> lives;  ///< held by the session that sits there
};

struct ClaimThings::Lock {
  explicit Lock(Content& content) : content_(content) { lockRobust(content_.mutex); }
  ~Lock() { ::pthread_mutex_unlock(&content_.mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Content& content_;
};

ThingLimits ThingLimits::ofHost() {
  const uint64_t memory =
      static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  // Contexts and streams are also charged as device memory; these limits protect the driver.
  return {{128, 8192, uint64_t{1} << 18, uint64_t{1} << 22, memory / 2, uint64_t{2} << 30}};
}

ClaimThings::~ClaimThings() {
  if (!content_) return;
  rest();
  {
    const Lock lock(*content_);
    content_->seats[seat_].isTaken = 0;
  }
  ::munmap(content_, sizeof(Content));
}

Status ClaimThings::enter(const std::string& path) {
  auto place = mapSharedFile(path, "the counts", {kThingsMagic, sizeof(Content)}, [](void* zeros) {
    auto* content = static_cast<Content*>(zeros);
    bool made = makeRobustMutex(content->mutex);
    for (pthread_mutex_t& life : content->lives) made = made && makeRobustMutex(life);
    return made;
  });
  if (!place) return place.error();
  auto* content = static_cast<Content*>(*place);
  {
    const Lock lock(*content);
    seat_ = kClaimSeats;
    content_ = content;
    sweep();
    seat_ = takeSeat(*content);
    if (seat_ != kClaimSeats) {
      content->seats[seat_].amounts = own_;
      return Done{};
    }
  }
  content_ = nullptr;
  ::munmap(content, sizeof(Content));
  return Error{"the counts " + path + " have no free slot: " + std::to_string(kClaimSeats) +
               " sessions of the claim use the node, or have not ended yet"};
}

void ClaimThings::rest() {
  if (!content_ || isAtRest_) return;
  isAtRest_ = true;
  ::pthread_mutex_unlock(&content_->lives[seat_]);
}

uint64_t ClaimThings::others(Thing thing) const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < content_->seatsUsed; ++i)
    if (i != seat_ && content_->seats[i].isTaken) sum += content_->seats[i].amounts[static_cast<size_t>(thing)];
  return sum;
}

void ClaimThings::sweep() {
  clearEndedSeats(*content_, seat_, [this](uint32_t seat) { content_->seats[seat].isTaken = 0; });
}

uint64_t ClaimThings::total(Thing thing) {
  const uint64_t own = held(thing);
  if (!content_) return own;
  const Lock lock(*content_);
  sweep();
  return own + others(thing);
}

bool ClaimThings::awaitsEnd() {
  if (!content_) return false;
  const Lock lock(*content_);
  return hasEndingSeat(*content_, seat_);
}

bool ClaimThings::hold(Thing thing, uint64_t amount) {
  const auto index = static_cast<size_t>(thing);
  const uint64_t most = limits_.of(thing);
  if (amount > own_[index] && amount > most) return false;
  if (content_) {
    const Lock lock(*content_);
    const auto fits = [&] { return amount <= most - std::min(most, others(thing)); };
    if (amount > own_[index] && !fits()) {
      sweep();
      if (!fits()) return false;
    }
    content_->seats[seat_].amounts[index] = amount;
  }
  own_[index] = amount;
  return true;
}

}  // namespace millpond::worker
