// SPDX-License-Identifier: Apache-2.0
#include "worker/session/session_gates.h"

#include <algorithm>
#include <cstring>

#include "protocol/futex.h"

namespace millpond::worker {
namespace {

/// An open batch is ended after this time without further work.
constexpr int64_t kQuietNs = 20'000;
/// Initial estimate for commands that move memory: 0.5 TB/s.
constexpr int64_t kBytesPerNs = 500;
constexpr int64_t kLeastGuessNs = 3'000;

/// The kind of a command's work, for the gate.
enum class Passage {
  kWork,     ///< takes GPU time
  kNothing,  ///< puts nothing into a stream that would make it wait
  kWait,     ///< same, and the program waits for preceding work
  kOther,
};

Passage passageOf(cmd::Op op) {
  switch (op) {
    case cmd::Op::kMarker:
    case cmd::Op::kMemAlloc:
    case cmd::Op::kMemFree:
    case cmd::Op::kPoolAlloc:
    case cmd::Op::kPoolFree:
    case cmd::Op::kEventCreate:
    case cmd::Op::kEventDestroyV2:
    case cmd::Op::kEventRecord:
    case cmd::Op::kEventRecordWithFlags:
    case cmd::Op::kStreamQuery:
    case cmd::Op::kEventQuery:
    case cmd::Op::kCallbackNext:
    case cmd::Op::kCallbackSources:
    case cmd::Op::kCallbackDone:
    case cmd::Op::kLandingAwait:
    case cmd::Op::kLandingsOver:
    case cmd::Op::kProfileRead:
    case cmd::Op::kProfileEnd: return Passage::kNothing;
    case cmd::Op::kStreamSync:
    case cmd::Op::kEventSync:
    case cmd::Op::kContextSync: return Passage::kWait;
    case cmd::Op::kCopyHostShared:
    case cmd::Op::kCopyFromDevice:
    case cmd::Op::kLandFromDevice:
    case cmd::Op::kCopyFromLanding:
      // They need no share of what computes.
      return Passage::kOther;
    default: return cmd::isWork(op) ? Passage::kWork : Passage::kOther;
  }
}

/// The fixed part of a command, which the client may be changing: only for estimates.
template <typename C>
C fixedOf(std::span<const std::byte> body) {
  C out{};
  std::memcpy(static_cast<void*>(&out), body.data(), std::min(body.size(), sizeof(out)));
  return out;
}

uint64_t mixed(std::initializer_list<uint64_t> values) {
  uint64_t out = 0;
  for (const uint64_t value : values) out = (out ^ value) * 0x9e3779b97f4a7c15 + (out >> 29);
  return out;
}

struct StreamWork {
  gate::Work work;
  uint64_t stream = 0;
};

StreamWork launchWork(const cmd::Launch& launch) {
  const uint64_t grid = uint64_t{launch.gridX} * launch.gridY * launch.gridZ;
  const uint64_t shape = mixed({launch.gridX, launch.gridY, launch.gridZ, launch.blockX, launch.blockY, launch.blockZ,
                                launch.sharedBytes, launch.flags});
  return {{launch.function, shape, std::max<uint64_t>(grid, 1), {}}, launch.stream};
}

template <typename C>
StreamWork memoryWork(std::span<const std::byte> body) {
  const C command = fixedOf<C>(body);
  uint64_t bytes = 0;
  if constexpr (requires { command.ByteCount; })
    bytes = command.ByteCount;
  else if constexpr (requires { command.Height; })
    bytes = command.Width * command.Height;
  else
    bytes = command.N;
  constexpr size_t element = requires { command.ui; }
  ? 4 : requires { command.us; }
  ? 2 : 1;
  bytes *= element;
  const auto guess = static_cast<int64_t>(std::min(bytes, uint64_t{1} << 50)) / kBytesPerNs;
  StreamWork out{{static_cast<uint64_t>(C::kOp), bytes, std::max<uint64_t>(bytes, 1), std::max(guess, kLeastGuessNs)},
                 0};
  if constexpr (requires { command.hStream; })
    out.stream = command.hStream;
  else
    out.stream = command.stream;
  return out;
}

uint64_t product(uint64_t a, uint64_t b) {
  uint64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? UINT64_MAX : out;
}

StreamWork boxWork(const cmd::CopyBox& box) {
  const uint64_t bytes = product(product(box.width, box.height), box.depth);
  const auto guess = static_cast<int64_t>(std::min(bytes, uint64_t{1} << 50)) / kBytesPerNs;
  return {
      {static_cast<uint64_t>(cmd::CopyBox::kOp), bytes, std::max<uint64_t>(bytes, 1), std::max(guess, kLeastGuessNs)},
      box.stream};
}

std::optional<StreamWork> workOf(cmd::Op op, std::span<const std::byte> body) {
  switch (op) {
    case cmd::Op::kCopyBox: return boxWork(fixedOf<cmd::CopyBox>(body));
    case cmd::Op::kLaunch: return launchWork(fixedOf<cmd::Launch>(body));
    case cmd::Op::kGraphLaunch: {
      const auto launch = fixedOf<cmd::GraphLaunch>(body);
      return StreamWork{{launch.exec, static_cast<uint64_t>(op), 1, {}}, launch.stream};
    }
    case cmd::Op::kMemcpyDtoDV2: return memoryWork<cmd::MemcpyDtoDV2>(body);
    case cmd::Op::kMemcpyDtoDAsyncV2: return memoryWork<cmd::MemcpyDtoDAsyncV2>(body);
    case cmd::Op::kMemsetD8V2: return memoryWork<cmd::MemsetD8V2>(body);
    case cmd::Op::kMemsetD16V2: return memoryWork<cmd::MemsetD16V2>(body);
    case cmd::Op::kMemsetD32V2: return memoryWork<cmd::MemsetD32V2>(body);
    case cmd::Op::kMemsetD2D8V2: return memoryWork<cmd::MemsetD2D8V2>(body);
    case cmd::Op::kMemsetD2D16V2: return memoryWork<cmd::MemsetD2D16V2>(body);
    case cmd::Op::kMemsetD2D32V2: return memoryWork<cmd::MemsetD2D32V2>(body);
    case cmd::Op::kMemsetD8Async: return memoryWork<cmd::MemsetD8Async>(body);
    case cmd::Op::kMemsetD16Async: return memoryWork<cmd::MemsetD16Async>(body);
    case cmd::Op::kMemsetD32Async: return memoryWork<cmd::MemsetD32Async>(body);
    case cmd::Op::kMemsetD2D8Async: return memoryWork<cmd::MemsetD2D8Async>(body);
    case cmd::Op::kMemsetD2D16Async: return memoryWork<cmd::MemsetD2D16Async>(body);
    case cmd::Op::kMemsetD2D32Async: return memoryWork<cmd::MemsetD2D32Async>(body);
    default: return std::nullopt;
  }
}

}  // namespace

Status SessionGates::open() {
  if (nodeGates_.areNone()) return Done{};
  for (const auto& device : devices_.all()) {
    auto file = nodeGates_.take(device.share.uuid);
    if (!file) {
      gates_.clear();
      return file.error();
    }
    auto session =
        gate::SessionGate::open(std::move(*file), accounts_.place().key(), device.share.compute(), monotonicNs());
    if (!session) {
      gates_.clear();
      return session.error();
    }
    gates_.push_back(std::make_unique<gate::ComputeGate>(driver_, std::move(*session),
                                                         [this](uint16_t context) { return contexts_.use(context); }));
  }
  const std::lock_guard lock(sharesMutex_);
  for (size_t i = 0; i < shares_.size(); ++i) gates_[i]->session().setShare(shares_[i]);
  areOpen_ = true;
  return Done{};
}

void SessionGates::close() {
  {
    const std::lock_guard lock(sharesMutex_);
    areOpen_ = false;
  }
  for (const auto& gate : gates_) {
    // Finished work is measured, and the rest is charged for its progress.
    gate->progress(monotonicNs(), false);
    gate->abandon(monotonicNs());
  }
  gates_.clear();
}

void SessionGates::setShares(std::vector<Share> shares) {
  const std::lock_guard lock(sharesMutex_);
  shares_ = std::move(shares);
  if (areOpen_)
    for (size_t i = 0; i < shares_.size() && i < gates_.size(); ++i) gates_[i]->session().setShare(shares_[i]);
  link_.wake();
}

bool SessionGates::isHostCopy(const cmd::CopyBox& box) {
  const auto isHost = [this](wire::Address address) { return hostRuns_.contains(AddressGate::key(address), 1, false); };
  return (!box.srcArray && isHost(box.srcAddress)) || (!box.dstArray && isHost(box.dstAddress));
}

std::optional<SessionGates::GatedWork> SessionGates::gatedWork(const ServerLink::Frame& frame) {
  const auto op = static_cast<cmd::Op>(frame.header.op);
  const auto found = workOf(op, frame.head());
  const uint16_t context = frame.header.context ? frame.header.context : contexts_.bound();
  if (!found || !context || !contexts_.isThere(context)) return std::nullopt;
  Stream place{nullptr, context, 0};
  if (found->stream) {
    const HandleMap::Entry* entry = handles_.find(HandleKind::kStream, found->stream);
    if (!entry || !entry->object || !contexts_.isThere(entry->context)) return std::nullopt;
    place = {static_cast<CUstream>(entry->object), entry->context};
  }
  // Captured commands are not work yet, and no event may be recorded there.
  if (captures_.status(place) != CU_STREAM_CAPTURE_STATUS_NONE) return std::nullopt;
  return GatedWork{found->work, place, gates_[contexts_.deviceOf(place.context)].get()};
}

bool SessionGates::take(const ServerLink::Frame& frame, const std::function<CUresult()>& execute) {
  const uint16_t before = contexts_.bound();
  const auto restore = [&] {
    if (before) contexts_.use(before);
  };
  const int64_t now = monotonicNs();
  const auto op = static_cast<cmd::Op>(frame.header.op);
  Passage passage = frame.header.op < cmd::kOpLimit ? passageOf(op) : Passage::kOther;
  if (op == cmd::Op::kCopyBox && isHostCopy(fixedOf<cmd::CopyBox>(frame.head()))) passage = Passage::kOther;
  const auto work = passage == Passage::kWork ? gatedWork(frame) : std::nullopt;
  if (!work) {
    for (const auto& gate : gates_) {
      if (passage == Passage::kOther) gate->endSpans();
      // A waiting session may have no more work for a long time.
      if (passage == Passage::kWait || frame.header.request != 0) gate->close(now);
    }
    restore();
    execute();
    return true;
  }
  if (!work->gate->admit(work->work, now)) {
    heldAt_ = work->gate;
    restore();
    return false;
  }
  work->gate->before({work->stream.handle, work->stream.context});
  restore();
  const CUresult result = execute();
  if (session_.hasEnded()) return true;
  const uint16_t bound = contexts_.bound();
  work->gate->after(work->work, result == CUDA_SUCCESS, !captures_.empty(), now);
  lastWorkAt_ = now;
  if (bound) contexts_.use(bound);
  return true;
}

bool SessionGates::progress(bool isHeld) {
  // A session that has its devices to itself only pays for checking a few words.
  if (std::all_of(gates_.begin(), gates_.end(), [](const auto& gate) { return gate->isAtRest(); })) {
    areOn_ = false;
    return false;
  }
  const uint16_t before = contexts_.bound();
  const int64_t now = monotonicNs();
  bool some = false;
  areOn_ = false;
  for (size_t i = 0; i < gates_.size(); ++i) {
    gate::ComputeGate& gate = *gates_[i];
    if (gate.awaits() && now - lastWorkAt_ >= kQuietNs) gate.close(now);
    some = gate.progress(now, isHeld && heldAt_ == &gate) || some;
    const bool isOn = gate.session().isOn();
    areOn_ = areOn_ || isOn;
    session_.counters().isMeasured[i].store(isOn, std::memory_order_relaxed);
    session_.counters().computeUsedNs[i].store(static_cast<uint64_t>(gate.session().usedNs()),
                                               std::memory_order_relaxed);
  }
  if (before) contexts_.use(before);
  return some;
}

bool SessionGates::awaits() const {
  return std::any_of(gates_.begin(), gates_.end(), [](const auto& gate) { return gate->awaits(); });
}

int64_t SessionGates::napNs() const {
  int64_t nap = INT64_MAX;
  const int64_t now = monotonicNs();
  for (const auto& gate : gates_) {
    if (gate->awaits()) return 0;
    nap = std::min(nap, std::max<int64_t>(gate->session().napNs(now), 1));
  }
  return nap;
}

}  // namespace millpond::worker
