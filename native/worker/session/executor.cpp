// SPDX-License-Identifier: Apache-2.0
// The loop: take commands, execute them, see what has finished meanwhile.
#include "worker/session/executor.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "base/sha256.h"
#include "base/size_text.h"
#include "worker/gen/dispatch.h"

namespace millpond::worker {
namespace {

/// Commands taken in a row before finished work is looked at.
constexpr int kBurst = 64;
/// Sleep of a worker with nothing to do; whatever it waits for wakes it.
constexpr int64_t kIdleSleepNs = 200'000'000;
/// Whoever waits for its turn looks so often at least.
constexpr int64_t kGateNapNs = 5'000'000;
/// More than the threads of a program that can wait at once.
constexpr size_t kMaxWaiting = 8192;
/// Of commands that wait for functions of the client: some pages, each of a thread that waits.
constexpr uint64_t kMaxWaitingBytes = uint64_t{8} << 20;
/// Pinned memory that a session with nothing to do keeps for its next copies.
constexpr uint64_t kSpareHostBytes = uint64_t{64} << 20;

/// While device work is awaited, polling it as the driver itself does is quickest, but only where cores are spare.
int64_t pollBudgetNs() { return std::thread::hardware_concurrency() >= 4 ? 20'000'000 : 30'000; }

/// Whether the driver may wait for the device inside of this command, and so for functions of the client, whose end only
/// the issuing thread hears of. A thread that such a function waits for may make any other call. Measured on an H200:
/// docs/decisions/0030.
bool mayWaitInside(cmd::Op op, std::span<const std::byte> head) {
  const auto handleOf = [head](size_t offset) {
    uint64_t wire = 0;
    if (head.size() >= offset + sizeof wire) std::memcpy(&wire, head.data() + offset, sizeof wire);
    return handle::kind(wire);
  };
  switch (op) {
    // A library and its kernels are put on the device at their first use: with GetFunction, see loadKernels.
    case cmd::Op::kModuleLoad:
      return handleOf(offsetof(cmd::ModuleLoad, handle)) == HandleKind::kModule;
    case cmd::Op::kGetFunction:
      return handleOf(offsetof(cmd::GetFunction, handle)) == HandleKind::kKernel;
    case cmd::Op::kContextCreate:
    case cmd::Op::kContextSetLimit:
    case cmd::Op::kCtxResetPersistingL2Cache:
    case cmd::Op::kFlushGPUDirectRDMAWrites:
    case cmd::Op::kGraphMemory:
    case cmd::Op::kGreenCreate:
    case cmd::Op::kPeerAccess:
      return true;
    default:
      return false;
  }
}

/// Whether what comes behind it in its stream may wait for what the program does next.
bool holdsStreams(cmd::Op op) {
  switch (op) {
    case cmd::Op::kHostFunction:
    case cmd::Op::kStreamBatchMemOpV2:
    case cmd::Op::kStreamWaitValue32V2:
    case cmd::Op::kStreamWaitValue64V2:
      return true;
    default:
      return false;
  }
}

/// Whether what kernels have printed is due with the answer.
bool waitsForDevice(cmd::Op op) {
  return op == cmd::Op::kStreamSync || op == cmd::Op::kEventSync || op == cmd::Op::kContextSync ||
         op == cmd::Op::kCopyFromDevice;
}

/// The other devices of the session that can reach the memory of this one.
std::vector<CUdevice> peersOf(const Driver& driver, const SessionDevices& devices, CUdevice device) {
  std::vector<CUdevice> peers;
  for (const auto& other : devices.all()) {
    int can = 0;
    if (other.device == device || std::find(peers.begin(), peers.end(), other.device) != peers.end()) continue;
    if (driver.cuDeviceCanAccessPeer && !driver.cuDeviceCanAccessPeer(&can, other.device, device) && can)
      peers.push_back(other.device);
  }
  return peers;
}

}  // namespace

uint64_t ClaimPlace::key() const {
  if (directory.empty()) {
    static std::atomic<uint32_t> last{0};
    return uint64_t{1} << 63 | uint64_t{static_cast<uint32_t>(::getpid())} << 32 | ++last;
  }
  const Sha256 hash = sha256(std::as_bytes(std::span(directory)));
  uint64_t out = 0;
  std::memcpy(&out, hash.data(), sizeof out);
  return (out & ~(uint64_t{1} << 63)) | 1;
}

Executor::Executor(const Driver& driver, SessionDevices& devices, ServerLink link, ImageCache* imageCache,
                   DeviceOutput* output, std::string gateDirectory, Sharing* sharing, Parking parking,
                   ClaimPlace claim)
    : driver_(driver),
      devices_(devices),
      link_(std::move(link)),
      output_(output),
      sharing_(sharing),
      claim_(std::move(claim)),
      virtualMemory_(driver, budgets_),
      sanitizer_(driver),
      callbacks_(std::make_shared<Callbacks>([this] { link_.wake(); })),
      imageCache_(imageCache),
      gateDirectory_(std::move(gateDirectory)),
      parking_(parking),
      eventTimes_(driver) {
  for (const auto& device : devices_.all()) {
    ClaimBudget& budget = budgets_.emplace_back(device.share.memoryBytes);
    const auto ordinal = static_cast<int32_t>(arenas_.size());
    arenas_.push_back(std::make_unique<MemoryArena>(driver_, device.device, budget,
                                                    peersOf(driver_, devices_, device.device), canShare(ordinal)));
    contexts_.push_back({static_cast<uint16_t>(contexts_.size()), device.context, true, false, {}});
    costs_.push_back(device.costs);
  }
  freed_.resize(devices_.all().size());
  link_.onLink([](const std::string& what) { log(LogLevel::Info, "%s", what.c_str()); });
}

Executor::End Executor::run() {
  ::prctl(PR_SET_NAME, "millpond-issue");
  ::prctl(PR_SET_TIMERSLACK, 1UL);
  // Captures forbid other calls to the program's threads, which the client sees to, not to this one.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (driver_.cuThreadExchangeStreamCaptureMode) driver_.cuThreadExchangeStreamCaptureMode(&mode);
  if (!useContext(1) || !registerTransfers()) return {"the driver refused to set the session up", false};
  if (auto entered = enterBudgets(); !entered) return {entered.error().message, false};
  if (auto open = openGates(); !open) return {open.error().message, false};

  const int64_t pollBudget = pollBudgetNs();
  AdaptiveSpin spin(pollBudget > 1'000'000 ? 200'000 : 50'000);
  int64_t lastProgress = monotonicNs();
  ServerLink::Frame frame;
  while (!ended_) {
    // After a client has gone nothing more is sent.
    const bool isLast = stopRequested_.load(std::memory_order_acquire);
    bool hasReadAll = false;
    bool busy = progressGates();
    busy = progressHeld() || busy;
    for (int i = 0; i < kBurst && !ended_; ++i) {
      const auto next = link_.next(frame);
      if (next == ServerLink::Next::kNothing) {
        hasReadAll = held_.empty();
        break;
      }
      if (next == ServerLink::Next::kGone) {
        ended_ = true;
        end_ = {link_.problem(), true};
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
      ended_ = true;
      if (end_.reason.empty()) end_ = stopEnd_;
    }
    if (busy || ended_ || stopRequested_.load(std::memory_order_relaxed)) {
      lastProgress = monotonicNs();
      if (isKept_) [[unlikely]]
        keepsIdle("");
      continue;
    }
    const bool awaits = !pending_.empty() || !downloads_.empty() || !holds_.empty() || !landings_.empty() || !readMemory_.empty() ||
                        !afterFrees_.empty() || callbacksExpected_ != 0 || !afterCallbacks_.empty() || awaitsGates();
    if (!awaits) {
      for (uint16_t c = 1; c <= freed_.size(); ++c) retire(c);
      if (parks(monotonicNs() - lastProgress)) continue;
      if (!spin.until([&] { return link_.ready() || stopRequested_.load(std::memory_order_relaxed); })) {
        trimSpareHostBuffers(kSpareHostBytes);
        endClientPages();
        const int64_t nap = parking_.afterNs ? std::min(kIdleSleepNs, parking_.afterNs) : kIdleSleepNs;
        link_.sleep(retired_.empty() && endings_.empty() && poolFrees_.empty() ? nap : 1'000'000);
        spin.slept();
      }
      continue;
    }
    const int64_t waited = monotonicNs() - lastProgress;
    if (const int64_t nap = gateNapNs(); nap > 0)
      link_.sleep(std::clamp<int64_t>(nap, 10'000, kGateNapNs));
    else if (waited < pollBudget)
      cpuRelax();
    else
      link_.sleep(std::clamp<int64_t>(waited / 64, 20'000, 1'000'000));
  }
  // Whatever could not be sent for it said so in its own words.
  if (link_.isBroken()) end_ = {"protocol violation: " + link_.problem(), false};
  callbacks_->close();
  closeGates();
  for (ClaimBudget& budget : budgets_) budget.rest();
  things_.rest();
  if (!end_.isParked && (!end_.ok || stopRequested_.load())) link_.end(end_.reason);
  return end_;
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
  readsOut_.store(sanitizer_.isThere(), std::memory_order_relaxed);
  stop("the client is gone", true);
}

Status Executor::enterBudgets() {
  const std::lock_guard lock(budgetsMutex_);
  if (claim_.directory.empty()) return Done{};
  for (size_t i = 0; i < budgets_.size(); ++i)
    if (auto entered = budgets_[i].enter(claim_.directory + "/" + devices_.all()[i].share.uuid, claim_.sizeRevision); !entered)
      return entered;
  return things_.enter(claim_.directory + "/things");
}

Status Executor::setMemoryLimits(std::span<const uint64_t> bytes, uint64_t revision) {
  const std::lock_guard lock(budgetsMutex_);
  if (bytes.size() != budgets_.size()) return Error{"the session has another number of devices"};
  claim_.sizeRevision = revision;
  std::vector<uint64_t> before;
  for (const ClaimBudget& budget : budgets_) before.push_back(budget.limitBytes());
  // Lower limits first: only these can be refused, and a limit that was lowered can always be raised again.
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] >= before[i] || budgets_[i].setLimit(bytes[i], revision)) continue;
    const uint64_t used = budgets_[i].usedBytes();
    for (size_t done = 0; done < i; ++done)
      if (bytes[done] < before[done]) budgets_[done].setLimit(before[done], revision);
    return Error{"its programs have " + sizeText(used, Rounding::kUp) + " in use on device " + std::to_string(i) +
                 ", more than the " + sizeText(bytes[i]) + " that were to be left"};
  }
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] >= before[i]) budgets_[i].setLimit(bytes[i], revision);
  return Done{};
}

CUresult Executor::execute(const ServerLink::Frame& frame) {
  ++position_;
  counters_.commands.store(position_, std::memory_order_relaxed);
  current_ = {frame.header.op, frame.header.context, frame.header.request, frame.header.thread};
  frameStart_ = frame.end - frame.header.bytes;
  frameEnd_ = frame.end;
  replyBody_.clear();
  stale_ = false;
  if (frame.header.op == 0 || frame.header.op >= cmd::kOpLimit) {
    return violation("there is no command " + std::to_string(frame.header.op));
  }
  if (current_.context != 0 && !isContext(current_.context)) {
    // Another thread of the program may just have destroyed it, or done so before the session was another one.
    if (parking_.isResumed || (current_.context <= contexts_.size() && contexts_[current_.context - 1u].used))
      answer(current_, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    else
      violation("the session has no context " + std::to_string(current_.context));
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (pending_.size() + downloads_.size() + afterFrees_.size() + callbackWaiters_.size() + landingWaiters_.size() +
          afterCallbacks_.size() > kMaxWaiting) {
    return violation("over " + std::to_string(kMaxWaiting) + " commands wait at once");
  }
  // A command that needs no context runs in whichever is bound.
  if (current_.context == 0) current_.context = boundContext_;
  // Memory that was freed before comes back without it, and whoever asks for that in the meantime need not wait for it.
  if (holdsStreams(static_cast<cmd::Op>(frame.header.op)))
    for (uint16_t c = 1; c <= freed_.size(); ++c) retire(c);
  if (!useContext(current_.context)) {
    answer(current_, CUDA_ERROR_INVALID_CONTEXT);
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const auto op = static_cast<cmd::Op>(frame.header.op);
  if (trace_ == cmd::Op{} && leavesTrace(op)) [[unlikely]]
    trace_ = op;
  if (callbacksExpected_ > 0 && current_.request != 0 && mayWaitInside(op, frame.head())) {
    // One thread of the program waits for it; the others, and the functions themselves, go on meanwhile.
    const uint64_t bytes = frame.body().size();
    if (bytes > kMaxWaitingBytes - std::min(kMaxWaitingBytes, afterCallbackBytes_))
      return violation("over " + std::to_string(kMaxWaitingBytes) + " bytes of commands wait for functions of the client");
    afterCallbackBytes_ += bytes;
    std::vector<std::byte> body(frame.body().begin(), frame.body().end());
    std::copy(frame.head().begin(), frame.head().end(), body.begin());
    afterCallbacks_.emplace_back(current_, [this, op, bytes, body = std::move(body)] {
      afterCallbackBytes_ -= bytes;
      return perform(op, body, body);
    });
    return kDeferred;
  }
  const CUresult result = perform(op, frame.head(), frame.body());
  if (result != kDeferred && !ended_) answer(current_, result);
  return result;
}

CUresult Executor::perform(cmd::Op op, std::span<const std::byte> head, std::span<const std::byte> body) {
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (captures_.empty() || admitCaptured(op, head)) [[likely]]
    result = dispatch(*this, op, head, body);
  if (parking_.afterNs && result == CUDA_SUCCESS && canRepeat(op)) note(op, body);
  if (result == CUDA_ERROR_INVALID_HANDLE && eventTimes_.any()) [[unlikely]]
    result = elapsed(op, body);
  return result;
}

bool Executor::useContext(uint16_t context) {
  if (context == boundContext_) return true;
  if (!isContext(context) || driver_.cuCtxSetCurrent(contexts_[context - 1u].handle) != CUDA_SUCCESS) return false;
  boundContext_ = context;
  return true;
}

void Executor::answer(const Request& request, CUresult result) {
  if (request.request == 0) {
    if (result != CUDA_SUCCESS) latch(request, result);
    return;
  }
  counters_.waits.fetch_add(1, std::memory_order_relaxed);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
    log(LogLevel::Debug, "%s is answered with %d", cmd::opName(static_cast<cmd::Op>(request.op)), static_cast<int>(result));
  // If the answer says that the device is done, the bytes must be there first.
  progressLandings();
  if (waitsForDevice(static_cast<cmd::Op>(request.op))) forwardOutput(request.context);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) forward(wire::OutputStream::kError);
  if (sizeof(wire::ReplyHeader) + wire::padded(replyBody_.size()) > wire::kMaxReplyBytes) {
    log(LogLevel::Warn, "the answer to %s has %zu bytes, and a reply at most %zu: it is refused",
        cmd::opName(static_cast<cmd::Op>(request.op)), replyBody_.size(), wire::kMaxReplyBytes);
    replyBody_.clear();
    result = CUDA_ERROR_NOT_SUPPORTED;
  }
  // Some answers, such as the compiler's log, come with a failure too.
  if (link_.reply(wire::ReplyKind::kResult, request.op, request.request, static_cast<int32_t>(result), replyBody_)) return;
  ended_ = true;
  end_ = {"the client takes no answers", true};
}

void Executor::forwardOutput(uint16_t context) {
  if (!output_ || context == 0 || counters_.launches.load(std::memory_order_relaxed) == 0) return;
  // The driver writes what kernels have printed when a stream is waited for; one without work is not waited for long.
  const uint16_t before = boundContext_;
  if (!useContext(context)) return;
  CUstream& quiet = contexts_[context - 1u].quiet;
  if (quiet || driver_.cuStreamCreate(&quiet, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
    driver_.cuStreamSynchronize(quiet);
  useContext(before);
  forward(wire::OutputStream::kOutput);
}

void Executor::forward(wire::OutputStream stream) {
  if (!output_) return;
  output_->collect(stream, [this, stream](std::span<const std::byte> text) {
    const auto padding = static_cast<uint16_t>(wire::padded(text.size()) - text.size());
    return link_.reply(wire::ReplyKind::kOutput, padding, 0, static_cast<int32_t>(stream), text);
  });
}

void Executor::latch(const Request& request, CUresult result) {
  log(LogLevel::Info, "%s (command %llu) failed with %d", cmd::opName(static_cast<cmd::Op>(request.op)),
      static_cast<unsigned long long>(position_), static_cast<int>(result));
  forward(wire::OutputStream::kError);
  auto& failure = link_.memory().control().failure;
  int32_t none = 0;
  // One failure is kept until the client has taken it: over shared memory it takes the word itself.
  const int32_t packed = wire::packFailure(static_cast<int32_t>(result), request.context);
  if (!failure.compare_exchange_strong(none, packed)) return;
  const wire::FailureReport report{position_, request.context, 0};
  if (!link_.reply(wire::ReplyKind::kFailure, request.op, 0, static_cast<int32_t>(result),
                   std::as_bytes(std::span(&report, 1)))) {
    ended_ = true;
    end_ = {"the client takes no answers", true};
  }
  if (link_.remote()) failure.store(0);
}

CUresult Executor::violation(const std::string& what) {
  if (std::exchange(stale_, false)) return CUDA_ERROR_INVALID_HANDLE;
  ended_ = true;
  end_ = {"protocol violation in command " + std::to_string(position_) + " (" +
              cmd::opName(static_cast<cmd::Op>(current_.op)) + "): " + what,
          false};
  return kDeferred;
}

// Handles

bool Executor::stream(uint64_t wire, CUstream& out) {
  if (wire == 0) {
    out = nullptr;
    return true;
  }
  if (!handle(HandleKind::kStream, wire, out)) return false;
  // A stream that the driver failed to make must not become the default stream.
  return out != nullptr || missing(wire);
}

bool Executor::stream(uint64_t wire, Stream& out) {
  if (!stream(wire, out.handle)) return false;
  out.context = wire ? handles_.find(HandleKind::kStream, wire)->context : boundContext_;
  return true;
}

bool Executor::functionOrKernel(uint64_t wire, CUfunction& out) {
  const HandleKind kind = handle::kind(wire) == HandleKind::kKernel ? HandleKind::kKernel : HandleKind::kFunction;
  const HandleMap::Entry* entry = handles_.find(kind, wire);
  if (!entry) return missing(wire);
  out = static_cast<CUfunction>(entry->object);
  if (kind == HandleKind::kFunction || !out) return true;
  // Launches take a kernel in place of a function, but the driver's questions about functions do not.
  auto& inContext = functions_[wire].inContext;
  if (inContext.size() <= boundContext_) inContext.resize(boundContext_ + size_t{1});
  CUfunction& function = inContext[boundContext_];
  if (!function) {
    CUfunction found = nullptr;
    if (driver_.cuKernelGetFunction(&found, static_cast<CUkernel>(entry->object)) != CUDA_SUCCESS)
      return true;  // the call with the kernel says what is wrong
    if (chargeLocal(HandleKind::kFunction, found) != CUDA_SUCCESS) {
      out = nullptr;
      return true;
    }
    function = found;
  }
  out = function;
  return true;
}

bool Executor::device(int32_t ordinal, CUdevice& out) {
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices_.all().size()) return false;
  out = devices_.all()[static_cast<size_t>(ordinal)].device;
  return true;
}

bool Executor::adopt(HandleKind kind, uint64_t wire, void* object) {
  const uint16_t context = kind == HandleKind::kStream ? current_.context : homeOf(current_.context);
  const bool isNew = handle::kind(wire) == kind && handles_.adopt(wire, object, context);
  if (!object || !isNew) count(kind);
  if (kind == HandleKind::kStream && object && isNew && context) ++contexts_[context - 1u].streams;
  return isNew;
}

bool Executor::drop(HandleKind kind, uint64_t wire) {
  if (kind == HandleKind::kEvent) {
    if (const HandleMap::Entry* entry = handles_.find(kind, wire); entry && entry->object)
      answerWaitersOf(static_cast<CUevent>(entry->object));
    if (sharing_) sharing_->remove(Sharing::Kind::kEvent, wire);
    eventTimes_.forget(wire);
  }
  if (const auto capture = captures_.find(wire); capture != captures_.end()) {
    // The driver gives the graph up with the stream.
    if (!capture->second.intoGraph) graphs_.dropGraph(capture->second.graph);
    captures_.erase(capture);
  }
  if (kind == HandleKind::kStream)
    if (const HandleMap::Entry* entry = handles_.find(kind, wire); entry && entry->object)
    {
      detachDownloads(static_cast<CUstream>(entry->object));
      if (entry->context) --contexts_[entry->context - 1u].streams;
    }
  const bool isThere = handles_.drop(kind, wire);
  count(kind);
  return isThere;
}

void Executor::answerWaitersOf(CUevent event) {
  for (auto p = pending_.begin(); p != pending_.end();) {
    if (p->userEvent == event) {
      answer(p->request, CUDA_SUCCESS);
      p = pending_.erase(p);
    } else {
      ++p;
    }
  }
}

// What has finished meanwhile

bool Executor::progress() {
  bool some = progressLent();
  some = progressPending() || some;
  some = progressDownloads() || some;
  some = progressLandings() || some;
  some = progressReadMemory() || some;
  some = progressCallbacks() || some;
  some = progressRetired() || some;
  some = progressEndings() || some;
  some = progressPoolFrees() || some;
  some = progressAfterFrees() || some;
  return some;
}

CUresult Executor::state(const std::vector<Mark>& marks) {
  for (const Mark& each : marks)
    if (CUresult rc = happened(each)) return rc;
  return CUDA_SUCCESS;
}

bool Executor::progressPending() {
  bool some = false;
  for (auto p = pending_.begin(); p != pending_.end();) {
    if (p->userEvent && p->request.context != boundContext_) useContext(p->request.context);
    CUresult rc = p->userEvent ? driver_.cuEventQuery(p->userEvent) : state(p->events);
    if (rc == CUDA_ERROR_NOT_READY) {
      ++p;
      continue;
    }
    giveBack(p->events);
    Pending done = std::move(*p);
    p = pending_.erase(p);
    replyBody_.clear();
    current_ = done.request;
    if (done.done) {
      rc = done.done(rc);
      p = pending_.begin();  // it may have answered others
    }
    if (rc != kDeferred) answer(done.request, rc);
    some = true;
  }
  return some;
}

void Executor::releaseRing() {
  while (!holds_.empty() && happened(holds_.front().mark) != CUDA_ERROR_NOT_READY) {
    giveBack(holds_.front().mark);
    holds_.pop_front();
  }
  const uint64_t read = held_.empty() ? link_.position() : held_.front().end - held_.front().header.bytes;
  link_.release(holds_.empty() ? read : std::min(read, holds_.front().start));
}

// Events of the pool

CUresult Executor::takeEvent(uint16_t context, Mark& mark) {
  context = homeOf(context);
  auto& pool = contexts_[context - 1u].pool;
  mark.context = context;
  if (!pool.empty()) {
    mark.event = pool.back();
    pool.pop_back();
    return CUDA_SUCCESS;
  }
  const uint16_t before = boundContext_;
  if (!useContext(context)) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult rc = driver_.cuEventCreate(&mark.event, CU_EVENT_DISABLE_TIMING);
  useContext(before);
  return rc;
}

void Executor::giveBack(const Mark& mark) {
  if (mark.event) contexts_[mark.context - 1u].pool.push_back(mark.event);
}

void Executor::giveBack(const std::vector<Mark>& marks) {
  for (const Mark& each : marks) giveBack(each);
}

CUresult Executor::mark(const Stream& stream, Mark& mark) {
  if (CUresult rc = takeEvent(stream.context, mark)) return rc;
  // The default stream is the current context's.
  const uint16_t before = boundContext_;
  if (!stream.handle) useContext(stream.context);
  const CUresult rc = driver_.cuEventRecord(mark.event, stream.handle);
  useContext(before);
  if (rc) giveBack(mark);
  return rc;
}

CUresult Executor::fence(uint16_t context, std::vector<Mark>& marks) {
  CUresult result = CUDA_SUCCESS;
  const auto add = [&](const Stream& stream) {
    // A stream that is being captured must not be asked; while one is, nor the default streams.
    if (result || (!captures_.empty() && (!stream.handle || captureStatus(stream) != CU_STREAM_CAPTURE_STATUS_NONE)))
      return;
    const CUresult now = driver_.cuStreamQuery(stream.handle);
    if (now == CUDA_SUCCESS) return;
    if (now != CUDA_ERROR_NOT_READY) {
      if (context != 0) result = now;
      return;
    }
    Mark place;
    const CUresult marked = mark(stream, place);
    if (marked && context == 0) return;
    result = marked;
    if (!result) marks.push_back(place);
  };
  const uint16_t before = boundContext_;
  for (uint16_t c = 1; c <= contexts_.size(); ++c)
    if ((context == 0 || context == c || context == homeOf(c)) && useContext(c)) add({nullptr, c});
  useContext(before);
  handles_.each(HandleKind::kStream, [&](const HandleMap::Entry& entry) {
    if (entry.object && (context == 0 || context == entry.context || context == homeOf(entry.context)))
      add({static_cast<CUstream>(entry.object), entry.context});
  });
  if (result) {
    giveBack(marks);
    marks.clear();
  }
  return result;
}

// Waiting commands

CUresult Executor::onMarker(const cmd::Decoded<cmd::Marker>&) { return CUDA_SUCCESS; }

CUresult Executor::onStreamSync(const cmd::Decoded<cmd::StreamSync>& command) {
  synchronisePools();
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  if (CUresult now = driver_.cuStreamQuery(s.handle); now != CUDA_ERROR_NOT_READY) return now;
  Mark place;
  if (CUresult rc = mark(s, place)) return rc;
  pending_.push_back({current_, {place}, nullptr, {}});
  return kDeferred;
}

CUresult Executor::onEventSync(const cmd::Decoded<cmd::EventSync>& command) {
  synchronisePools();
  CUevent event = nullptr;
  if (!handle(HandleKind::kEvent, command.fixed.event, event)) return violation("unknown event");
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult now = driver_.cuEventQuery(event); now != CUDA_ERROR_NOT_READY) return now;
  pending_.push_back({current_, {}, event, {}});
  return kDeferred;
}

CUresult Executor::onContextSync(const cmd::Decoded<cmd::ContextSync>&) {
  for (const auto& [origin, capture] : captures_) {
    Stream s;
    if (stream(origin, s) && s.context == current_.context) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  synchronisePools();
  std::vector<Mark> marks;
  if (CUresult rc = fence(current_.context, marks)) return rc;
  if (marks.empty()) return CUDA_SUCCESS;
  pending_.push_back({current_, std::move(marks), nullptr, {}});
  return kDeferred;
}

}  // namespace millpond::worker
