// SPDX-License-Identifier: Apache-2.0
#include "protocol/client/session_client.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "protocol/client/opened_session.h"
#include "protocol/rings/bulk_copy.h"
#include "protocol/transport/socket.h"

namespace millpond {
namespace {

/// TCP: buffered commands are sent at once when there are this many bytes of them, else by the flusher.
constexpr size_t kEagerBytes = size_t{32} << 10;
constexpr int64_t kFlushDelayNs = 20'000;
/// A connection that ends while the program does nothing is noticed within this time.
constexpr int64_t kIdleLookNs = 1'000'000'000;
/// How long the flusher waits for what lands before it asks again whether anything does.
constexpr int64_t kLandingNapNs = 1'000'000;
/// That its worker would park the session, within this time.
constexpr int64_t kParkingLookNs = 250'000'000;
constexpr int kAcknowledgementLookMs = 10;
/// How long a sleeper goes without looking whether the worker is still there.
constexpr int64_t kLivenessNs = 50'000'000;
/// Of a copy from the device of this size little is left in the caches when it is done.
constexpr size_t kLargeCopyBytes = size_t{4} << 20;
/// How long the rest of a frame may take once its header is there.
constexpr int kFrameTimeoutMs = 60'000;

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
    // The program's signals are for the program's threads.
    sigset_t all, before;
    ::sigfillset(&all);
    // But faults are of the thread that makes them: what it reads and writes is the program's memory.
    ::sigdelset(&all, SIGSEGV);
    ::sigdelset(&all, SIGBUS);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    session->flusherWakeup_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    session->hasFlusher_ = ::pthread_create(&session->flusherThread_, nullptr, &Session::flusher, session.get()) == 0;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!session->hasFlusher_) return Error{"cannot start the thread that sends buffered commands"};
  }
  return session;
}

Session::~Session() {
  if (hasFlusher_) {
    stop_.store(true);
    sayGoodbye();
    flush();
    unsent_.store(1);
    wakeFlusher();
    ::pthread_join(flusherThread_, nullptr);
  }
}

void Session::abandon() {
  hasFlusher_ = false;
  lost_.store(true);
  channel_.abandon();
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
  // Header and data are published as one: a frame of the link may come before them, not between them.
  std::lock_guard lock(sendMutex_);
  submit_.advance(sizeof(wire::CommandHeader) + bodyBytes);
  control().submit.head.store(submit_.head(), std::memory_order_release);
  outgoing_.lend(submit_.head(), data);
  return transmit();
}

bool Session::waitForSpace(size_t bytes) {
  AdaptiveSpin spin;
  while (!submit_.hasSpace(bytes)) {
    if (lost()) return false;
    if (remote_ && sendPending() && submit_.hasSpace(bytes)) break;
    const uint64_t known = peerReceived_.load(std::memory_order_relaxed);
    // The worker may itself wait until somebody takes its replies.
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
    if (submit_.isBroken()) readOutAndLose("the worker released commands that it was never given");
    if (!submit_.hasSpace(bytes) && peerGone()) readOutAndLose("the worker is gone");
  }
  return true;
}

void Session::flush() {
  if (remote_) sendPending();
}

bool Session::sendPending() {
  for (;;) {
    {
      std::lock_guard lock(sendMutex_);
      if (!transmit()) return false;
    }
    // Whoever reads leaves an acknowledgement to whoever sends: it may have done so meanwhile.
    if (!acknowledges_.load()) return true;
  }
}

bool Session::transmit() {
  unsent_.store(0);
  // There is nothing to be sent: what is appended next goes to another worker.
  if (isParked_.load(std::memory_order_relaxed)) [[unlikely]]
    return !lost();
  if (graceSeconds_ != 0 && !outgoing_.acknowledge(peerReceived_.load(std::memory_order_acquire))) {
    readOutAndLose("the worker acknowledged what was never sent");
    return false;
  }
  if (acknowledges_.exchange(false)) queueLinkWord(wire::LinkMessage::kReceived);
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
  SendRuns runs;
  runs.add(linkOut_);
  outgoing_.collect(runs);
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
  // The worker may be blocked in sending to us.
  if ((ready & POLLIN) && readMutex_.try_lock()) {
    pump(nullptr, Sender::kThis);
    readMutex_.unlock();
    waiters_.promoteOne();
  }
}

void Session::queueLinkWord(wire::LinkMessage message) {
  const uint64_t received = received_.load(std::memory_order_relaxed);
  const wire::CommandHeader header{sizeof(header) + sizeof(wire::LinkWord), wire::kLinkOp, 0, 0, 0};
  const wire::LinkWord word{message, 0, received};
  const size_t at = linkOut_.size();
  linkOut_.resize(at + header.bytes);
  std::memcpy(linkOut_.data() + at, &header, sizeof(header));
  std::memcpy(linkOut_.data() + at + sizeof(header), &word, sizeof(word));
}

void Session::acknowledge(Sender sender) {
  const uint64_t received = received_.load(std::memory_order_relaxed);
  if (graceSeconds_ == 0 || received - acknowledged_ < wire::kAcknowledgeBytes) return;
  acknowledged_ = received;
  acknowledges_.store(true);
  // Who holds it looks again when it lets go.
  if (sender == Sender::kThis || !sendMutex_.try_lock()) return;
  if (!isDown_.load() && acknowledges_.exchange(false)) {
    queueLinkWord(wire::LinkMessage::kReceived);
    SendRuns runs;
    runs.add(linkOut_);
    if (runs.send(channel_)) linkOut_.erase(linkOut_.begin(), linkOut_.end() - static_cast<ptrdiff_t>(runs.left()));
    // A full socket is left to the flusher, and so is one that has ended.
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
  futexWake(unsent_);
  if (!flusherPolls_.load()) return;
  const uint64_t one = 1;
  if (::write(flusherWakeup_.get(), &one, sizeof(one)) < 0) return;  // the counter is full: it is awake
}

bool Session::takeLandings() {
  if (!asksForLandings_.load(std::memory_order_acquire) || isDown_.load() || isParked_.load() || lost() || !awaitsLandings_()) return false;
  pollfd look[2] = {{channel_.socket(), POLLIN, 0}, {flusherWakeup_.get(), POLLIN, 0}};
  const timespec nap{0, kLandingNapNs};
  flusherPolls_.store(true);
  if (unsent_.load() == 0 && !channel_.holdsBytes()) ::ppoll(look, 2, &nap, nullptr);
  const bool comes = channel_.holdsBytes() || (look[0].revents & POLLIN) != 0;
  if (comes && readMutex_.try_lock()) {
    pump(nullptr, Sender::kOther);
    readMutex_.unlock();
    waiters_.promoteOne();
  } else if (comes && unsent_.load() == 0) {
    // Who waits reads for everybody.
    ::ppoll(look + 1, 1, &nap, nullptr);
  }
  flusherPolls_.store(false);
  uint64_t count;
  if (::read(flusherWakeup_.get(), &count, sizeof(count)) < 0) count = 0;  // nobody woke it
  if (isDown_.load()) sendPending();
  return true;
}

void Session::flushUntilStopped() {
  while (!stop_.load()) {
    if (unsent_.load() == 0 && takeLandings()) continue;
    const int64_t look = canPark_ && !isParked_.load() ? kParkingLookNs : kIdleLookNs;
    futexWait(unsent_, 0, graceSeconds_ ? look : -1);
    if (unsent_.load() == 0) {
      lookAtConnection();
      considerParking();
      continue;
    }
    const timespec delay{0, kFlushDelayNs};
    ::nanosleep(&delay, nullptr);
    if (unsent_.load() != 0) sendPending();
  }
}

// Waiting

/// As long as most copies and kernels take where cores are to spare, as the driver itself does: waking a core that sleeps
/// can take as long as a short kernel. Elsewhere only for what comes at once.
int64_t Session::spinNs() {
  cpu_set_t mine;
  return ::sched_getaffinity(0, sizeof(mine), &mine) == 0 && CPU_COUNT(&mine) >= 8 ? 5'000'000 : 50'000;
}

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
  waiters_.leave(request);
  return waiter.result();
}

// Reading

void Session::pump(const Waiter* until, Sender sender) {
  for (;;) {
    const Pumped got = remote_ ? pumpSocket() : pumpRing();
    if (got == Pumped::kBroken) lose(endReason_.empty() ? "the connection to the worker broke" : endReason_);
    if (got == Pumped::kCut) cutWhileReading("the worker closed it");
    acknowledge(sender);
    if (!until || lost() || isDown_.load(std::memory_order_acquire)) return;
    if (until->isDone()) return;
    if (got == Pumped::kNothing) sleepForReplies();
  }
}

void Session::sleepForReplies() {
  if (!remote_) {
    if (spin_.until([&] { return replies_.available() != 0; })) return;
    replies_.sleep(kLivenessNs);
    spin_.slept();
    // Looked at again: what the worker says last comes before it goes.
    if (replies_.available() == 0 && peerGone() && replies_.available() == 0) lose("the worker is gone");
    return;
  }
  Inbox::Got got = Inbox::Got::kNothing;
  if (!spin_.until([&] { return (got = inbox_.receive(channel_)) != Inbox::Got::kNothing; })) {
    channel_.wait(POLLIN, 1000);
    spin_.slept();
  }
  if (got == Inbox::Got::kEnd) cutWhileReading("the worker closed it");
}

Session::Pumped Session::pumpRing() {
  const size_t available = replies_.available();
  if (available == 0) return Pumped::kNothing;
#ifdef __SANITIZE_THREAD__
  // What any thread here had sent when the worker answered happened before the answer; the sanitizer sees one process.
  (void)control().submit.head.load(std::memory_order_acquire);
#endif
  if (available > replies_.capacity()) return Pumped::kBroken;
  size_t left = available;
  while (left >= sizeof(wire::ReplyHeader)) {
    wire::ReplyHeader header;
    std::memcpy(&header, replies_.data(), sizeof(header));
    if (header.bytes < sizeof(header) || header.bytes > left || header.bytes % 8 != 0) return Pumped::kBroken;
    if (!accept(header, {replies_.data() + sizeof(header), header.bytes - sizeof(header)})) return Pumped::kBroken;
    replies_.skip(header.bytes);
    left -= header.bytes;
  }
  if (left != 0) return Pumped::kBroken;  // frames are published whole
  replies_.release(replies_.position());
  return Pumped::kSome;
}

Session::Pumped Session::pumpSocket() {
  if (inbox_.pending().size() < sizeof(wire::ReplyHeader)) {
    const Inbox::Got got = inbox_.receive(channel_);
    if (got == Inbox::Got::kEnd) return Pumped::kCut;
    if (got == Inbox::Got::kNothing) return Pumped::kNothing;
  }
  bool some = false;
  while (inbox_.pending().size() >= sizeof(wire::ReplyHeader)) {
    wire::ReplyHeader header;
    std::memcpy(&header, inbox_.pending().data(), sizeof(header));
    if (header.bytes < sizeof(header) || header.bytes % 8 != 0) return Pumped::kBroken;
    const size_t body = header.bytes - sizeof(header);
    if (header.kind == wire::ReplyKind::kData || header.kind == wire::ReplyKind::kLanding) {
      inbox_.skip(sizeof(header));
      if (const Pumped got = receiveData(header); got != Pumped::kSome) return got;
    } else {
      if (header.bytes > wire::kMaxReplyBytes) return Pumped::kBroken;
      if (inbox_.pending().size() < header.bytes) {
        const Inbox::Got got = inbox_.receive(channel_, header.bytes);
        if (got == Inbox::Got::kEnd) return Pumped::kCut;
        if (got == Inbox::Got::kNothing) return some ? Pumped::kSome : Pumped::kNothing;
        continue;
      }
      if (!accept(header, inbox_.pending().subspan(sizeof(header), body))) return Pumped::kBroken;
      inbox_.skip(header.bytes);
    }
    if (header.kind != wire::ReplyKind::kLink)
      received_.store(received_.load(std::memory_order_relaxed) + header.bytes, std::memory_order_relaxed);
    some = true;
  }
  return some ? Pumped::kSome : Pumped::kNothing;
}

bool Session::take(std::span<std::byte> to) {
  const size_t buffered = std::min(to.size(), inbox_.pending().size());
  if (buffered) std::memcpy(to.data(), inbox_.pending().data(), buffered);
  inbox_.skip(buffered);
  return buffered == to.size() ||
         static_cast<bool>(millpond::receiveExactly(channel_, to.subspan(buffered), kFrameTimeoutMs));
}

Session::Pumped Session::receiveData(const wire::ReplyHeader& header) {
  size_t left = header.bytes - sizeof(header);
  if (header.kind == wire::ReplyKind::kData) {
    if (header.op > 7 || header.op > left) return Pumped::kBroken;
    const std::span<std::byte> to = destination(header, left - header.op);
    if (to.empty()) return Pumped::kBroken;
    const Pumped got = receiveBody(to, left);
    // It comes again, whole.
    if (got == Pumped::kCut) waiters_.find(header.request)->answer.dataBytes -= to.size();
    return got;
  }
  wire::Landing landing{};
  if (left < sizeof(landing)) return Pumped::kBroken;
  if (!take(std::as_writable_bytes(std::span(&landing, 1)))) return Pumped::kCut;
  left -= sizeof(landing);
  if (landing.bytes > left || wire::padded(landing.bytes) != left) return Pumped::kBroken;
  std::span<std::byte> to;
  if (landing.bytes && mayLand_ && mayLand_(landing.hostAddress, landing.bytes))
    to = {reinterpret_cast<std::byte*>(landing.hostAddress), landing.bytes};
  const Pumped got = receiveBody(to, left);
  if (got == Pumped::kSome && landing.number && onLanded_) onLanded_(landing.number);
  return got;
}

Session::Pumped Session::receiveBody(std::span<std::byte> to, size_t frameBytesLeft) {
  if (!to.empty() && !take(to)) return Pumped::kCut;
  // Padding, or bytes for memory that the program has given up.
  std::byte dropped[4096];
  for (size_t left = frameBytesLeft - to.size(); left;) {
    const size_t n = std::min(left, sizeof(dropped));
    if (!take(std::span(dropped).first(n))) return Pumped::kCut;
    left -= n;
  }
  return Pumped::kSome;
}

std::span<std::byte> Session::destination(const wire::ReplyHeader& header, size_t bytes) {
  Waiter* w = waiters_.find(header.request);
  if (!w || w->answer.data.size() - w->answer.dataBytes < bytes) return {};
  const auto to = w->answer.data.subspan(w->answer.dataBytes, bytes);
  w->answer.dataBytes += bytes;
  return to;
}

bool Session::accept(const wire::ReplyHeader& header, std::span<const std::byte> body) {
  switch (header.kind) {
    case wire::ReplyKind::kResult: {
      Waiter* w = waiters_.find(header.request);
      if (!w) return false;
      Answer& answer = w->answer;
      answer.bodyBytes = body.size();
      const size_t n = std::min(answer.body.size(), body.size());
      if (n) std::memcpy(answer.body.data(), body.data(), n);
      if (answer.whole) answer.whole->assign(body.begin(), body.end());
      // What came before the question has come, too.
      if (const uint64_t end = w->end.load(std::memory_order_relaxed);
          graceSeconds_ != 0 && end > peerReceived_.load(std::memory_order_relaxed))
        peerReceived_.store(end, std::memory_order_release);
      waiters_.finish(header.request, header.result);
      return true;
    }
    case wire::ReplyKind::kChunk: {
      wire::ChunkReady ready;
      if (remote_ || body.size() != sizeof(ready)) return false;
      std::memcpy(&ready, body.data(), sizeof(ready));
      if (ready.chunk >= wire::kStagingChunks || ready.bytes > wire::kChunkBytes) return false;
      const auto to = destination(header, ready.bytes);
      if (to.empty() || to.size() != ready.bytes) return false;
      const std::span<const std::byte> from(memory_.chunk(ready.chunk), ready.bytes);
      if (waiters_.find(header.request)->answer.data.size() >= kLargeCopyBytes)
        copyPastCaches(to.data(), from);
      else
        std::memcpy(to.data(), from.data(), from.size());
      control().chunkBusy[ready.chunk].store(0, std::memory_order_seq_cst);
      // The worker may sleep until a chunk is free; it sleeps as the consumer of commands.
      wakeConsumer(control().submit);
      return true;
    }
    case wire::ReplyKind::kFailure: {
      wire::FailureReport report;
      if (body.size() != sizeof(report)) return false;
      std::memcpy(&report, body.data(), sizeof(report));
      int32_t none = 0;
      const auto context = static_cast<uint16_t>(report.context);
      if (remote_) control().failure.compare_exchange_strong(none, wire::packFailure(header.result, context));
      if (onFailure_) onFailure_(header.result, header.op, report.position);
      return true;
    }
    case wire::ReplyKind::kOutput:
      if (header.op > 7 || header.op > body.size() || header.result < 0 || header.result > 1) return false;
      if (onOutput_) onOutput_(static_cast<wire::OutputStream>(header.result), body.first(body.size() - header.op));
      return true;
    case wire::ReplyKind::kEnd:
      endReason_.assign(reinterpret_cast<const char*>(body.data()), body.size());
      endReason_.resize(::strnlen(endReason_.c_str(), endReason_.size()));
      return false;
    case wire::ReplyKind::kLanding: {
      wire::Landing landing{};
      if (remote_ || body.size() < sizeof(landing)) return false;
      std::memcpy(&landing, body.data(), sizeof(landing));
      const auto data = body.subspan(sizeof(landing));
      if (landing.bytes > data.size() || wire::padded(landing.bytes) != data.size()) return false;
      if (landing.bytes && mayLand_ && mayLand_(landing.hostAddress, landing.bytes))
        std::memcpy(reinterpret_cast<std::byte*>(landing.hostAddress), data.data(), landing.bytes);
      if (landing.number && onLanded_) onLanded_(landing.number);
      return true;
    }
    case wire::ReplyKind::kLink:
      return acceptLinkWord(body);
    case wire::ReplyKind::kJournal:
      if (!remote_ || !canPark_ || header.op > 7 || header.op > body.size()) return false;
      if (header.request == 0) journal_.clear();
      journal_.insert(journal_.end(), body.begin(), body.end() - header.op);
      return journal_.size() <= wire::kMaxJournalBytes;
    case wire::ReplyKind::kData:
      return false;  // only a socket carries these
  }
  return false;
}

bool Session::acceptLinkWord(std::span<const std::byte> body) {
  wire::LinkWord word{};
  if (graceSeconds_ == 0 || body.size() != sizeof(word)) return false;
  std::memcpy(&word, body.data(), sizeof(word));
  const bool isPark = word.message == wire::LinkMessage::kPark && canPark_;
  if (word.message != wire::LinkMessage::kReceived && !isPark) return false;
  const uint64_t received = base_ + word.received;
  // It may be less than what the worker was told before it had anything of this stream.
  if (static_cast<int64_t>(received - peerReceived_.load(std::memory_order_relaxed)) > 0)
    peerReceived_.store(received, std::memory_order_release);
  if (isPark) {
    askedAt_.store(received, std::memory_order_relaxed);
    isAsked_.store(true, std::memory_order_release);
  }
  return true;
}

void Session::readOutAndLose(const std::string& reason) {
  std::lock_guard lock(readMutex_);
  while (!lost()) {
    const Pumped got = remote_ ? pumpSocket() : pumpRing();
    if (got != Pumped::kSome) lose(endReason_.empty() ? reason : endReason_);
  }
}

bool Session::peerGone() const {
  pollfd look{channel_.socket(), POLLRDHUP, 0};
  return ::poll(&look, 1, 0) == 1 && (look.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

void Session::lose(const std::string& reason) {
  if (lost_.exchange(true)) return;
  // Whoever reads or sends stops at once, and the worker sees that nobody is there any more.
  ::shutdown(channel_.socket(), SHUT_RDWR);
  if (onLost_) onLost_(reason);
  waiters_.finishAll(kSessionLost);
}

}  // namespace millpond
