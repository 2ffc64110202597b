// SPDX-License-Identifier: Apache-2.0
// The sending part of a client's session: over TCP the frames in its ring, lent memory and link frames.
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>

#include "protocol/client/session_client.h"

namespace millpond {
namespace {

constexpr int64_t kFlushDelayNs = 20'000;
/// With processors to spare the flusher spins: commands are gathered for a shorter time, which is a microsecond or two
/// for a program that appends one every 0.2 µs, and the next ones need no wake-up, which costs the program microseconds
/// and the flusher tens of them.
constexpr int64_t kSpinningDelayNs = 5'000;
constexpr int64_t kActiveNs = 200'000;
/// A connection that ends while the program does nothing is noticed within this time.
constexpr int64_t kIdleLookNs = 1'000'000'000;
/// How long a thread of the session waits for landings before it checks again whether there are any.
constexpr int64_t kLandingNapNs = 1'000'000;
constexpr int64_t kShortestLandingNapNs = 10'000;
/// A proposal of its worker to park the session is detected within this time.
constexpr int64_t kParkingLookNs = 250'000'000;

}  // namespace

void Session::flush() {
  if (remote_) sendPending();
}

bool Session::sendPending() {
  for (;;) {
    {
      std::lock_guard lock(sendMutex_);
      if (!transmit()) return false;
    }
    // A reading thread leaves acknowledgements to the sending one, and may just have done so.
    if (!acknowledges_.load()) return true;
  }
}

bool Session::transmit() {
  unsent_.store(0);
  // There is nothing to send: later commands go to another worker.
  if (isParked_.load(std::memory_order_relaxed)) [[unlikely]]
    return !lost();
  if (graceSeconds_ != 0 && !outgoing_.acknowledge(peerReceived_.load(std::memory_order_acquire))) {
    readOutAndLose("the worker acknowledged bytes that were never sent");
    return false;
  }
  if (acknowledges_.exchange(false)) queueReceived(wire::LinkMessage::kReceived);
  while (isDown_.load(std::memory_order_acquire) || !linkOut_.empty() || outgoing_.pending()) {
    if (lost()) return false;
    if (isDown_.load(std::memory_order_acquire)) {
      if (!mend()) return false;
    } else if (!sendOnce() && errno != EINTR) {
      if (errno == EAGAIN || errno == EWOULDBLOCK)
        waitToSend();
      else
        cut(std::string("sending to the worker failed: ") + std::strerror(errno));
    }
  }
  sentHead_.store(outgoing_.ringPosition(), std::memory_order_relaxed);
  if (graceSeconds_ == 0) outgoing_.acknowledge(outgoing_.position());
  return !lost();
}

bool Session::sendOnce() {
  const bool hasLanes = lanes_.areOpen();
  if (const auto piece = hasLanes ? outgoing_.laneable() : std::nullopt) {
    queueLinkWord({wire::LinkMessage::kOnLane, lanes_.send(*piece), piece->size()});
    outgoing_.decide(true);
  }
  SendRuns runs;
  runs.add(linkOut_);
  outgoing_.collect(runs, hasLanes);
  const size_t all = runs.left();
  if (!runs.send(channel_)) return false;
  const size_t gone = all - runs.left();
  const size_t ofLink = std::min(gone, linkOut_.size());
  linkOut_.erase(linkOut_.begin(), linkOut_.begin() + static_cast<ptrdiff_t>(ofLink));
  outgoing_.sent(gone - ofLink);
  return true;
}

void Session::waitToSend() {
  const int ready = channel_.wait(POLLOUT | POLLIN, 100);
  // The worker may be blocked while sending to us.
  if ((ready & POLLIN) && readMutex_.try_lock()) {
    pump(nullptr, Sender::kThis);
    readMutex_.unlock();
    waiters_.promoteOne();
  }
}

void Session::queueLinkWord(const wire::LinkWord& word) {
  const wire::CommandHeader header{sizeof(header) + sizeof(wire::LinkWord), wire::kLinkOp, 0, 0, 0};
  const size_t at = linkOut_.size();
  linkOut_.resize(at + header.bytes);
  std::memcpy(linkOut_.data() + at, &header, sizeof(header));
  std::memcpy(linkOut_.data() + at + sizeof(header), &word, sizeof(word));
}

void Session::acknowledge(Sender sender) {
  const uint64_t received = received_.load(std::memory_order_relaxed);
  // The worker has few chunks for what lanes carry quickly.
  const size_t least = lanes_.areOpen() ? wire::kAcknowledgeBytes / 2 : wire::kAcknowledgeBytes;
  if (graceSeconds_ == 0 || received - acknowledged_ < least) return;
  acknowledged_ = received;
  acknowledges_.store(true);
  // The thread that holds it checks again when it releases it.
  if (sender == Sender::kThis || !sendMutex_.try_lock()) return;
  if (!isDown_.load() && acknowledges_.exchange(false)) {
    queueReceived(wire::LinkMessage::kReceived);
    SendRuns runs;
    runs.add(linkOut_);
    if (runs.send(channel_)) linkOut_.erase(linkOut_.begin(), linkOut_.end() - static_cast<ptrdiff_t>(runs.left()));
    // A full socket is left to the flusher, and so is a closed one.
    if (!linkOut_.empty() && unsent_.exchange(1) == 0) wakeFlusher();
  }
  sendMutex_.unlock();
}

void* Session::flusher(void* self) {
  ::prctl(PR_SET_TIMERSLACK, 1UL);
  ::prctl(PR_SET_NAME, "millpond-flush");
  static_cast<Session*>(self)->flushUntilStopped();
  return nullptr;
}

void Session::wakeFlusher() {
  const FlusherState state = flusherState_.load();
  if (state == FlusherState::kSleeps) futexWake(unsent_);
  if (state != FlusherState::kPolls) return;
  const uint64_t one = 1;
  if (::write(flusherWakeup_.get(), &one, sizeof(one)) < 0) return;  // the counter is full: it is awake
}

bool Session::takeLandings() {
  if (isDown_.load() || isParked_.load() || lost() || !awaitsLandings()) return false;
  pollfd look[2] = {{channel_.socket(), POLLIN, 0}, {flusherWakeup_.get(), POLLIN, 0}};
  const timespec nap{0, kLandingNapNs};
  flusherState_.store(FlusherState::kPolls);
  if (unsent_.load() == 0 && !channel_.holdsBytes()) ::ppoll(look, 2, &nap, nullptr);
  const bool comes = channel_.holdsBytes() || (look[0].revents & POLLIN) != 0;
  if (comes && readMutex_.try_lock()) {
    pump(nullptr, Sender::kOther);
    readMutex_.unlock();
    waiters_.promoteOne();
  } else if (comes && unsent_.load() == 0) {
    // The waiting thread reads for all threads.
    ::ppoll(look + 1, 1, &nap, nullptr);
  }
  flusherState_.store(FlusherState::kAwake);
  uint64_t count;
  if (::read(flusherWakeup_.get(), &count, sizeof(count)) < 0) count = 0;  // it was not woken
  if (isDown_.load()) sendPending();
  return true;
}

bool Session::expectLanding() {
  if (remote_) return true;
  if (!hasLander_.load(std::memory_order_acquire)) {
    std::lock_guard lock(landerMutex_);
    if (!hasLander_.load(std::memory_order_relaxed)) {
      if (!startThread(landerThread_, &Session::lander)) return false;
      hasLander_.store(true, std::memory_order_release);
    }
  }
  if (landing_.exchange(1) == 0) futexWake(landing_);
  return true;
}

void* Session::lander(void* self) {
  ::prctl(PR_SET_TIMERSLACK, 1UL);
  ::prctl(PR_SET_NAME, "millpond-lands");
  static_cast<Session*>(self)->landUntilStopped();
  return nullptr;
}

void Session::landUntilStopped() {
  int64_t napNs = kShortestLandingNapNs;
  while (!stop_.load() && !lost()) {
    if (!awaitsLandings_ || !awaitsLandings_()) {
      // Checked again: a landing may have begun in the meantime.
      landing_.exchange(0);
      if (stop_.load() || (awaitsLandings_ && awaitsLandings_())) continue;
      futexWait(landing_, 0);
      napNs = kShortestLandingNapNs;
      continue;
    }
    bool some = false;
    // A thread that waits reads for all.
    if (readMutex_.try_lock()) {
      some = replies_.available() != 0;
      if (some) pump(nullptr, Sender::kOther);
      if (!some && peerGone() && replies_.available() == 0) lose("the worker is gone");
      readMutex_.unlock();
      waiters_.promoteOne();
    }
    napNs = some ? kShortestLandingNapNs : std::min(2 * napNs, kLandingNapNs);
    const timespec nap{0, napNs};
    ::nanosleep(&nap, nullptr);
  }
}

bool Session::spinsForUnsent() {
  if (!hasSpareCpus_) return false;
  for (const int64_t end = monotonicNs() + kActiveNs; !awaitsLandings() && monotonicNs() < end;) {
    for (int i = 0; i < 32; ++i) {
      if (unsent_.load() != 0) return true;
      cpuRelax();
    }
  }
  return false;
}

void Session::gather() {
  if (!hasSpareCpus_) {
    const timespec delay{0, kFlushDelayNs};
    ::nanosleep(&delay, nullptr);
    return;
  }
  for (const int64_t end = monotonicNs() + kSpinningDelayNs; monotonicNs() < end;) cpuRelax();
}

void Session::flushUntilStopped() {
  while (!stop_.load()) {
    if (unsent_.load() == 0 && takeLandings()) continue;
    const int64_t look = canPark_ && !isParked_.load() ? kParkingLookNs : kIdleLookNs;
    flusherState_.store(FlusherState::kSleeps);
    // Read again afterwards: an appending thread reads the two in the opposite order.
    if (unsent_.load() == 0) futexWait(unsent_, 0, graceSeconds_ ? look : -1);
    flusherState_.store(FlusherState::kAwake);
    if (unsent_.load() == 0) {
      lookAtConnection();
      considerParking();
      continue;
    }
    do {
      gather();
      if (unsent_.load() != 0) sendPending();
    } while (!stop_.load() && !isDown_.load() && spinsForUnsent());
  }
}

}  // namespace millpond
