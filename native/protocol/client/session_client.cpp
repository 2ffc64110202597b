// SPDX-License-Identifier: Apache-2.0
#include "protocol/client/session_client.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>

#include "protocol/above_standard.h"
#include "protocol/client/opened_session.h"
#include "protocol/session_thread.h"
#include "protocol/transport/socket.h"

namespace millpond {
namespace {

/// TCP: buffered commands are sent immediately from this many bytes on, otherwise by the flusher.
constexpr size_t kEagerBytes = size_t{32} << 10;
constexpr int kAcknowledgementLookMs = 10;

}  // namespace

void Session::remember(const Endpoint& endpoint, const Welcome& welcome) {
  endpoint_ = endpoint;
  secret_ = welcome.secret;
  worker_ = ProcessWatch(static_cast<int>(welcome.pid));
}

void Session::useRings() {
  SharedControl& all = control();
  submit_ = RingProducer(all.submit, memory_.submit(), wire::kSubmitBytes);
  outgoing_ = Outgoing(RingConsumer(all.submit, memory_.submit(), wire::kSubmitBytes));
  replies_ = RingConsumer(all.reply, memory_.reply(), wire::kReplyBytes);
}

Result<std::unique_ptr<Session>> Session::connect(const Endpoint& endpoint, const Hello* greet) {
  return establish(endpoint, false, greet);
}

Result<std::unique_ptr<Session>> Session::establish(const Endpoint& endpoint, bool isParked, const Hello* greet) {
  auto opened = openSession(endpoint, isParked, greet);
  if (!opened) return opened.error();
  return of(std::move(*opened), endpoint);
}

Result<std::unique_ptr<Session>> Session::of(OpenedSession opened, const Endpoint& endpoint) {
  std::unique_ptr<Session> session(new Session());
  session->channel_ = std::move(opened.channel);
  session->remote_ = opened.remote;
  session->canPark_ = endpoint.canPark;
  session->parks_ = opened.welcome.parks;
  session->snapshot_ = std::move(opened.snapshot);
  if (session->remote_) {
    session->graceSeconds_ = std::min(endpoint.graceSeconds, opened.welcome.graceSeconds);
    session->remember(endpoint, opened.welcome);
  }
  auto memory = session->remote_ ? SessionMemory::create() : SessionMemory::map(std::move(opened.memory));
  if (!memory) return memory.error();
  session->memory_ = std::move(*memory);
  session->memory_.excludeFromFork();
  session->useRings();
  if (session->remote_) {
    session->flusherWakeup_ = aboveStandard(UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
    session->hasFlusher_ = session->startThread(session->flusherThread_, &Session::flusher);
    if (!session->hasFlusher_) return Error{"cannot start the thread that sends buffered commands"};
    session->mayOpenLanes_.store(session->graceSeconds_ != 0 && session->endpoint_.lanes != 0);
  }
  return session;
}

bool Session::startThread(pthread_t& thread, void* (*main)(void*)) { return startSessionThread(thread, main, this); }

Session::~Session() {
  if (hasLander_.load()) {
    stop_.store(true);
    landing_.store(1);
    futexWake(landing_);
    ::pthread_join(landerThread_, nullptr);
  }
  if (hasFlusher_) {
    stop_.store(true);
    sayGoodbye();
    flush();
    unsent_.store(1);
    wakeFlusher();
    ::pthread_join(flusherThread_, nullptr);
  }
  lanes_.stop();
}

void Session::abandon() {
  hasFlusher_ = false;
  hasLander_.store(false);
  lost_.store(true);
  channel_.abandon();
  lanes_.abandon();
}

Status Session::sendFile(int file) { return millpond::sendFile(channel_.socket(), file); }

Result<UniqueFd> Session::receiveFile() { return millpond::receiveFile(channel_.socket(), kHandshakeTimeoutMs); }

// Appending

std::byte* Session::begin(uint16_t op, Caller caller, uint32_t request, size_t bodyBytes, size_t dataBytes,
                          bool dataInRing) {
  if (lost()) return nullptr;
  if (isParked_.load(std::memory_order_relaxed) && !goOnWithStream()) [[unlikely]]
    return nullptr;
  const size_t inRing = sizeof(wire::CommandHeader) + bodyBytes + (dataInRing ? wire::padded(dataBytes) : 0);
  if (!submit_.hasSpace(inRing) && !waitForSpace(inRing)) return nullptr;
  const wire::CommandHeader header{
      static_cast<uint32_t>(sizeof(wire::CommandHeader) + bodyBytes + wire::padded(dataBytes)), op, caller.context,
      request, caller.thread};
  std::byte* place = submit_.place();
  std::memcpy(place, &header, sizeof(header));
  return place + sizeof(header);
}

bool Session::commit(size_t frameBytes, Flush flush) {
  submit_.advance(frameBytes);
  if (!remote_) [[likely]]
    return submit_.publish() || goOnWithRing();
  control().submit.head.store(submit_.head(), std::memory_order_release);
  if (submit_.head() - sentHead_.load(std::memory_order_relaxed) >= kEagerBytes) {
    sendPending();
  } else if (flush == Flush::kSoon && unsent_.exchange(1) == 0) {
    wakeFlusher();
  }
  return true;
}

bool Session::commitCopied(size_t bodyBytes, std::span<const std::byte> data) {
  const size_t padding = wire::padded(data.size()) - data.size();
  std::byte* place = submit_.place() + sizeof(wire::CommandHeader) + bodyBytes;
  if (!data.empty()) std::memcpy(place, data.data(), data.size());
  std::memset(place + data.size(), 0, padding);
  return commit(sizeof(wire::CommandHeader) + bodyBytes + data.size() + padding) && (!remote_ || !lost());
}

bool Session::commitLent(size_t bodyBytes, std::span<const std::byte> data) {
  // Header and data are published together: a link frame may come before them, not between them.
  std::lock_guard lock(sendMutex_);
  submit_.advance(sizeof(wire::CommandHeader) + bodyBytes);
  control().submit.head.store(submit_.head(), std::memory_order_release);
  const bool mayUseLane =
      data.size() >= wire::kLaneBytes && data.size() <= wire::kChunkBytes && bodyBytes <= wire::kHeadBytes;
  outgoing_.lend(submit_.head(), data, mayUseLane ? sizeof(wire::CommandHeader) + bodyBytes : 0);
  return transmit();
}

bool Session::waitForSpace(size_t bytes) {
  AdaptiveSpin spin;
  while (!submit_.hasSpace(bytes)) {
    if (lost()) return false;
    if (remote_ && sendPending() && submit_.hasSpace(bytes)) break;
    const uint64_t known = peerReceived_.load(std::memory_order_relaxed);
    // The worker itself may be waiting for this client to read its replies.
    if (readMutex_.try_lock()) {
      pump(nullptr, Sender::kOther);
      readMutex_.unlock();
      waiters_.promoteOne();
    }
    if (remote_) {
      if (peerReceived_.load(std::memory_order_relaxed) == known) channel_.wait(POLLIN, kAcknowledgementLookMs);
      continue;
    }
    if (spin.until([&] { return submit_.hasSpace(bytes); })) continue;
    submit_.sleepForSpace(bytes, kLivenessNs);
    spin.slept();
    if (submit_.isBroken()) readOutAndLose("the worker released commands that were never sent");
    if (!submit_.hasSpace(bytes) && peerGone()) readOutAndLose("the worker is gone");
  }
  return true;
}

// Waiting

int32_t Session::await(Waiter& waiter, uint32_t request) {
  if (remote_) sendPending();
  const auto takeLead = [this] { return readMutex_.try_lock(); };
  while (!waiter.isDone()) {
    if (lost()) {
      waiters_.finish(request, kSessionLost);
      break;
    }
    if (takeLead() || waiters_.sleep(waiter, takeLead)) {
      pump(&waiter, Sender::kOther);
      readMutex_.unlock();
      waiters_.promoteOne();
      if (isDown_.load(std::memory_order_acquire)) sendPending();
    }
  }
#ifdef __SANITIZE_THREAD__
  // Data of this thread that the worker has received was read before; the thread sanitizer does not see that order.
  lanes_.awaitSent();
#endif
  waiters_.leave(request);
  return waiter.result();
}

}  // namespace millpond
