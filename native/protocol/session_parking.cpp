// SPDX-License-Identifier: Apache-2.0
// A client's session outlives its worker's: here it is parked, and goes on with another worker.
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "protocol/session_client.h"

namespace millpond {
namespace {

/// A worker that was given and is gone when it is called is no reason to give up: nothing was lost with it.
constexpr int kMostAttempts = 3;
constexpr int kLookMs = 100;

}  // namespace

Result<Session::Opened> Session::reopen(Endpoint& endpoint) {
  // A program that ends waits for no GPU.
  if (isLeaving_.load()) return Error{"its process ends"};
  if (!onParked_) return Error{"the worker parked a session that nobody can open again"};
  for (int attempt = 1;; ++attempt) {
    auto found = onParked_();
    if (!found) return found.error();
    endpoint = std::move(*found);
    endpoint.transport = remote_ ? TransportChoice::Tcp : TransportChoice::SharedMemory;
    auto opened = open(endpoint, true, nullptr);
    if (!opened && attempt < kMostAttempts) continue;
    if (!opened) return opened;
    const std::string difference = differenceOfKind(snapshot_, opened->snapshot);
    if (difference.empty()) return opened;
    return Error{"the GPU that was granted is not what the program was told it has: " + difference +
                 ". Start the program again [MILLPOND_E_IMPOSSIBLE]"};
  }
}

// Shared memory

void Session::goOnWithRing() {
  do {
    const uint64_t taken = control().submit.tail.load(std::memory_order_seq_cst);
    const uint64_t left = submit_.head() - taken;
    // It was taken in the end, and the next command finds the ring closed.
    if (left == 0) return;
    std::vector<std::byte> frames;
    if (left <= wire::kSubmitBytes) {
      const std::byte* from = memory_.submit() + taken % wire::kSubmitBytes;
      frames.assign(from, from + left);
    }
    Endpoint endpoint;
    auto opened = reopen(endpoint);
    std::lock_guard lock(readMutex_);
    const Status replaced = opened ? replaceRing(std::move(*opened)) : Status(opened.error());
    if (!replaced || frames.empty()) {
      lose(replaced ? "the worker closed a ring that makes no sense" : replaced.error().message);
      return;
    }
    std::memcpy(submit_.place(), frames.data(), frames.size());
    submit_.advance(frames.size());
  } while (!submit_.publish());
}

Status Session::replaceRing(Opened opened) {
  // On the same number and at the same addresses: other threads look at them at any time.
  if (!channel_.takeOver(std::move(opened.channel))) return Error{std::strerror(errno)};
  if (auto replaced = memory_.replace(std::move(opened.memory)); !replaced) return replaced;
  memory_.excludeFromFork();
  useRings();
  return Done{};
}

// TCP

void Session::considerParking() {
  if (!isAsked_.load(std::memory_order_acquire) || isParked_.load()) return;
  // Whoever holds one of them has something to do.
  const std::unique_lock append(appendMutex_, std::try_to_lock);
  if (!append) return;
  const std::unique_lock send(sendMutex_, std::try_to_lock);
  if (!send || lost() || isLeaving_.load() || isDown_.load() || !linkOut_.empty()) return;
  const uint64_t end = askedAt_.load(std::memory_order_relaxed);
  if (endOfStream() != end || outgoing_.pending() || !outgoing_.acknowledge(end)) {
    isAsked_.store(false);
    return;
  }
  // From here on nothing is sent to this worker, whether it hears that or not: one that does not waits in vain.
  isParked_.store(true);
  queueLinkWord(wire::LinkMessage::kParked);
  while (!linkOut_.empty() && !stop_.load()) {
    if (sendOnce() || errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) break;
    channel_.wait(POLLOUT, kLookMs);
  }
  linkOut_.clear();
}

bool Session::goOnWithStream() {
  Endpoint endpoint;
  auto opened = reopen(endpoint);
  bool goesOn = false;
  {
    std::lock_guard lock(readMutex_);
    if (!opened) {
      lose(opened.error().message);
    } else if (opened->welcome.graceSeconds == 0) {
      lose("the worker that was granted holds no session over a lost connection");
    } else if (!channel_.takeOver(std::move(opened->channel))) {
      lose(std::strerror(errno));
    } else {
      remember(endpoint, opened->welcome);
      attempt_ = 0;
      inbox_.clear();
      received_.store(0, std::memory_order_relaxed);
      acknowledged_ = 0;
      acknowledges_.store(false);
      base_ = outgoing_.acknowledged();
      peerReceived_.store(base_, std::memory_order_release);
      isAsked_.store(false);
      isParked_.store(false);
      goesOn = true;
    }
  }
  promoteOne();
  return goesOn;
}

}  // namespace millpond
