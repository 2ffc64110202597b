// SPDX-License-Identifier: Apache-2.0
// The loop: takes commands, executes them, and checks for completed work.
#include "worker/session/executor.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "base/log.h"
#include "base/size_text.h"
#include "protocol/usable_cpus.h"
#include "protocol/word_waits.h"
#include "worker/session/gen/dispatch.h"

namespace millpond::worker {
namespace {

/// Maximum number of consecutive commands before completed work is checked.
constexpr int kBurst = 64;
/// Sleep of an idle worker; every event that it waits for wakes it.
constexpr int64_t kIdleSleepNs = 200'000'000;
/// A worker that waits for its time slice checks at least this often.
constexpr int64_t kGateNapNs = 5'000'000;
/// More than the threads of a program that can wait at once.
constexpr size_t kMaxWaiting = 8192;
/// The most bytes of commands that wait for functions of the client: some pages, each of a thread that waits.
constexpr uint64_t kMaxWaitingBytes = uint64_t{8} << 20;
/// Pinned memory that a session with nothing to do keeps for its next copies.
constexpr uint64_t kSpareHostBytes = uint64_t{64} << 20;
/// Until then it keeps all of it: pinning a page takes the driver tens of microseconds, and programs pause between copies.
constexpr int64_t kSpareNs = 2'000'000'000;

/// While device work is awaited, polling it as the driver itself does is fastest, but only if processors are spare.
int64_t pollBudgetNs() { return usableCpus() >= 4 ? 20'000'000 : 30'000; }

/// Whether the driver may wait for the device in this command, and therefore for functions of the client, whose return
/// only the issuing thread receives. A thread for which such a function waits may make any other call. Measured on an
/// H200: docs/decisions/0030.
bool mayWaitInside(cmd::Op op, std::span<const std::byte> head) {
  const auto handleOf = [head](size_t offset) {
    uint64_t wire = 0;
    if (head.size() >= offset + sizeof wire) std::memcpy(&wire, head.data() + offset, sizeof wire);
    return handle::kind(wire);
  };
  switch (op) {
    // A library and its kernels are loaded onto the device at their first use: with GetFunction, see Functions::load.
    case cmd::Op::kModuleLoad: return handleOf(offsetof(cmd::ModuleLoad, handle)) == HandleKind::kModule;
    case cmd::Op::kGetFunction: return handleOf(offsetof(cmd::GetFunction, handle)) == HandleKind::kKernel;
    case cmd::Op::kContextCreate:
    case cmd::Op::kContextSetLimit:
    case cmd::Op::kCtxResetPersistingL2Cache:
    case cmd::Op::kFlushGPUDirectRDMAWrites:
    case cmd::Op::kGraphMemory:
    case cmd::Op::kGreenCreate:
    case cmd::Op::kPeerAccess: return true;
    default: return false;
  }
}

/// The stream in which a client sends bytes of mirrored memory, for the commands that it uses for that.
std::optional<uint64_t> streamOf(const ServerLink::Frame& frame) {
  const std::span<const std::byte> head = frame.head();
  const auto at = [&](size_t offset) {
    uint64_t stream = 0;
    if (head.size() >= offset + sizeof stream) std::memcpy(&stream, head.data() + offset, sizeof stream);
    return stream;
  };
  switch (static_cast<cmd::Op>(frame.header.op)) {
    case cmd::Op::kCopyToDevice: return at(offsetof(cmd::CopyToDevice, stream));
    case cmd::Op::kCopyFromDevice: return at(offsetof(cmd::CopyFromDevice, stream));
    case cmd::Op::kMemsetD8Async: return at(offsetof(cmd::MemsetD8Async, hStream));
    case cmd::Op::kStreamCreate: return at(offsetof(cmd::StreamCreate, phStream));
    case cmd::Op::kStreamSync: return at(offsetof(cmd::StreamSync, stream));
    default: return std::nullopt;
  }
}

/// Whether later work in its stream may wait for the program's next calls.
bool holdsStreams(cmd::Op op) { return op == cmd::Op::kHostFunction || cmd::isWaitForWord(op); }

/// The stream of a command that may make the stream wait for a word that the program writes later.
std::optional<uint64_t> streamThatWaits(cmd::Op op, std::span<const std::byte> head) {
  static_assert(offsetof(cmd::StreamWaitValue32V2, stream) == 0 && offsetof(cmd::StreamWaitValue64V2, stream) == 0 &&
                offsetof(cmd::StreamBatchMemOpV2, stream) == 0);
  uint64_t stream = 0;
  if (!cmd::isWaitForWord(op) || head.size() < sizeof stream) return std::nullopt;
  std::memcpy(&stream, head.data(), sizeof stream);
  return stream;
}

/// Ends the current command's use of its frame, however its execution ends.
class FrameEnd {
 public:
  explicit FrameEnd(SessionCore& session) : session_(session) {}
  ~FrameEnd() { session_.endFrame(); }
  FrameEnd(const FrameEnd&) = delete;
  FrameEnd& operator=(const FrameEnd&) = delete;

 private:
  SessionCore& session_;
};

}  // namespace

Executor::Executor(const Driver& driver, SessionDevices& devices, ClaimAccounts& accounts, ServerLink link,
                   ImageCache* imageCache, DeviceOutput* output, gate::Gates gates, Sharing* sharing, Parking parking)
    : SessionOwner(driver, devices, std::move(link), output, parking.isResumed),
      SessionPart(owned_),
      sharing_(sharing),
      counts_(session_, accounts.things()),
      budgets_(session_, accounts.budgets()),
      memory_(session_, budgets_, sharing),
      virtualMemory_(driver, budgets_.all()),
      parking_(session_, parking, budgets_, charges_, memory_, hostRuns_, journal_, eventTimes_,
               [this] { return whyKept(); }),
      images_(session_, counts_, imageCache),
      virtualMemoryCommands_(session_, budgets_, memory_, frees_, virtualMemory_, sharing),
      gates_(session_, accounts, hostRuns_, std::move(gates)) {
  link_.keepWithin([this](size_t bytes) { return keptReplies_.set(bytes); });
  link_.receiveLanesInto([this](size_t bytes) {
    std::shared_ptr<const HostBuffer> buffer;
    if (buffers_.take(bytes, buffer)) return std::shared_ptr<std::byte>();
    return std::shared_ptr<std::byte>(buffer, buffer->memory);
  });
  downloads_.issueThrough([this](const Stream& stream, uint64_t bytes, const std::function<CUresult()>& execute) {
    return gates_.download(stream, bytes, execute);
  });
  session_.beforeAnswers([this] { landings_.progress(); });
  objects_.onEventEnd([this](uint64_t wire) {
    if (sharing_) sharing_->remove(Sharing::Kind::kEvent, wire);
    eventTimes_.forget(wire);
  });
  objects_.onStreamEnd([this](uint64_t wire, CUstream stream) {
    captureCommands_.endStream(wire);
    if (stream) downloads_.detach(stream);
  });
}

Executor::End Executor::run() {
  ::prctl(PR_SET_NAME, "millpond-issue");
  ::prctl(PR_SET_TIMERSLACK, 1UL);
  // Captures forbid other calls to the program's threads, which the client enforces, not to this one.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (driver_.cuThreadExchangeStreamCaptureMode) driver_.cuThreadExchangeStreamCaptureMode(&mode);
  if (!contexts_.use(1) || !registerTransfers()) return {"the driver refused to set the session up", false};
  if (auto open = gates_.open(); !open) return {open.error().message, false};

  link_.collectReplies();
  const int64_t pollBudget = pollBudgetNs();
  AdaptiveSpin spin(pollBudget > 1'000'000 ? 200'000 : 50'000);
  int64_t lastProgress = monotonicNs();
  ServerLink::Frame frame;
  while (!session_.hasEnded()) {
    // After a client has gone, nothing more is sent.
    const bool isLast = stopRequested_.load(std::memory_order_acquire);
    bool hasReadAll = false;
    bool busy = gates_.progress(!held_.empty() && !uploads_.isAwaited());
    busy = progressHeld() || busy;
    for (int i = 0; i < kBurst && !session_.hasEnded(); ++i) {
      const auto next = link_.next(frame);
      if (next == ServerLink::Next::kNothing) {
        hasReadAll = held_.empty();
        break;
      }
      if (next == ServerLink::Next::kGone) {
        session_.end({link_.problem(), true});
      } else if (next == ServerLink::Next::kBroken) {
        violation(link_.problem());
      } else {
        if (held_.empty() ? !take(frame) : !overtakes(frame)) held_.push_back(frame);
        busy = true;
      }
    }
    if (progress()) busy = true;
    releaseRing();
    if (isLast && (hasReadAll || !readsOut_.load(std::memory_order_relaxed))) {
      std::lock_guard lock(stopMutex_);
      session_.end(session_.howItEnded().reason.empty() ? stopEnd_ : session_.howItEnded());
    }
    if (busy || session_.hasEnded() || stopRequested_.load(std::memory_order_relaxed)) {
      lastProgress = monotonicNs();
      parking_.isBusy();
      continue;
    }
    const bool awaits = !waits_.empty() || !downloads_.empty() || !uploads_.empty() || !landings_.empty() ||
                        !reads_.empty() || !hostCopies_.empty() || frees_.waiting() != 0 || order_.expected() != 0 ||
                        order_.waiting() != 0 || !held_.empty() || gates_.awaits();
    if (!awaits) {
      frees_.retire();
      if (parking_.parks(monotonicNs() - lastProgress)) continue;
      if (!spin.until([&] { return link_.ready() || stopRequested_.load(std::memory_order_relaxed); })) {
        buffers_.shrink(monotonicNs() - lastProgress > kSpareNs ? kSpareHostBytes : UINT64_MAX);
        images_.rest();
        const int64_t nap = parking_.afterNs() ? std::min(kIdleSleepNs, parking_.afterNs()) : kIdleSleepNs;
        link_.sleep(frees_.isQuiet() ? nap : 1'000'000);
        spin.slept();
      }
      continue;
    }
    const int64_t waited = monotonicNs() - lastProgress;
    const bool waitsAtGate = (!held_.empty() && !uploads_.isAwaited()) || gates_.holdsDownload();
    if (const int64_t nap = waitsAtGate ? gates_.napNs() : 0; nap > 0)
      link_.sleep(std::clamp<int64_t>(nap, 10'000, kGateNapNs));
    else if (waited < pollBudget)
      cpuRelax();
    else
      link_.sleep(std::clamp<int64_t>(waited / 64, 20'000, 1'000'000));
  }
  // A failure to send has already been reported.
  if (link_.isBroken()) session_.end({"protocol violation: " + link_.problem(), false});
  hostFunctions_.close();
  hostCopies_.close();
  gates_.close();
  const End end = session_.howItEnded();
  if (!end.isParked && (!end.ok || stopRequested_.load())) link_.end(end.reason);
  link_.endLanes();
  return end;
}

void Executor::stop(const std::string& reason, bool ok) {
  {
    std::lock_guard lock(stopMutex_);
    if (stopRequested_.load()) return;
    stopEnd_ = {reason, ok};
  }
  stopRequested_.store(true, std::memory_order_release);
  link_.giveUp();
}

void Executor::clientGone() {
  readsOut_.store(session_.sanitizer().isThere(), std::memory_order_relaxed);
  stop("the client is gone", true);
}

bool Executor::registerTransfers() {
  const auto pinRun = [&](std::span<std::byte> run) {
    return pinned_.pin(run.data(), run.size(), CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  };
  return pinRun(link_.memory().submitRun()) && pinRun(link_.memory().stagingRun());
}

bool Executor::take(const ServerLink::Frame& frame) {
  if (uploads_.isAwaited()) return false;
  if (gates_.areOn()) return gates_.take(frame, [&] { return execute(frame); });
  execute(frame);
  return true;
}

bool Executor::overtakes(const ServerLink::Frame& frame) {
  switch (static_cast<cmd::Op>(frame.header.op)) {
    case cmd::Op::kCallbackNext: break;
    // The bytes of mirrored memory that the function has used, in a stream of the client: charged, because they cannot
    // wait.
    case cmd::Op::kCopyToDevice:
    case cmd::Op::kCopyFromDevice:
    case cmd::Op::kStreamSync:
    case cmd::Op::kCallbackSources:
    case cmd::Op::kGraphSource:
    case cmd::Op::kCallbackDone:
      if (hostFunctions_.isRunner(frame.header.thread)) break;
      return false;
    default: return false;
  }
  // After the thread's own commands.
  const auto isOwn = [&](const ServerLink::Frame& each) { return each.header.thread == frame.header.thread; };
  if (std::any_of(held_.begin(), held_.end(), isOwn)) return false;
  const uint16_t before = contexts_.bound();
  const bool isDone = performPushes(streamOf(frame)) && !session_.hasEnded();
  if (isDone) executeCharged(frame);
  if (before && !session_.hasEnded()) contexts_.use(before);
  return isDone || session_.hasEnded();
}

bool Executor::performPushes(std::optional<uint64_t> stream) {
  if (!stream) return true;
  for (auto held = held_.begin(); held != held_.end() && !session_.hasEnded();) {
    const auto op = static_cast<cmd::Op>(held->header.op);
    const bool isOfStream = streamOf(*held) == stream;
    // That one takes GPU time.
    if (isOfStream && op == cmd::Op::kMemsetD8Async) return false;
    const bool isPush =
        op == cmd::Op::kHostContents || (isOfStream && (op == cmd::Op::kCopyToDevice || op == cmd::Op::kStreamCreate));
    if (!isPush) {
      ++held;
      continue;
    }
    const ServerLink::Frame push = *held;
    held = held_.erase(held);
    executeCharged(push);
  }
  return true;
}

void Executor::executeCharged(const ServerLink::Frame& frame) {
  if (gates_.areOn()) gates_.chargeNow(frame);
  execute(frame);
}

bool Executor::progressHeld() {
  bool some = false;
  while (!held_.empty() && !session_.hasEnded() && take(held_.front())) {
    held_.pop_front();
    some = true;
  }
  return some;
}

CUresult Executor::execute(const ServerLink::Frame& frame) {
  session_.begin({frame.header.op, frame.header.context, frame.header.request, frame.header.thread}, frame.begin,
                 frame.keeper);
  const FrameEnd end(session_);
  if (frame.header.op == 0 || frame.header.op >= cmd::kOpLimit) {
    return violation("there is no command " + std::to_string(frame.header.op));
  }
  if (session_.current().context != 0 && !contexts_.isThere(session_.current().context)) {
    // Another thread of the program may have destroyed it just now, or before the session was resumed.
    if (session_.isResumed() ||
        (session_.current().context <= contexts_.size() && contexts_.at(session_.current().context).used))
      session_.answer(session_.current(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    else
      violation("the session has no context " + std::to_string(session_.current().context));
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (waits_.size() + downloads_.size() + frees_.waiting() + hostFunctions_.waiting() + landings_.waiting() +
          order_.waiting() >
      kMaxWaiting) {
    return violation("over " + std::to_string(kMaxWaiting) + " commands wait at once");
  }
  // A command that needs no context runs in the bound one.
  if (session_.current().context == 0) session_.current().context = contexts_.bound();
  // Freed memory becomes available without it, so an allocation in the meantime need not wait for it.
  if (holdsStreams(static_cast<cmd::Op>(frame.header.op))) frees_.retire();
  if (!contexts_.use(session_.current().context)) {
    session_.answer(session_.current(), CUDA_ERROR_INVALID_CONTEXT);
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const auto op = static_cast<cmd::Op>(frame.header.op);
  if (journal_.trace() == cmd::Op{} && leavesTrace(op)) [[unlikely]]
    journal_.leaveTrace(op);
  if (order_.expected() > 0 && session_.current().request != 0 && mayWaitInside(op, frame.head())) {
    // One thread of the program waits for it; the others, and the functions themselves, continue meanwhile.
    const uint64_t bytes = frame.body().size();
    if (bytes > kMaxWaitingBytes - std::min(kMaxWaitingBytes, afterCallbackBytes_))
      return violation("over " + std::to_string(kMaxWaitingBytes) +
                       " bytes of commands wait for functions of the client");
    afterCallbackBytes_ += bytes;
    std::vector<std::byte> body(frame.body().begin(), frame.body().end());
    std::copy(frame.head().begin(), frame.head().end(), body.begin());
    return order_.runLater(session_.current(), [this, op, bytes, body = std::move(body)] {
      afterCallbackBytes_ -= bytes;
      return perform(op, body, body);
    });
  }
  std::optional<Profiler::Command> noted;
  if (profiles_.notesCommands()) [[unlikely]]
    noted.emplace(frame.header.thread, frame.start);
  const CUresult result = perform(op, frame.head(), frame.body());
  noted.reset();
  if (result != kDeferred && !session_.hasEnded()) session_.answer(session_.current(), result);
  return result;
}

CUresult Executor::perform(cmd::Op op, std::span<const std::byte> head, std::span<const std::byte> body) {
  const bool isWithin = op == cmd::Op::kMemcpyDtoDV2 || op == cmd::Op::kMemcpyDtoDAsyncV2;
  if (isWithin && captures_.empty())
    if (const auto result = hostCopies_.within(head)) return *result;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (captures_.empty() || nodeCount_.admitCaptured(op, head, body.size())) [[likely]] {
    const auto recorded = isWithin && !captures_.empty() ? hostCopies_.recorded(head) : std::nullopt;
    result = recorded ? *recorded : dispatch(parts_, op, head, body);
  }
  if (result == CUDA_SUCCESS)
    if (const auto wire = streamThatWaits(op, head)) [[unlikely]]
      expectWord(*wire);
  if (parking_.afterNs() && result == CUDA_SUCCESS && canRepeat(op)) parking_.note(op, body);
  if (result == CUDA_ERROR_INVALID_HANDLE && eventTimes_.any()) [[unlikely]]
    result = parking_.elapsed(op, body);
  return result;
}

void Executor::expectWord(uint64_t wire) {
  const HandleMap::Entry* entry = wire ? handles_.find(HandleKind::kStream, wire) : nullptr;
  if (wire && !entry) return;
  const Stream stream = entry ? Stream{static_cast<CUstream>(entry->object), entry->context, wire}
                              : Stream{nullptr, contexts_.bound(), 0};
  if (captures_.status(stream) == CU_STREAM_CAPTURE_STATUS_NONE)
    order_.expectWord(stream);
  else
    order_.expectWordsOfGraphs();
}

void Executor::forgetContext(uint16_t number) {
  order_.forgetContext(number);
  session_.synchronousCopies().forgetContext(number);
  hostCopies_.forgetContext(number);
  frees_.forgetContext(number);
  textures_.forgetContext(number);
  uploads_.forgetContext(number);
  landings_.forgetContext(number);
  reads_.forgetContext(number);
  downloads_.forgetContext(number);
  gates_.forgetContext(number);
  journal_.forgetSettings(number);
  eventTimes_.forgetContext(number);
  functions_.forgetContext(number);
}

bool Executor::progress() {
  bool some = lentReplies_.progress();
  some = hostCopies_.progress() || some;
  some = waits_.progress() || some;
  some = downloads_.progress() || some;
  some = landings_.progress() || some;
  some = reads_.progress() || some;
  some = hostFunctions_.progress() || some;
  some = frees_.progress() || some;
  return some;
}

void Executor::releaseRing() {
  uploads_.progress();
  const uint64_t read = held_.empty() ? link_.position() : held_.front().begin;
  link_.release(uploads_.doneUpTo(read));
}

}  // namespace millpond::worker
