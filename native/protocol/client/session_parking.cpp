// SPDX-License-Identifier: Apache-2.0
// A client's session outlives its worker: handles parking, and continuing with another worker.
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors/coded_error.h"
#include "protocol/client/session_client.h"

namespace millpond {
namespace {

constexpr int kMostAttempts = 3;
constexpr int kLookMs = 100;

}  // namespace

Result<std::unique_ptr<Session>> Session::reopen(std::span<const std::byte> journal, bool& mayAskAgain) {
  mayAskAgain = false;
  // An ending program does not wait for a GPU.
  if (isLeaving_.load()) return Error{"its process ends"};
  if (!onParked_) return Error{"the worker parked a session that cannot be reopened"};
  for (int attempt = 1;; ++attempt) {
    auto endpoint = onParked_(mayAskAgain);
    if (!endpoint) return endpoint.error();
    // If the new worker has ended when it is called, or ends soon after, another attempt follows: nothing was lost with
    // it.
    mayAskAgain = false;
    endpoint->transport = remote_ ? TransportChoice::Tcp : TransportChoice::SharedMemory;
    auto fresh = establish(*endpoint, true, nullptr);
    if (!fresh && attempt < kMostAttempts) continue;
    if (!fresh) return fresh;
    const std::string difference = differenceOfKind(snapshot_, (*fresh)->snapshot());
    if (!difference.empty())
      return codedError(codes::kImpossible,
                        "the granted GPU differs from the one that the program has seen: " + difference,
                        "Start the program again.");
    const Status restored = onRestore_ ? onRestore_(**fresh, journal) : Status(Done{});
    const bool stays = (*fresh)->retire();
    if (restored && stays) return fresh;
    if (!stays && attempt < kMostAttempts) continue;
    return restored ? Error{"its new worker is gone"} : restored.error();
  }
}

bool Session::retire() {
  if (hasFlusher_) {
    stop_.store(true);
    unsent_.store(1);
    wakeFlusher();
    ::pthread_join(flusherThread_, nullptr);
    hasFlusher_ = false;
  }
  // Over shared memory, the thread that takes the ring of a session detects that it was parked again.
  return !lost() && (!remote_ || (!isDown_.load() && !isParked_.load() && !outgoing_.pending()));
}

// Shared memory

std::vector<std::byte> Session::leftJournal() const {
  const std::span<const std::byte> left = memory_.stagingRun();
  uint64_t bytes = 0;
  std::memcpy(&bytes, left.data(), sizeof(bytes));
  const auto journal = left.subspan(sizeof(bytes), std::min<uint64_t>(bytes, wire::kMaxJournalBytes));
  return {journal.begin(), journal.end()};
}

bool Session::reviseJournal(const Revise& revise) {
  std::lock_guard lock(appendMutex_);
  if (lost() || !isParked()) return false;
  std::lock_guard reading(readMutex_);
  std::vector<std::byte> revised = revise(remote_ ? journal_ : leftJournal());
  if (remote_) {
    journal_ = std::move(revised);
    return true;
  }
  const uint64_t bytes = revised.size();
  const std::span<std::byte> place = memory_.stagingRun();
  std::memcpy(place.data(), &bytes, sizeof(bytes));
  if (bytes) std::memcpy(place.data() + sizeof(bytes), revised.data(), revised.size());
  return true;
}

bool Session::goOnWithRing() {
  do {
    const uint64_t taken = control().submit.tail.load(std::memory_order_seq_cst);
    const uint64_t left = submit_.head() - taken;
    // It was accepted after all, and the next command finds the ring closed.
    if (left == 0) return true;
    if (left > wire::kSubmitBytes) {
      std::lock_guard lock(readMutex_);
      lose("the worker closed an unknown ring");
      return false;
    }
    const std::byte* from = memory_.submit() + taken % wire::kSubmitBytes;
    const std::vector<std::byte> frames(from, from + left);
    bool mayAskAgain = false;
    auto fresh = reopen(leftJournal(), mayAskAgain);
    std::lock_guard lock(readMutex_);
    if (!fresh && mayAskAgain) {
      submit_.retract(taken);
      return false;
    }
    const Status replaced = fresh ? replaceRing(**fresh) : Status(fresh.error());
    if (!replaced) {
      lose(replaced.error().message);
      return false;
    }
    std::memcpy(submit_.place(), frames.data(), frames.size());
    submit_.advance(frames.size());
  } while (!submit_.publish());
  return true;
}

Status Session::replaceRing(Session& fresh) {
  // With the same descriptor number and at the same addresses, because other threads use them at any time.
  if (!channel_.takeOver(std::move(fresh.channel_))) return Error{std::strerror(errno)};
  if (auto replaced = memory_.replace(std::move(fresh.memory_)); !replaced) return replaced;
  memory_.excludeFromFork();
  useRings();
  return Done{};
}

// TCP

void Session::considerParking() {
  if (!isAsked_.load(std::memory_order_acquire) || isParked_.load()) return;
  // A thread that holds one of the mutexes has work to do.
  const std::unique_lock append(appendMutex_, std::try_to_lock);
  if (!append) return;
  const std::unique_lock send(sendMutex_, std::try_to_lock);
  if (!send || lost() || isLeaving_.load() || isDown_.load() || !linkOut_.empty()) return;
  const uint64_t end = askedAt_.load(std::memory_order_relaxed);
  if (endOfStream() != end || outgoing_.pending() || !outgoing_.acknowledge(end)) {
    isAsked_.store(false);
    return;
  }
  // From now on nothing is sent to this worker, whether or not it gets the message: without it, the worker waits in
  // vain.
  isParked_.store(true);
  queueReceived(wire::LinkMessage::kParked);
  while (!linkOut_.empty() && !stop_.load()) {
    if (sendOnce() || errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) break;
    channel_.wait(POLLOUT, kLookMs);
  }
  linkOut_.clear();
}

bool Session::goOnWithStream() {
  std::lock_guard sending(sendMutex_);
  if (!isParked_.load()) return true;
  std::vector<std::byte> journal;
  {
    std::lock_guard lock(readMutex_);
    journal = journal_;
  }
  bool mayAskAgain = false;
  auto fresh = reopen(journal, mayAskAgain);
  bool goesOn = false;
  if (fresh || !mayAskAgain) {
    std::lock_guard lock(readMutex_);
    if (!fresh)
      lose(fresh.error().message);
    else
      goesOn = replaceStream(**fresh);
  }
  waiters_.promoteOne();
  return goesOn;
}

bool Session::replaceStream(Session& fresh) {
  if (fresh.graceSeconds_ == 0) {
    lose("the worker that was granted holds no session over a lost connection");
    return false;
  }
  if (!channel_.takeOver(std::move(fresh.channel_))) {
    lose(std::strerror(errno));
    return false;
  }
  lanes_.remove();
  mayOpenLanes_.store(true);
  endpoint_ = std::move(fresh.endpoint_);
  secret_ = fresh.secret_;
  worker_ = std::move(fresh.worker_);
  attempt_ = fresh.attempt_;
  inbox_ = std::move(fresh.inbox_);
  isTorn_ = false;
  linkOut_ = std::move(fresh.linkOut_);
  received_.store(fresh.received_.load(), std::memory_order_relaxed);
  acknowledged_ = fresh.acknowledged_;
  acknowledges_.store(fresh.acknowledges_.load());
  // This worker has received the commands that restored it, and nothing of this stream.
  base_ = outgoing_.acknowledged() - fresh.endOfStream();
  peerReceived_.store(outgoing_.acknowledged(), std::memory_order_release);
  lanePause_ = {};
  lanePause_.begin(arrived());
  isAsked_.store(false);
  isParked_.store(false);
  return true;
}

}  // namespace millpond
