// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/turns.h"

#include <algorithm>
#include <atomic>

namespace millpond::worker::gate {
namespace {

constexpr int64_t kLongestNapNs = 5'000'000;
constexpr int64_t kShortestNapNs = 10'000;
/// Who waits for somebody's turn to end looks so often.
constexpr int64_t kLookNs = 100'000;

/// These two words are read by the session that has the turn without the lock of the table.
void publish(uint32_t& word, uint32_t value) { std::atomic_ref(word).store(value, std::memory_order_relaxed); }

int64_t forShare(int64_t ns, const Share& share) { return ns * 100 / share.percent; }

}  // namespace

int64_t Turns::turnOf(const Share& share) {
  return std::clamp<int64_t>(int64_t{share.percent} * 200'000, kShortestTurnNs, kLongestTurnNs);
}

int64_t Turns::debtLimit(const Share& share) const {
  switch (share.serviceClass) {
    case ServiceClass::kGuaranteed:
      return kLongestWaitNs * share.percent / 100;
    case ServiceClass::kBurstable:
      return kBurstDebtNs;
    case ServiceClass::kBestEffort:
      break;
  }
  return 0;
}

std::optional<uint32_t> Turns::sit(Share share, int64_t now) {
  for (uint32_t i = 0; i < kSeats; ++i) {
    if (at(i).state != Seat::State::kFree) continue;
    at(i) = Seat{};
    at(i).state = Seat::State::kIdle;
    at(i).share = share;
    at(i).creditAt = now;
    at(i).credit = least(share);
    at(i).served = table_.served;
    publish(table_.taken, table_.taken + 1);
    return i;
  }
  return std::nullopt;
}

void Turns::leave(uint32_t seat, int64_t now) {
  if (at(seat).state == Seat::State::kFree) return;
  land(seat, now);
  pass(seat, now);
  at(seat).state = Seat::State::kFree;
  publish(table_.taken, table_.taken - 1);
}

void Turns::setShare(uint32_t seat, Share share, int64_t now) {
  refresh(at(seat), now);
  at(seat).share = share;
  at(seat).credit = std::max(at(seat).credit, -debtLimit(share));
}

void Turns::refresh(Seat& seat, int64_t now) {
  // A machine may have slept for long.
  const int64_t passed = std::clamp<int64_t>(now - seat.creditAt, 0, 2 * kLongestWaitNs);
  const int64_t earned = passed * seat.share.percent / 100;
  // Fractions are not lost, however often this is done.
  seat.creditAt = passed == 2 * kLongestWaitNs ? now : seat.creditAt + forShare(earned, seat.share);
  seat.credit += earned;
  if (seat.credit < kMostCreditNs) return;
  seat.credit = kMostCreditNs;
  seat.creditAt = std::max(now, seat.creditAt);
}

Rank Turns::rankOf(const Seat& seat) const {
  if (seat.share.serviceClass == ServiceClass::kBestEffort) return Rank::kBestEffort;
  // Who has the turn goes on as long as anything is left.
  const int64_t needed = seat.state == Seat::State::kTurn ? 1 : least(seat.share);
  if (seat.credit >= needed) return Rank::kWithinShare;
  if (seat.share.serviceClass == ServiceClass::kBurstable) return Rank::kBurst;
  return seat.share.isCapped() ? Rank::kNone : Rank::kWithinShare;
}

bool Turns::isBefore(const Seat& a, const Seat& b) const {
  const Rank of = rankOf(a);
  if (of != rankOf(b)) return of < rankOf(b);
  const auto index = static_cast<size_t>(of);
  return index < kRanks && a.served[index] < b.served[index];
}

uint32_t Turns::best(int64_t now, uint32_t also) {
  uint32_t found = kNobody;
  for (uint32_t i = 0, seen = 0; i < kSeats && seen < table_.taken; ++i) {
    Seat& seat = at(i);
    if (seat.state != Seat::State::kFree) ++seen;
    if (seat.state != Seat::State::kWaiting && i != also) continue;
    refresh(seat, now);
    if (rankOf(seat) == Rank::kNone) continue;
    if (found == kNobody || isBefore(seat, at(found))) found = i;
  }
  return found;
}

void Turns::giveUp(Seat& seat) {
  seat.state = Seat::State::kIdle;
  publish(seat.mustYield, 0);
  publish(table_.holder, kNobody);
}

void Turns::settle(int64_t now) {
  if (table_.holder == kNobody) return;
  Seat& holder = at(table_.holder);
  if (now >= holder.until) giveUp(holder);
}

bool Turns::hasTurn(uint32_t seat) const {
  return table_.holder == seat && table_.seats[seat].state == Seat::State::kTurn;
}

Turns::Answer Turns::begin(uint32_t index, int64_t now) {
  Seat& seat = at(index);
  seat.rank = rankOf(seat);
  seat.state = Seat::State::kTurn;
  publish(seat.mustYield, 0);
  publish(table_.holder, index);
  auto& served = table_.served[static_cast<size_t>(seat.rank)];
  served = std::max(served, seat.served[static_cast<size_t>(seat.rank)]);
  const int64_t turn = turnOf(seat.share);
  seat.until = now + turn + kTurnSlackNs;
  return {true, seat.share.isCapped() ? std::min(turn, std::max<int64_t>(seat.credit, 1)) : turn, 0};
}

void Turns::call(uint32_t index, int64_t now) {
  Seat& seat = at(index);
  seat.state = Seat::State::kCalled;
  seat.until = now + kCallNs;
  publish(table_.holder, index);
}

void Turns::callNext(int64_t now) {
  if (const uint32_t next = best(now); next != kNobody) call(next, now);
}

void Turns::press(const Seat& waiting, int64_t now) {
  Seat& holder = at(table_.holder);
  const Rank rank = rankOf(waiting);
  if (holder.state != Seat::State::kTurn || rank > holder.rank) return;
  if (rank < holder.rank) {
    publish(holder.mustYield, 1);
    holder.until = std::min(holder.until, now + kYieldNs);
    return;
  }
  const auto index = static_cast<size_t>(rank);
  const int64_t owed = (holder.served[index] - waiting.served[index]) * waiting.share.percent / 100;
  if (owed > kWakeNs) publish(holder.mustYield, 1);
}

int64_t Turns::againAfter(const Seat& seat, int64_t now) const {
  int64_t wait = kLookNs;
  if (rankOf(seat) == Rank::kNone)
    wait = forShare(least(seat.share) - seat.credit, seat.share);
  else if (table_.holder != kNobody)
    wait = std::min(kLookNs, table_.seats[table_.holder].until - now);
  return std::clamp(wait, kShortestNapNs, kLongestNapNs);
}

Turns::Answer Turns::ask(uint32_t index, int64_t now) {
  settle(now);
  Seat& seat = at(index);
  refresh(seat, now);
  if (table_.holder == index) {
    if (seat.state == Seat::State::kCalled || best(now, index) == index) return begin(index, now);
    return {false, 0, kLookNs};
  }
  if (seat.state == Seat::State::kIdle) {
    seat.state = Seat::State::kWaiting;
    // Who comes back has no claim on the time in which it wanted nothing.
    for (size_t rank = 0; rank < kRanks; ++rank)
      seat.served[rank] = std::max(seat.served[rank], table_.served[rank]);
  }
  if (table_.holder == kNobody) {
    const uint32_t next = best(now);
    if (next == index) return begin(index, now);
    if (next != kNobody) call(next, now);
  } else {
    press(seat, now);
  }
  return {false, 0, againAfter(seat, now)};
}

void Turns::finishing(uint32_t index, int64_t endsAt, int64_t now) {
  Seat& seat = at(index);
  if (!hasTurn(index)) return;
  seat.until = std::min(seat.until, std::max(now, endsAt - kOverlapNs));
}

void Turns::pass(uint32_t index, int64_t now) {
  Seat& seat = at(index);
  if (table_.holder == index) {
    giveUp(seat);
    callNext(now);
  } else if (seat.state == Seat::State::kWaiting) {
    seat.state = Seat::State::kIdle;
  }
}

int64_t Turns::sharedTime(int64_t now) {
  const int64_t passed = std::max<int64_t>(now - table_.sharedAt, 0);
  table_.shared += passed / std::max<int64_t>(table_.inFlight, 1);
  table_.sharedAt = std::max(table_.sharedAt, now);
  return table_.shared;
}

void Turns::takeOff(uint32_t index, int64_t now) {
  if (at(index).isInFlight) return;
  sharedTime(now);
  at(index).isInFlight = 1;
  ++table_.inFlight;
}

void Turns::land(uint32_t index, int64_t now) {
  if (!at(index).isInFlight) return;
  sharedTime(now);
  at(index).isInFlight = 0;
  --table_.inFlight;
}

void Turns::charge(uint32_t index, int64_t usedNs, int64_t now) {
  Seat& seat = at(index);
  refresh(seat, now);
  seat.usedNs += usedNs;
  seat.credit = std::max(seat.credit - usedNs, -debtLimit(seat.share));
  const size_t rank = seat.rank == Rank::kNone ? 0 : static_cast<size_t>(seat.rank);
  seat.served[rank] += forShare(usedNs, seat.share);
}

}  // namespace millpond::worker::gate
