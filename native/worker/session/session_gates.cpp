// SPDX-License-Identifier: Apache-2.0
#include "worker/session/session_gates.h"

#include <algorithm>

#include "protocol/futex.h"
#include "worker/session/lane_work.h"

namespace millpond::worker {
namespace {

/// An open batch is ended after this time without further work.
constexpr int64_t kQuietNs = 20'000;
/// Copies up to this size do not wait for a turn while their claim is within its share: a program that waits for each
/// of them would wait longer than the bus needs.
constexpr uint64_t kBriefBytes = uint64_t{64} << 10;

/// The kind of a command's work, for the gates.
enum class Passage {
  kWork,     ///< takes time of a lane
  kNothing,  ///< puts nothing into a stream that would make it wait
  kWait,     ///< the same, and the program waits for preceding work
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
    case cmd::Op::kCopyToDevice: return Passage::kWork;
    case cmd::Op::kCopyFromDevice:
      // Its pieces are admitted one by one.
      return Passage::kOther;
    default: return cmd::isWork(op) ? Passage::kWork : Passage::kOther;
  }
}

}  // namespace

Status SessionGates::open() {
  if (nodeGates_.areNone()) return Done{};
  for (const auto& device : devices_.all()) {
    for (const gate::Lane lane : gate::kLanes) {
      auto file = nodeGates_.take(device.share.uuid, lane);
      if (!file) {
        gates_.clear();
        return file.error();
      }
      auto session = gate::SessionGate::open(std::move(*file), accounts_.place().key(),
                                             gate::shareOf(lane, device.share.compute()), monotonicNs());
      if (!session) {
        gates_.clear();
        return session.error();
      }
      gates_.push_back(std::make_unique<gate::WorkGate>(lane, driver_, std::move(*session),
                                                        [this](uint16_t context) { return contexts_.use(context); }));
    }
  }
  const std::lock_guard lock(sharesMutex_);
  applyShares();
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

void SessionGates::applyShares() {
  for (size_t i = 0; i < shares_.size() && i < devices_.all().size(); ++i)
    for (const gate::Lane lane : gate::kLanes) gateOf(i, lane).session().setShare(gate::shareOf(lane, shares_[i]));
}

void SessionGates::setShares(std::vector<Share> shares) {
  const std::lock_guard lock(sharesMutex_);
  shares_ = std::move(shares);
  if (areOpen_) applyShares();
  link_.wake();
}

std::optional<SessionGates::GatedWork> SessionGates::gatedWork(const ServerLink::Frame& frame) {
  const auto op = static_cast<cmd::Op>(frame.header.op);
  const auto isHost = [this](wire::Address address) { return hostRuns_.contains(AddressGate::key(address), 1, false); };
  const auto found = laneWorkOf(op, frame.head(), isHost);
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
  return GatedWork{found->work, place, found->lane, &gateOf(contexts_.deviceOf(place.context), found->lane)};
}

bool SessionGates::admit(GatedWork& work, int64_t now) {
  work.isBrief = work.lane != gate::Lane::kCompute && work.work.size <= kBriefBytes && work.gate->session().isOn() &&
                 work.gate->admitBrief(work.work, now);
  return work.isBrief || work.gate->admit(work.work, now);
}

CUresult SessionGates::issue(const GatedWork& work, const std::function<CUresult()>& execute, int64_t now) {
  const gate::Place place{work.stream.handle, work.stream.context};
  const uint16_t before = contexts_.bound();
  for (const auto& each : gates_) {
    if (work.isBrief || (each.get() != work.gate && work.lane != gate::Lane::kCompute))
      each->endSpans();
    else if (each.get() != work.gate && each->lane() != gate::Lane::kCompute)
      each->endSpansBefore(place);
  }
  if (!work.isBrief) work.gate->before(place);
  if (before) contexts_.use(before);
  const CUresult result = execute();
  if (session_.hasEnded() || work.isBrief) return result;
  const uint16_t bound = contexts_.bound();
  work.gate->after(work.work, result == CUDA_SUCCESS, !captures_.empty(), now);
  lastWorkAt_ = now;
  if (bound) contexts_.use(bound);
  return result;
}

void SessionGates::chargeNow(const ServerLink::Frame& frame) {
  if (frame.header.op >= cmd::kOpLimit || passageOf(static_cast<cmd::Op>(frame.header.op)) != Passage::kWork) return;
  const uint16_t before = contexts_.bound();
  const auto work = gatedWork(frame);
  if (work && work->lane != gate::Lane::kCompute) work->gate->chargeNow(work->work, monotonicNs());
  if (before) contexts_.use(before);
}

bool SessionGates::take(const ServerLink::Frame& frame, const std::function<CUresult()>& execute) {
  const uint16_t before = contexts_.bound();
  const int64_t now = monotonicNs();
  const auto op = static_cast<cmd::Op>(frame.header.op);
  const Passage passage = frame.header.op < cmd::kOpLimit ? passageOf(op) : Passage::kOther;
  auto work = passage == Passage::kWork ? gatedWork(frame) : std::nullopt;
  if (work && !admit(*work, now)) {
    heldAt_ = work->gate;
    if (before) contexts_.use(before);
    return false;
  }
  if (work) {
    if (before) contexts_.use(before);
    issue(*work, execute, now);
    return true;
  }
  for (const auto& gate : gates_) {
    // No event may be recorded while streams are captured; the spans ended before.
    if (passage == Passage::kOther || (passage == Passage::kWork && captures_.empty())) gate->endSpans();
    // A waiting session may have no more work for a long time.
    if (passage == Passage::kWait || frame.header.request != 0) gate->close(now);
  }
  if (before) contexts_.use(before);
  execute();
  return true;
}

std::optional<CUresult> SessionGates::download(const Stream& stream, uint64_t bytes,
                                               const std::function<CUresult()>& execute) {
  if (!areOn_ || captures_.status(stream) != CU_STREAM_CAPTURE_STATUS_NONE) return execute();
  const uint16_t before = contexts_.bound();
  const int64_t now = monotonicNs();
  const auto lane = gate::Lane::kFromDevice;
  GatedWork work{copyWork(cmd::Op::kCopyFromDevice, bytes), stream, lane,
                 &gateOf(contexts_.deviceOf(stream.context), lane)};
  const bool isAdmitted = admit(work, now);
  if (before) contexts_.use(before);
  if (isAdmitted) return issue(work, execute, now);
  downloadsHeldAt_.insert(work.gate);
  return std::nullopt;
}

bool SessionGates::progress(bool isHeld) {
  if (!isHeld) heldAt_ = nullptr;
  // A session that has its devices to itself only pays for checking a few words.
  if (std::all_of(gates_.begin(), gates_.end(), [](const auto& gate) { return gate->isAtRest(); })) {
    areOn_ = false;
    downloadsHeldAt_.clear();
    return false;
  }
  const uint16_t before = contexts_.bound();
  const int64_t now = monotonicNs();
  bool some = false;
  areOn_ = false;
  for (const auto& gate : gates_) {
    if (gate->awaits() && now - lastWorkAt_ >= kQuietNs) gate->close(now);
    some = gate->progress(now, this->isHeld(*gate)) || some;
    areOn_ = areOn_ || gate->session().isOn();
  }
  downloadsHeldAt_.clear();
  for (size_t i = 0; i < devices_.all().size(); ++i) {
    const gate::SessionGate& session = gateOf(i, gate::Lane::kCompute).session();
    session_.counters().isMeasured[i].store(session.isOn(), std::memory_order_relaxed);
    session_.counters().computeUsedNs[i].store(static_cast<uint64_t>(session.usedNs()), std::memory_order_relaxed);
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
    if (isHeld(*gate)) nap = std::min(nap, std::max<int64_t>(gate->session().napNs(now), 1));
  }
  return nap == INT64_MAX ? 1 : nap;
}

}  // namespace millpond::worker
