// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/time_slicer.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace millpond::worker::gate {
namespace {

constexpr int64_t kLongestNapNs = 5'000'000;
constexpr int64_t kShortestNapNs = 10'000;
/// Interval at which a session that waits for the end of another one's time slice checks again.
constexpr int64_t kLookNs = 100'000;

/// The session that has the time slice reads these two words without the table's lock.
void publish(uint32_t& word, uint32_t value) { std::atomic_ref(word).store(value, std::memory_order_relaxed); }

/// Reads a word exactly once, so that the checked value is the one used although other workers write there.
template <typename T>
T once(const T& word) {
  return std::atomic_ref(const_cast<T&>(word)).load(std::memory_order_relaxed);
}

int64_t forShare(int64_t ns, const Share& share) { return ns * 100 / share.percent; }

}  // namespace

int64_t TimeSlicer::turnOf(const Share& share) {
  return std::clamp<int64_t>(int64_t{share.percent} * 200'000, kShortestTurnNs, kLongestTurnNs);
}

int64_t TimeSlicer::debtLimit(const Share& share) const {
  switch (share.serviceClass) {
    case ServiceClass::kGuaranteed: return kLongestWaitNs * share.percent / 100;
    case ServiceClass::kBurstable: return share.owes ? kOwedDebtNs : kBurstDebtNs;
    case ServiceClass::kBestEffort: break;
  }
  return 0;
}

Account& TimeSlicer::accountOf(const Slot& slot) { return table_.accounts[once(slot.account) % kAccounts]; }
const Account& TimeSlicer::accountOf(const Slot& slot) const { return table_.accounts[once(slot.account) % kAccounts]; }

Share TimeSlicer::shareOf(const Account& account) {
  const uint32_t percent = once(account.share.percent);
  const ServiceClass named = once(account.share.serviceClass);
  return {named > ServiceClass::kBestEffort ? ServiceClass::kBestEffort : named, std::clamp<uint32_t>(percent, 1, 100),
          once(account.share.priority), once(account.share.owes)};
}

size_t TimeSlicer::rankIndex(const Slot& slot) {
  const Rank rank = once(slot.rank);
  return rank >= Rank::kNone ? 0 : static_cast<size_t>(rank);
}

void TimeSlicer::shareDebts(uint32_t opened, int64_t now) {
  const Account& account = table_.accounts[opened];
  const uint32_t tenant = tenantOf(account.claim);
  if (tenant == 0 || shareOf(account).serviceClass != ServiceClass::kGuaranteed) return;
  double debt = 0;
  double percent = 0;
  const auto owes = [&](uint32_t i) {
    const Account& each = table_.accounts[i];
    return each.claim != 0 && tenantOf(each.claim) == tenant &&
           shareOf(each).serviceClass == ServiceClass::kGuaranteed && (i == opened || each.credit < 0);
  };
  const auto pays = [&](uint32_t i) { return owes(i) && (i == opened || table_.accounts[i].slots != 0); };
  for (uint32_t i = 0; i < kAccounts; ++i) {
    if (table_.accounts[i].claim == 0 || tenantOf(table_.accounts[i].claim) != tenant) continue;
    refresh(table_.accounts[i], now);
    if (!owes(i)) continue;
    debt -= static_cast<double>(std::min<int64_t>(table_.accounts[i].credit, 0));
    if (pays(i)) percent += shareOf(table_.accounts[i]).percent;
  }
  if (debt <= 0) return;
  for (uint32_t i = 0; i < kAccounts; ++i) {
    if (!owes(i)) continue;
    Account& each = table_.accounts[i];
    const double part = pays(i) ? debt * shareOf(each).percent / std::max(percent, 1.0) : 0;
    each.credit = -std::min(static_cast<int64_t>(std::min(part, 1e18)), debtLimit(shareOf(each)));
  }
}

std::optional<uint32_t> TimeSlicer::openAccount(uint64_t claim, Share share, int64_t now) {
  uint32_t free = kNoSlot;
  for (uint32_t i = 0; i < kAccounts; ++i) {
    Account& account = table_.accounts[i];
    if (account.claim == claim) {
      if (account.slots == 0) {
        refresh(account, now);
        account.share = share;
        account.credit = std::max(account.credit, -debtLimit(share));
        shareDebts(i, now);
      }
      return i;
    }
    if (account.claim != 0 && account.slots != 0) continue;
    if (account.claim != 0) refresh(account, now);
    const auto worth = [](const Account& each) { return each.claim == 0 ? INT64_MAX : each.credit; };
    if (free == kNoSlot || worth(account) > worth(table_.accounts[free])) free = i;
  }
  if (free == kNoSlot) return std::nullopt;
  Account& account = table_.accounts[free];
  account = Account{};
  account.claim = claim;
  account.share = share;
  account.creditAt = now;
  account.credit = least(share);
  account.served = table_.served;
  shareDebts(free, now);
  return free;
}

void TimeSlicer::countSlots() {
  for (Account& account : table_.accounts) {
    account.slots = 0;
    account.flown = 0;
  }
  uint32_t taken = 0;
  for (const Slot& slot : table_.slots) {
    if (slot.state == Slot::State::kFree) continue;
    ++taken;
    ++accountOf(slot).slots;
    accountOf(slot).flown += slot.flown;
  }
  uint32_t claims = 0;
  for (const Account& account : table_.accounts) claims += account.slots != 0;
  publish(table_.taken, taken);
  publish(table_.claims, claims);
}

std::optional<uint32_t> TimeSlicer::join(uint64_t claim, Share share, int64_t now) {
  const auto free = std::find_if(table_.slots.begin(), table_.slots.end(),
                                 [](const Slot& slot) { return slot.state == Slot::State::kFree; });
  if (free == table_.slots.end()) return std::nullopt;
  const auto slot = static_cast<uint32_t>(free - table_.slots.begin());
  return joinAt(slot, claim, share, now) ? std::optional(slot) : std::nullopt;
}

bool TimeSlicer::joinAt(uint32_t index, uint64_t claim, Share share, int64_t now) {
  countSlots();
  const auto account = openAccount(claim, share, now);
  if (!account) return false;
  Slot& slot = at(index);
  slot = Slot{};
  slot.account = *account;
  slot.state = Slot::State::kIdle;
  slot.served = table_.accounts[*account].inner;
  countSlots();
  return true;
}

void TimeSlicer::leave(uint32_t slot, int64_t now) {
  if (at(slot).state == Slot::State::kFree) return;
  endFlight(slot, now);
  pass(slot, now);
  at(slot).state = Slot::State::kFree;
  countSlots();
}

void TimeSlicer::setShare(uint32_t slot, Share share, int64_t now) {
  Account& account = accountOf(at(slot));
  refresh(account, now);
  account.share = share;
  account.credit = std::max(account.credit, -debtLimit(share));
}

int64_t TimeSlicer::credit(uint32_t slot, int64_t now) {
  refresh(accountOf(at(slot)), now);
  return accountOf(at(slot)).credit;
}

void TimeSlicer::refresh(Account& account, int64_t now) {
  const Share share = shareOf(account);
  const int64_t passed = std::clamp<int64_t>(now - account.creditAt, 0, kLongestWaitNs);
  const int64_t earned = passed * share.percent / 100;
  // Carries fractions over, so that frequent calls lose nothing.
  account.creditAt = passed == kLongestWaitNs ? now : account.creditAt + forShare(earned, share);
  account.credit += earned;
  if (account.credit < kMostCreditNs) return;
  account.credit = kMostCreditNs;
  account.creditAt = std::max(now, account.creditAt);
}

Rank TimeSlicer::rankOf(const Slot& slot) const {
  const Account& account = accountOf(slot);
  const Share share = shareOf(account);
  const bool isFull = account.flown > kMostBurstNs;
  if (share.serviceClass == ServiceClass::kBestEffort) return isFull ? Rank::kNone : Rank::kBestEffort;
  // The session that has the turn continues as long as any credit is left.
  const int64_t needed = slot.state == Slot::State::kTurn ? 1 : least(share);
  if (account.credit >= needed) return Rank::kWithinShare;
  if (share.owes && isEntitledThere_) return Rank::kNone;
  if (share.serviceClass == ServiceClass::kBurstable) return isFull ? Rank::kNone : Rank::kBurst;
  return share.isCapped() ? Rank::kNone : Rank::kWithinShare;
}

bool TimeSlicer::isBefore(const Slot& a, const Slot& b) const {
  const Rank of = rankOf(a);
  if (of != rankOf(b)) return of < rankOf(b);
  if (a.account == b.account) return a.served < b.served;
  const Account &ours = accountOf(a), &theirs = accountOf(b);
  const Share share = shareOf(ours), other = shareOf(theirs);
  if (share.serviceClass == other.serviceClass && share.priority != other.priority)
    return share.priority > other.priority;
  const auto index = static_cast<size_t>(of);
  return index < kRanks && ours.served[index] < theirs.served[index];
}

void TimeSlicer::seeEntitled(int64_t now) {
  isEntitledThere_ = false;
  for (uint32_t i = 0, seen = 0; i < kSlots && seen < table_.taken && !isEntitledThere_; ++i) {
    const Slot& slot = at(i);
    if (slot.state == Slot::State::kFree) continue;
    ++seen;
    const int64_t until = once(slot.until);
    const bool isBack = slot.isInFlight && now >= until && now - until < kBackNs;
    if (slot.state == Slot::State::kIdle && !isBack) continue;
    refresh(accountOf(slot), now);
    isEntitledThere_ = accountOf(slot).credit > 0;
  }
}

uint32_t TimeSlicer::best(int64_t now, uint32_t also) {
  seeEntitled(now);
  uint32_t found = kNoSlot;
  for (uint32_t i = 0, seen = 0; i < kSlots && seen < table_.taken; ++i) {
    const Slot& slot = at(i);
    if (slot.state != Slot::State::kFree) ++seen;
    if (slot.state != Slot::State::kWaiting && i != also) continue;
    refresh(accountOf(slot), now);
    if (rankOf(slot) == Rank::kNone) continue;
    if (found == kNoSlot || isBefore(slot, at(found))) found = i;
  }
  return found;
}

bool TimeSlicer::doOthersWant(const Slot& slot, int64_t now) {
  seeEntitled(now);
  for (uint32_t i = 0, seen = 0; i < kSlots && seen < table_.taken; ++i) {
    const Slot& each = at(i);
    if (each.state == Slot::State::kFree) continue;
    ++seen;
    if (each.state == Slot::State::kIdle || &accountOf(each) == &accountOf(slot)) continue;
    refresh(accountOf(each), now);
    if (each.state != Slot::State::kWaiting || rankOf(each) != Rank::kNone) return true;
  }
  return false;
}

void TimeSlicer::endHold(uint32_t index, int64_t now) {
  Slot& slot = at(index);
  const int64_t from = slot.state == Slot::State::kCalled ? slot.until - kCallNs : slot.from;
  int64_t held = std::clamp<int64_t>(std::min(now, slot.until) - from, 0, kFarthestEndNs);
  // The device is idle between the call and the start, which is much of the time if turns are short.
  if (held < kShortestTurnNs / 2) held += std::clamp<int64_t>(slot.calledNs, 0, kCallNs);
  const int64_t idle = held - std::max<int64_t>(slot.counted, 0);
  if (idle <= 0 || !doOthersWant(slot, now)) return;
  refund(slot, idle);
  charge(index, idle, now);
  slot.held += idle;
}

void TimeSlicer::giveUp(uint32_t index, int64_t now) {
  endHold(index, now);
  Slot& slot = at(index);
  slot.state = Slot::State::kIdle;
  publish(slot.mustYield, 0);
  publish(table_.holder, kNoSlot);
}

void TimeSlicer::settle(int64_t now) {
  const uint32_t index = once(table_.holder);
  if (index == kNoSlot) return;
  Slot& holder = at(index);
  const int64_t until = once(holder.until);
  if (now >= until || until > now + kFarthestEndNs) giveUp(index % kSlots, now);
}

bool TimeSlicer::hasTurn(uint32_t slot) const {
  return once(table_.holder) == slot && at(slot).state == Slot::State::kTurn;
}

TimeSlicer::Answer TimeSlicer::begin(uint32_t index, int64_t now) {
  Slot& slot = at(index);
  if (slot.state == Slot::State::kTurn) endHold(index, now);
  slot.calledNs = slot.state == Slot::State::kCalled ? now - (slot.until - kCallNs) : 0;
  slot.from = now;
  slot.counted = 0;
  slot.rank = rankOf(slot);
  slot.state = Slot::State::kTurn;
  publish(slot.mustYield, 0);
  publish(table_.holder, index);
  Account& account = accountOf(slot);
  const Share share = shareOf(account);
  const size_t rank = rankIndex(slot);
  table_.served[rank] = std::max(table_.served[rank], account.served[rank]);
  account.inner = std::max(account.inner, slot.served);
  const int64_t turn = turnOf(share);
  slot.until = now + turn + kTurnSlackNs;
  return {true, share.isCapped() ? std::min(turn, std::max<int64_t>(account.credit, 1)) : turn, 0};
}

void TimeSlicer::call(uint32_t index, int64_t now) {
  Slot& slot = at(index);
  slot.state = Slot::State::kCalled;
  slot.until = now + kCallNs;
  publish(table_.holder, index);
}

void TimeSlicer::callNext(int64_t now) {
  if (const uint32_t next = best(now); next != kNoSlot) call(next, now);
}

void TimeSlicer::preempt(const Slot& waiting, int64_t now) {
  Slot& holder = at(once(table_.holder));
  const Rank rank = rankOf(waiting);
  if (holder.state != Slot::State::kTurn || rank > holder.rank) return;
  const Account &ours = accountOf(waiting), &theirs = accountOf(holder);
  const Share share = shareOf(ours), other = shareOf(theirs);
  const int64_t ahead = share.serviceClass == other.serviceClass ? int64_t{share.priority} - other.priority : 0;
  if (rank < holder.rank || ahead > 0) {
    publish(holder.mustYield, 1);
    holder.until = std::min(holder.until, now + kYieldNs);
    return;
  }
  if (ahead < 0) return;
  const auto index = static_cast<size_t>(rank);
  const int64_t owed = waiting.account == holder.account
                           ? holder.served - waiting.served
                           : (theirs.served[index] - ours.served[index]) * share.percent / 100;
  if (owed > kWakeNs) publish(holder.mustYield, 1);
}

int64_t TimeSlicer::againAfter(const Slot& slot, int64_t now) const {
  int64_t wait = kLookNs;
  const Share share = shareOf(accountOf(slot));
  if (rankOf(slot) == Rank::kNone && accountOf(slot).flown <= kMostBurstNs)
    wait = forShare(least(share) - accountOf(slot).credit, share);
  else if (const uint32_t holder = once(table_.holder); holder != kNoSlot)
    wait = std::min(kLookNs, at(holder).until - now);
  return std::clamp(wait, kShortestNapNs, kLongestNapNs);
}

TimeSlicer::Answer TimeSlicer::ask(uint32_t index, int64_t now) {
  settle(now);
  seeEntitled(now);
  Slot& slot = at(index);
  Account& account = accountOf(slot);
  refresh(account, now);
  if (table_.holder == index) {
    if (slot.state == Slot::State::kCalled || best(now, index) == index) return begin(index, now);
    return {false, 0, kLookNs};
  }
  if (slot.state == Slot::State::kIdle) {
    // A returning session is not compensated for the time in which it wanted nothing.
    if (!isWanting(slot.account))
      for (size_t rank = 0; rank < kRanks; ++rank)
        account.served[rank] = std::max(account.served[rank], table_.served[rank]);
    slot.served = std::max(slot.served, account.inner);
    slot.state = Slot::State::kWaiting;
  }
  if (table_.holder == kNoSlot) {
    const uint32_t next = best(now);
    if (next == index) return begin(index, now);
    if (next != kNoSlot) call(next, now);
  } else {
    preempt(slot, now);
  }
  return {false, 0, againAfter(slot, now)};
}

void TimeSlicer::finishing(uint32_t index, int64_t endsAt, int64_t now) {
  Slot& slot = at(index);
  if (!hasTurn(index)) return;
  slot.until = std::min(slot.until, std::max(now, endsAt - kOverlapNs));
}

void TimeSlicer::pass(uint32_t index, int64_t now) {
  Slot& slot = at(index);
  if (table_.holder == index) {
    giveUp(index, now);
    callNext(now);
  } else if (slot.state == Slot::State::kWaiting) {
    slot.state = Slot::State::kIdle;
  }
}

int64_t TimeSlicer::sharedTime(int64_t now) {
  const int64_t passed = std::max<int64_t>(now - table_.sharedAt, 0);
  table_.shared += passed / std::max<int64_t>(once(table_.inFlight), 1);
  table_.sharedAt = std::max(table_.sharedAt, now);
  return table_.shared;
}

void TimeSlicer::beginFlight(uint32_t index, int64_t now) {
  if (at(index).isInFlight) return;
  sharedTime(now);
  at(index).isInFlight = 1;
  ++table_.inFlight;
}

void TimeSlicer::endFlight(uint32_t index, int64_t now) {
  if (!at(index).isInFlight) return;
  sharedTime(now);
  at(index).isInFlight = 0;
  --table_.inFlight;
}

int64_t TimeSlicer::deduct(Account& account, int64_t ns, int64_t now) {
  refresh(account, now);
  const Share share = shareOf(account);
  int64_t limit = debtLimit(share);
  if (share.owes) {
    seeEntitled(now);
    // Idle time may be used without limit.
    if (!isEntitledThere_) limit = std::min(limit, std::max(kBurstDebtNs, -account.credit));
  }
  const int64_t before = account.credit;
  account.credit = std::max(before - ns, -limit);
  return before - account.credit;
}

void TimeSlicer::charge(uint32_t index, int64_t usedNs, int64_t now) {
  Slot& slot = at(index);
  Account& account = accountOf(slot);
  deduct(account, usedNs, now);
  slot.usedNs += usedNs;
  slot.served += usedNs;
  account.served[rankIndex(slot)] += forShare(usedNs, shareOf(account));
  if (hasTurn(index)) slot.counted += std::clamp<int64_t>(usedNs, 0, std::max<int64_t>(now - slot.from, 0));
}

void TimeSlicer::reserve(uint32_t index, int64_t expectedNs, int64_t now) {
  Slot& slot = at(index);
  Account& account = accountOf(slot);
  const int64_t ns = std::clamp<int64_t>(expectedNs, 0, kMostReservedNs);
  slot.flown += ns;
  account.flown += ns;
  slot.reserved += deduct(account, ns, now);
}

void TimeSlicer::release(uint32_t index, int64_t expectedNs) {
  Slot& slot = at(index);
  const int64_t ns = std::clamp<int64_t>(expectedNs, 0, std::max<int64_t>(slot.flown, 0));
  slot.flown -= ns;
  accountOf(slot).flown -= ns;
  refund(slot, ns);
}

void TimeSlicer::refund(Slot& slot, int64_t ns) {
  const int64_t part = std::clamp<int64_t>(ns, 0, std::max<int64_t>(slot.reserved, 0));
  slot.reserved -= part;
  accountOf(slot).credit += part;
}

int64_t TimeSlicer::takeHeld(uint32_t index) {
  return std::clamp<int64_t>(std::exchange(at(index).held, 0), 0, kLongestWaitNs);
}

bool TimeSlicer::isWanting(uint32_t account) const {
  for (uint32_t i = 0, seen = 0; i < kSlots && seen < table_.taken; ++i) {
    const Slot& slot = table_.slots[i];
    if (slot.state != Slot::State::kFree) ++seen;
    if (slot.state > Slot::State::kIdle && slot.account == account) return true;
  }
  return false;
}

}  // namespace millpond::worker::gate
