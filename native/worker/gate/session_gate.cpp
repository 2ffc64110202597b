// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/session_gate.h"

#include <algorithm>

namespace millpond::worker::gate {
namespace {

/// Limits how often a gate that others had locked is tried again.
constexpr int64_t kAskNs = 10'000;

}  // namespace

Result<std::unique_ptr<SessionGate>> SessionGate::open(std::unique_ptr<GateFile> file, uint64_t claim, Share share,
                                                       int64_t now) {
  const auto slot = file->join(claim, share, now);
  if (!slot)
    return Error{"the gate of the device has no slot left: " + std::to_string(file->taken()) + " sessions of " +
                 std::to_string(file->claims()) + " claims use it; there is room for " + std::to_string(kSlots) +
                 " of " + std::to_string(kAccounts)};
  return std::unique_ptr<SessionGate>(new SessionGate(std::move(file), *slot, share));
}

SessionGate::~SessionGate() {
  {
    GateFile::Locked locked(*file_);
    for (const Flight& flight : flights_) locked.slicer.release(slot_, flight.reservedNs);
  }
  file_->leave(slot_, lastNow_);
}

void SessionGate::setShare(Share share) { wanted_.store(pack(share), std::memory_order_relaxed); }

int64_t SessionGate::flightLimit() const {
  return share_.serviceClass == ServiceClass::kBestEffort ? kBestEffortFlightNs : kFlightNs;
}

void SessionGate::look(int64_t now, bool hasWork) {
  lastNow_ = now;
  if (file_->isAlone() != isAlone_) startAlone(now);
  if (const uint64_t wanted = wanted_.load(std::memory_order_relaxed); wanted != pack(share_)) {
    share_ = unpack(wanted);
    file_->setShare(slot_, share_, now);
    dropTurn();
  }
  isOn_ = share_.isCapped() || file_->claims() > 1;
  if (!isOn_ && !hasTurn_ && !isWaiting_) return;
  markOverdue(now);
  if (hasWork || hasOpen() || flightNs_ > 0) return;
  const bool keeps = hasTurn_ && !isFinishing_ && comesBack_ && file_->mayGoOn(slot_) &&
                     share_.serviceClass != ServiceClass::kBestEffort && now - emptySince_ < kLingerNs;
  if (keeps || (!hasTurn_ && !isWaiting_)) return;
  GateFile::Locked(*file_).slicer.pass(slot_, now);
  dropTurn();
  isWaiting_ = false;
}

/// Measures work in flight by the clock of the table that is used from this call on.
void SessionGate::startAlone(int64_t now) {
  isAlone_ = true;
  dropTurn();
  isWaiting_ = false;
  GateFile::Locked locked(*file_);
  sharedUsed_ = openFrom_ = locked.slicer.sharedTime(now);
  for (Flight& flight : flights_) {
    flight.sharedFrom = sharedUsed_;
    flight.reservedNs = 0;
  }
  prepaid_.clear();
}

void SessionGate::takeHeld(TimeSlicer& slicer) {
  if (const int64_t held = slicer.takeHeld(slot_); held > 0) prepaid_.push_back({lastBatch_ + (openNs_ > 0), held});
}

void SessionGate::settle(TimeSlicer& slicer, const Flight& flight, int64_t usedNs, int64_t now) {
  takeHeld(slicer);
  slicer.release(slot_, flight.reservedNs);
  int64_t due = usedNs;
  for (Prepaid& each : prepaid_) {
    if (each.last < flight.number) continue;
    const int64_t part = std::min(each.ns, due);
    each.ns -= part;
    due -= part;
  }
  slicer.charge(slot_, due, now);
  usedNs_ += usedNs;
}

void SessionGate::dropTurn() {
  hasTurn_ = false;
  isFinishing_ = false;
  askAgainAt_ = 0;
}

bool SessionGate::ask(int64_t now) {
  if (now < askAgainAt_) return false;
  if (now - sweptAt_ > 1'000'000'000) {
    sweptAt_ = now;
    file_->sweep(now);
  }
  GateFile::Locked locked(*file_);
  const TimeSlicer::Answer answer = locked.slicer.ask(slot_, now);
  takeHeld(locked.slicer);
  if (!answer.isMine) {
    askAgainAt_ = now + std::max(answer.againNs, kAskNs);
    isWaiting_ = !hasTurn_;
    return false;
  }
  hasTurn_ = true;
  isWaiting_ = false;
  isFinishing_ = false;
  budgetNs_ = answer.budgetNs;
  turnNs_ = 0;
  return true;
}

void SessionGate::finish(int64_t now) {
  int64_t endsAt = now;
  for (const Flight& flight : flights_)
    if (!flight.isOverdue) endsAt += flight.expectedNs;
  isFinishing_ = true;
  GateFile::Locked locked(*file_);
  if (flightNs_ > 0) return locked.slicer.finishing(slot_, endsAt, now);
  locked.slicer.pass(slot_, now);
  dropTurn();
}

bool SessionGate::admit(std::optional<int64_t> expectedNs, int64_t now) {
  if (!isOn_) return true;
  if (hasTurn_ && !file_->mayGoOn(slot_)) {
    // The time slice was revoked because work in flight has not finished in time, or another session is due.
    const bool isLost = !GateFile::Locked(*file_).slicer.hasTurn(slot_);
    if (isLost)
      dropTurn();
    else if (!isFinishing_ || flightNs_ == 0)
      finish(now);
    if (hasTurn_) return false;
  }
  if (!hasTurn_) {
    if (!isWaiting_) comesBack_ = emptySince_ != 0 && now - emptySince_ < kLingerNs;
    return ask(now);
  }
  if (flightNs_ > 0 && flightNs_ + expected(expectedNs) > flightLimit()) return false;
  if (turnNs_ == 0 || turnNs_ + expected(expectedNs) <= budgetNs_) return true;
  if (ask(now)) return true;
  if (hasTurn_ && (!isFinishing_ || flightNs_ == 0)) finish(now);
  return false;
}

bool SessionGate::admitBrief(std::optional<int64_t> expectedNs, int64_t now) {
  if (!isOn_) return true;
  if (!expectedNs) return false;
  GateFile::Locked locked(*file_);
  if (locked.slicer.credit(slot_, now) < *expectedNs) return false;
  locked.slicer.charge(slot_, *expectedNs, now);
  usedNs_ += *expectedNs;
  return true;
}

void SessionGate::chargeNow(int64_t expectedNs, int64_t now) {
  if (!isOn_) return;
  GateFile::Locked locked(*file_);
  locked.slicer.charge(slot_, expectedNs, now);
  usedNs_ += expectedNs;
}

int64_t SessionGate::napNs(int64_t now) const {
  if (!hasTurn_) return std::max<int64_t>(askAgainAt_ - now, 0);
  return flightNs_ > 0 ? INT64_MAX : 0;
}

void SessionGate::issued(std::optional<int64_t> expectedNs, int64_t now) {
  const int64_t ns = expected(expectedNs);
  if (openNs_ == 0) {
    GateFile::Locked locked(*file_);
    openFrom_ = locked.slicer.sharedTime(now);
    openedAt_ = now;
    if (flights_.empty()) locked.slicer.beginFlight(slot_, now);
  }
  openNs_ += ns;
  flightNs_ += ns;
  turnNs_ += ns;
}

uint64_t SessionGate::close(int64_t now) {
  const int64_t before = flights_.empty() ? now : std::max(now, flights_.back().dueAt);
  const int64_t reserved = std::min(openNs_, kMostReservedNs);
  GateFile::Locked(*file_).slicer.reserve(slot_, reserved, now);
  flights_.push_back({++lastBatch_, openNs_, openFrom_, openedAt_, before + 2 * openNs_ + kOverdueNs, reserved,
                      now + 2 * reserved + kWaitsNs});
  openNs_ = 0;
  return lastBatch_;
}

void SessionGate::abandon(uint64_t batch, int64_t now) {
  lastNow_ = now;
  const auto flight =
      std::find_if(flights_.begin(), flights_.end(), [&](const Flight& f) { return f.number == batch; });
  if (flight == flights_.end()) return;
  GateFile::Locked locked(*file_);
  const int64_t shared = locked.slicer.sharedTime(now);
  const int64_t used = std::clamp<int64_t>(shared - std::max(sharedUsed_, flight->sharedFrom), 0,
                                           std::max<int64_t>(now - flight->openedAt, 0));
  sharedUsed_ = std::max(sharedUsed_, shared);
  settle(locked.slicer, *flight, used, now);
  flights_.erase(flight);
}

int64_t SessionGate::landed(uint64_t batch, std::optional<int64_t> measuredNs, int64_t now) {
  lastNow_ = now;
  const auto flight =
      std::find_if(flights_.begin(), flights_.end(), [&](const Flight& f) { return f.number == batch; });
  if (flight == flights_.end()) return 0;
  if (!flight->isOverdue) flightNs_ -= flight->expectedNs;
  GateFile::Locked locked(*file_);
  const int64_t shared = locked.slicer.sharedTime(now);
  // While other sessions have work in flight, the GPU's clock also runs during their slices.
  sharedUsed_ = std::max(sharedUsed_, flight->sharedFrom);
  const int64_t most = std::clamp<int64_t>(shared - sharedUsed_, 0, std::max<int64_t>(now - flight->openedAt, 0));
  const int64_t used = std::min(measuredNs.value_or(most), most);
  sharedUsed_ += used;
  // A time slice is charged by measured time, not by expected time.
  if (hasTurn_) turnNs_ = std::max<int64_t>(turnNs_ + used - flight->expectedNs, 1);
  settle(locked.slicer, *flight, used, now);
  flights_.erase(flight);
  const uint64_t first = flights_.empty() ? lastBatch_ + 1 : flights_.front().number;
  std::erase_if(prepaid_, [&](const Prepaid& each) { return each.last < first; });
  if (flights_.empty() && openNs_ == 0) {
    locked.slicer.endFlight(slot_, now);
    emptySince_ = now;
  }
  return used;
}

void SessionGate::markOverdue(int64_t now) {
  for (Flight& flight : flights_) {
    if (flight.reservedNs > 0 && now >= flight.waitsAt) {
      GateFile::Locked(*file_).slicer.release(slot_, flight.reservedNs);
      flight.reservedNs = 0;
    }
    if (flight.isOverdue || now < flight.dueAt) continue;
    flight.isOverdue = true;
    flightNs_ -= flight.expectedNs;
  }
}

}  // namespace millpond::worker::gate
