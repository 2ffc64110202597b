// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/turns.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace millpond::worker::gate {
namespace {

constexpr int64_t kLongestNapNs = 5'000'000;
constexpr int64_t kShortestNapNs = 10'000;
/// Interval at which a session that waits for the end of another one's time slice asks again.
constexpr int64_t kLookNs = 100'000;

/// The session that has the time slice reads these two words without the lock of the table.
void publish(uint32_t& word, uint32_t value) { std::atomic_ref(word).store(value, std::memory_order_relaxed); }

/// Reads a word exactly once, so that the checked value is the one used although other workers write there.
template <typename T>
T once(const T& word) {
  return std::atomic_ref(const_cast<T&>(word)).load(std::memory_order_relaxed);
}

int64_t forShare(int64_t ns, const Share& share) { return ns * 100 / share.percent; }

}  // namespace

int64_t Turns::turnOf(const Share& share) {
  return std::clamp<int64_t>(int64_t{share.percent} * 200'000, kShortestTurnNs, kLongestTurnNs);
}

int64_t Turns::debtLimit(const Share& share) const {
  switch (share.serviceClass) {
    case ServiceClass::kGuaranteed: return kLongestWaitNs * share.percent / 100;
    case ServiceClass::kBurstable: return share.owes ? kOwedDebtNs : kBurstDebtNs;
    case ServiceClass::kBestEffort: break;
  }
  return 0;
}

Account& Turns::accountOf(const Seat& seat) { return table_.accounts[once(seat.account) % kAccounts]; }
const Account& Turns::accountOf(const Seat& seat) const { return table_.accounts[once(seat.account) % kAccounts]; }

Share Turns::shareOf(const Account& account) {
  const uint32_t percent = once(account.share.percent);
  const ServiceClass named = once(account.share.serviceClass);
  return {named > ServiceClass::kBestEffort ? ServiceClass::kBestEffort : named, std::clamp<uint32_t>(percent, 1, 100),
          once(account.share.priority), once(account.share.owes)};
}

size_t Turns::rankIndex(const Seat& seat) {
  const Rank rank = once(seat.rank);
  return rank >= Rank::kNone ? 0 : static_cast<size_t>(rank);
}

void Turns::shareDebts(uint32_t opened, int64_t now) {
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
  const auto pays = [&](uint32_t i) { return owes(i) && (i == opened || table_.accounts[i].seats != 0); };
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

std::optional<uint32_t> Turns::openAccount(uint64_t claim, Share share, int64_t now) {
  uint32_t free = kNobody;
  for (uint32_t i = 0; i < kAccounts; ++i) {
    Account& account = table_.accounts[i];
    if (account.claim == claim) {
      if (account.seats == 0) {
        refresh(account, now);
        account.share = share;
        account.credit = std::max(account.credit, -debtLimit(share));
        shareDebts(i, now);
      }
      return i;
    }
    if (account.claim != 0 && account.seats != 0) continue;
    if (account.claim != 0) refresh(account, now);
    const auto worth = [](const Account& each) { return each.claim == 0 ? INT64_MAX : each.credit; };
    if (free == kNobody || worth(account) > worth(table_.accounts[free])) free = i;
  }
  if (free == kNobody) return std::nullopt;
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

void Turns::countSeats() {
  for (Account& account : table_.accounts) {
    account.seats = 0;
    account.flown = 0;
  }
  uint32_t taken = 0;
  for (const Seat& seat : table_.seats) {
    if (seat.state == Seat::State::kFree) continue;
    ++taken;
    ++accountOf(seat).seats;
    accountOf(seat).flown += seat.flown;
  }
  uint32_t claims = 0;
  for (const Account& account : table_.accounts) claims += account.seats != 0;
  publish(table_.taken, taken);
  publish(table_.claims, claims);
}

std::optional<uint32_t> Turns::sit(uint64_t claim, Share share, int64_t now) {
  const auto free = std::find_if(table_.seats.begin(), table_.seats.end(),
                                 [](const Seat& seat) { return seat.state == Seat::State::kFree; });
  if (free == table_.seats.end()) return std::nullopt;
  const auto seat = static_cast<uint32_t>(free - table_.seats.begin());
  return sitAt(seat, claim, share, now) ? std::optional(seat) : std::nullopt;
}

bool Turns::sitAt(uint32_t index, uint64_t claim, Share share, int64_t now) {
  countSeats();
  const auto account = openAccount(claim, share, now);
  if (!account) return false;
  Seat& seat = at(index);
  seat = Seat{};
  seat.account = *account;
  seat.state = Seat::State::kIdle;
  seat.served = table_.accounts[*account].inner;
  countSeats();
  return true;
}

void Turns::leave(uint32_t seat, int64_t now) {
  if (at(seat).state == Seat::State::kFree) return;
  land(seat, now);
  pass(seat, now);
  at(seat).state = Seat::State::kFree;
  countSeats();
}

void Turns::setShare(uint32_t seat, Share share, int64_t now) {
  Account& account = accountOf(at(seat));
  refresh(account, now);
  account.share = share;
  account.credit = std::max(account.credit, -debtLimit(share));
}

int64_t Turns::credit(uint32_t seat, int64_t now) {
  refresh(accountOf(at(seat)), now);
  return accountOf(at(seat)).credit;
}

void Turns::refresh(Account& account, int64_t now) {
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

Rank Turns::rankOf(const Seat& seat) const {
  const Account& account = accountOf(seat);
  const Share share = shareOf(account);
  const bool isFull = account.flown > kMostBurstNs;
  if (share.serviceClass == ServiceClass::kBestEffort) return isFull ? Rank::kNone : Rank::kBestEffort;
  // The session that has the turn continues as long as any credit is left.
  const int64_t needed = seat.state == Seat::State::kTurn ? 1 : least(share);
  if (account.credit >= needed) return Rank::kWithinShare;
  if (share.owes && isEntitledThere_) return Rank::kNone;
  if (share.serviceClass == ServiceClass::kBurstable) return isFull ? Rank::kNone : Rank::kBurst;
  return share.isCapped() ? Rank::kNone : Rank::kWithinShare;
}

bool Turns::isBefore(const Seat& a, const Seat& b) const {
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

void Turns::seeEntitled(int64_t now) {
  isEntitledThere_ = false;
  for (uint32_t i = 0, seen = 0; i < kSeats && seen < table_.taken && !isEntitledThere_; ++i) {
    const Seat& seat = at(i);
    if (seat.state == Seat::State::kFree) continue;
    ++seen;
    const int64_t until = once(seat.until);
    const bool isBack = seat.isInFlight && now >= until && now - until < kBackNs;
    if (seat.state == Seat::State::kIdle && !isBack) continue;
    refresh(accountOf(seat), now);
    isEntitledThere_ = accountOf(seat).credit > 0;
  }
}

uint32_t Turns::best(int64_t now, uint32_t also) {
  seeEntitled(now);
  uint32_t found = kNobody;
  for (uint32_t i = 0, seen = 0; i < kSeats && seen < table_.taken; ++i) {
    const Seat& seat = at(i);
    if (seat.state != Seat::State::kFree) ++seen;
    if (seat.state != Seat::State::kWaiting && i != also) continue;
    refresh(accountOf(seat), now);
    if (rankOf(seat) == Rank::kNone) continue;
    if (found == kNobody || isBefore(seat, at(found))) found = i;
  }
  return found;
}

bool Turns::doOthersWant(const Seat& seat, int64_t now) {
  seeEntitled(now);
  for (uint32_t i = 0, seen = 0; i < kSeats && seen < table_.taken; ++i) {
    const Seat& each = at(i);
    if (each.state == Seat::State::kFree) continue;
    ++seen;
    if (each.state == Seat::State::kIdle || &accountOf(each) == &accountOf(seat)) continue;
    refresh(accountOf(each), now);
    if (each.state != Seat::State::kWaiting || rankOf(each) != Rank::kNone) return true;
  }
  return false;
}

void Turns::endHold(uint32_t index, int64_t now) {
  Seat& seat = at(index);
  const int64_t from = seat.state == Seat::State::kCalled ? seat.until - kCallNs : seat.from;
  int64_t held = std::clamp<int64_t>(std::min(now, seat.until) - from, 0, kFarthestEndNs);
  // The device is unused between the call and the beginning: much of the time where turns are short.
  if (held < kShortestTurnNs / 2) held += std::clamp<int64_t>(seat.calledNs, 0, kCallNs);
  const int64_t idle = held - std::max<int64_t>(seat.counted, 0);
  if (idle <= 0 || !doOthersWant(seat, now)) return;
  refund(seat, idle);
  charge(index, idle, now);
  seat.held += idle;
}

void Turns::giveUp(uint32_t index, int64_t now) {
  endHold(index, now);
  Seat& seat = at(index);
  seat.state = Seat::State::kIdle;
  publish(seat.mustYield, 0);
  publish(table_.holder, kNobody);
}

void Turns::settle(int64_t now) {
  const uint32_t index = once(table_.holder);
  if (index == kNobody) return;
  Seat& holder = at(index);
  const int64_t until = once(holder.until);
  if (now >= until || until > now + kFarthestEndNs) giveUp(index % kSeats, now);
}

bool Turns::hasTurn(uint32_t seat) const { return once(table_.holder) == seat && at(seat).state == Seat::State::kTurn; }

Turns::Answer Turns::begin(uint32_t index, int64_t now) {
  Seat& seat = at(index);
  if (seat.state == Seat::State::kTurn) endHold(index, now);
  seat.calledNs = seat.state == Seat::State::kCalled ? now - (seat.until - kCallNs) : 0;
  seat.from = now;
  seat.counted = 0;
  seat.rank = rankOf(seat);
  seat.state = Seat::State::kTurn;
  publish(seat.mustYield, 0);
  publish(table_.holder, index);
  Account& account = accountOf(seat);
  const Share share = shareOf(account);
  const size_t rank = rankIndex(seat);
  table_.served[rank] = std::max(table_.served[rank], account.served[rank]);
  account.inner = std::max(account.inner, seat.served);
  const int64_t turn = turnOf(share);
  seat.until = now + turn + kTurnSlackNs;
  return {true, share.isCapped() ? std::min(turn, std::max<int64_t>(account.credit, 1)) : turn, 0};
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
  Seat& holder = at(once(table_.holder));
  const Rank rank = rankOf(waiting);
  if (holder.state != Seat::State::kTurn || rank > holder.rank) return;
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

int64_t Turns::againAfter(const Seat& seat, int64_t now) const {
  int64_t wait = kLookNs;
  const Share share = shareOf(accountOf(seat));
  if (rankOf(seat) == Rank::kNone && accountOf(seat).flown <= kMostBurstNs)
    wait = forShare(least(share) - accountOf(seat).credit, share);
  else if (const uint32_t holder = once(table_.holder); holder != kNobody)
    wait = std::min(kLookNs, at(holder).until - now);
  return std::clamp(wait, kShortestNapNs, kLongestNapNs);
}

Turns::Answer Turns::ask(uint32_t index, int64_t now) {
  settle(now);
  seeEntitled(now);
  Seat& seat = at(index);
  Account& account = accountOf(seat);
  refresh(account, now);
  if (table_.holder == index) {
    if (seat.state == Seat::State::kCalled || best(now, index) == index) return begin(index, now);
    return {false, 0, kLookNs};
  }
  if (seat.state == Seat::State::kIdle) {
    // A returning session is not compensated for the time in which it wanted nothing.
    if (!isWanting(seat.account))
      for (size_t rank = 0; rank < kRanks; ++rank)
        account.served[rank] = std::max(account.served[rank], table_.served[rank]);
    seat.served = std::max(seat.served, account.inner);
    seat.state = Seat::State::kWaiting;
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
    giveUp(index, now);
    callNext(now);
  } else if (seat.state == Seat::State::kWaiting) {
    seat.state = Seat::State::kIdle;
  }
}

int64_t Turns::sharedTime(int64_t now) {
  const int64_t passed = std::max<int64_t>(now - table_.sharedAt, 0);
  table_.shared += passed / std::max<int64_t>(once(table_.inFlight), 1);
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

int64_t Turns::deduct(Account& account, int64_t ns, int64_t now) {
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

void Turns::charge(uint32_t index, int64_t usedNs, int64_t now) {
  Seat& seat = at(index);
  Account& account = accountOf(seat);
  deduct(account, usedNs, now);
  seat.usedNs += usedNs;
  seat.served += usedNs;
  account.served[rankIndex(seat)] += forShare(usedNs, shareOf(account));
  if (hasTurn(index)) seat.counted += std::clamp<int64_t>(usedNs, 0, std::max<int64_t>(now - seat.from, 0));
}

void Turns::reserve(uint32_t index, int64_t expectedNs, int64_t now) {
  Seat& seat = at(index);
  Account& account = accountOf(seat);
  const int64_t ns = std::clamp<int64_t>(expectedNs, 0, kMostReservedNs);
  seat.flown += ns;
  account.flown += ns;
  seat.reserved += deduct(account, ns, now);
}

void Turns::release(uint32_t index, int64_t expectedNs) {
  Seat& seat = at(index);
  const int64_t ns = std::clamp<int64_t>(expectedNs, 0, std::max<int64_t>(seat.flown, 0));
  seat.flown -= ns;
  accountOf(seat).flown -= ns;
  refund(seat, ns);
}

void Turns::refund(Seat& seat, int64_t ns) {
  const int64_t part = std::clamp<int64_t>(ns, 0, std::max<int64_t>(seat.reserved, 0));
  seat.reserved -= part;
  accountOf(seat).credit += part;
}

int64_t Turns::takeHeld(uint32_t index) {
  return std::clamp<int64_t>(std::exchange(at(index).held, 0), 0, kLongestWaitNs);
}

bool Turns::isWanting(uint32_t account) const {
  for (uint32_t i = 0, seen = 0; i < kSeats && seen < table_.taken; ++i) {
    const Seat& seat = table_.seats[i];
    if (seat.state != Seat::State::kFree) ++seen;
    if (seat.state > Seat::State::kIdle && seat.account == account) return true;
  }
  return false;
}

}  // namespace millpond::worker::gate
