// SPDX-License-Identifier: Apache-2.0
// A client's session over TCP outlives its connection: handles the loss of the connection, and its restoration.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <ctime>

#include "protocol/client/opened_session.h"
#include "protocol/client/session_client.h"
#include "protocol/gen/api_hash.h"
#include "protocol/transport/socket.h"

namespace millpond {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kFirstPauseNs = 2'000'000;
constexpr int64_t kLongestPauseNs = kSecondNs / 2;
/// A shorter loss is not reported.
constexpr int64_t kQuietNs = kSecondNs;
constexpr int kAttemptMs = 10'000;
constexpr int kGoodbyeMs = 200;

void pause(int64_t ns) {
  const timespec time{ns / kSecondNs, ns % kSecondNs};
  ::nanosleep(&time, nullptr);
}

std::string seconds(int64_t ns) { return std::to_string((ns + kSecondNs / 2) / kSecondNs) + " s"; }

}  // namespace

void Session::cut(const std::string& reason) {
  if (graceSeconds_ != 0 && !isLeaving_.load()) {
    cutWhileReading(reason);
    return;
  }
  readOutAndLose(reason);
}

void Session::cutWhileReading(const std::string& reason) {
  if (graceSeconds_ == 0 || isLeaving_.load()) {
    lose(endReason_.empty() ? reason : endReason_);
    return;
  }
  // The worker of a parked session is expected to exit.
  if (isParked_.load()) return;
  std::lock_guard lock(downMutex_);
  if (isDown_.load()) return;
  downReason_ = reason;
  isDown_.store(true, std::memory_order_release);
  // Threads that still wait for this connection stop.
  ::shutdown(channel_.socket(), SHUT_RDWR);
}

bool Session::mend() {
  bool mended = false;
  {
    std::lock_guard lock(readMutex_);
    // The worker's last messages: replies, and possibly the reason of its end.
    for (Pumped got = Pumped::kSome; got == Pumped::kSome && !lost();) {
      got = pumpSocket(Sender::kThis);
      if (got == Pumped::kBroken) lose(endReason_.empty() ? "the connection to the worker broke" : endReason_);
    }
    dropComing();
    lanes_.remove();
    mended = !lost() && reconnect();
  }
  waiters_.promoteOne();
  return mended;
}

bool Session::reconnect() {
  const int64_t start = monotonicNs();
  const int64_t deadline = start + int64_t{graceSeconds_} * kSecondNs;
  const std::string where = endpoint_.tcpHost + ":" + std::to_string(endpoint_.tcpPort);
  std::string first;
  {
    std::lock_guard lock(downMutex_);
    first = downReason_;
  }
  bool told = false;
  for (int64_t wait = kFirstPauseNs;; wait = std::min(wait * 2, kLongestPauseNs)) {
    const int64_t left = deadline - monotonicNs();
    const auto failed = comeBack(static_cast<int>(std::clamp<int64_t>(left / 1'000'000, 1, kAttemptMs)));
    if (!failed) {
      if (told && onLink_) onLink_("the connection to the GPU's worker at " + where + " is back");
      return true;
    }
    const int64_t now = monotonicNs();
    // After a late end neither side gets an answer.
    const bool workerEnded = worker_.ended();
    if ((workerEnded && now - start < (deadline - start) / 2) || stop_.load()) {
      lose("the worker is gone");
      return false;
    }
    if (failed->final) {
      lose("the connection to the worker at " + where + " was lost (" + first +
           "), and it refuses to continue: " + failed->problem);
      return false;
    }
    if (now >= deadline || workerEnded) {
      lose("the connection to the worker at " + where + " was lost (" + first + ") and could not be restored within " +
           seconds(deadline - start) + ": " + failed->problem +
           ". The session and its memory are lost; check the network and the node, and start the program "
           "again. MILLPOND_RECONNECT_GRACE sets how long reconnecting is tried");
      return false;
    }
    if (!told && now - start > kQuietNs) {
      told = true;
      if (onLink_)
        onLink_("the connection to the GPU's worker at " + where + " was lost (" + first + "); trying for up to " +
                seconds(deadline - start));
    }
    pause(std::min(wait, deadline - now));
  }
}

std::optional<Session::Attempt> Session::comeBack(int timeoutMs) {
  auto channel = reachWorker(endpoint_, timeoutMs);
  if (!channel) return Attempt{channel.error().message};
  Hello hello{wire::kProtocolVersion, kApiHash, Carrier::kTcp, 0, "", endpoint_.program, graceSeconds_, "", {}};
  hello.resumption = Resumption{secret_, received_.load(std::memory_order_relaxed), ++attempt_};
  auto welcome = greetWorker(*channel, hello, timeoutMs);
  if (!welcome) return Attempt{welcome.error().message};
  // The reply comes from the worker itself, so it is final.
  if (welcome->admission != Admission::kWelcome) return Attempt{welcome->message, true};
  if (!takeOver(std::move(*channel), base_ + welcome->received))
    return Attempt{"it continues at offset " + std::to_string(welcome->received) + ", which is no longer buffered here",
                   true};
  return std::nullopt;
}

bool Session::takeOver(Channel channel, uint64_t received) {
  if (!outgoing_.resumeAt(received)) return false;
  if (!channel_.takeOver(std::move(channel))) return false;
  inbox_.clear();
  isTorn_ = false;
  linkOut_.clear();
  acknowledged_ = received_.load(std::memory_order_relaxed);
  peerReceived_.store(received, std::memory_order_release);
  sentHead_.store(outgoing_.ringPosition(), std::memory_order_relaxed);
  lanePause_.begin(arrived());
  isDown_.store(false, std::memory_order_release);
  mayOpenLanes_.store(true);
  return true;
}

void Session::lookAtConnection() {
  if (isDown_.load() || isParked_.load() || lost()) return;
  pollfd look{channel_.socket(), static_cast<short>(POLLRDHUP | (canPark_ ? POLLIN : 0)), 0};
  const bool holds = canPark_ && channel_.holdsBytes();
  if (::poll(&look, 1, 0) < 0 || (look.revents == 0 && !holds)) return;
  if (look.revents == POLLIN || look.revents == 0) {
    // No thread waits, and the worker has sent something.
    if (!readMutex_.try_lock()) return;
    pump(nullptr, Sender::kOther);
    readMutex_.unlock();
    waiters_.promoteOne();
    return;
  }
  cut("it was closed");
  sendPending();
}

void Session::sayGoodbye() {
  if (lost() || isLeaving_.exchange(true) || graceSeconds_ == 0) return;
  const int64_t deadline = monotonicNs() + int64_t{kGoodbyeMs} * 1'000'000;
  // Another thread may hold it while the connection is lost: the worker then waits in vain.
  while (!sendMutex_.try_lock()) {
    if (monotonicNs() > deadline) return;
    pause(kFirstPauseNs / 2);
  }
  if (!isDown_.load() && !isParked_.load()) {
    queueReceived(wire::LinkMessage::kGoodbye);
    while ((!linkOut_.empty() || outgoing_.pending()) && monotonicNs() < deadline) {
      if (sendOnce()) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) break;
      channel_.wait(POLLOUT, 10);
    }
    sentHead_.store(outgoing_.ringPosition(), std::memory_order_relaxed);
  }
  sendMutex_.unlock();
}

}  // namespace millpond
