// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/parking/session_parking.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace millpond::worker {

void SessionParking::note(cmd::Op op, std::span<const std::byte> body) {
  journal_.note(op, session_.current().context, body);
  if (journal_.isLong()) journal_.prune([this](const Subject& subject) { return isThere(subject); });
}

bool SessionParking::isThere(const Subject& subject) const {
  if (subject.kind == Subject::Kind::kHandle && handle::kind(subject.number) == HandleKind::kMemoryPool)
    return memory_.pools().device(subject.number).has_value();
  if (subject.kind == Subject::Kind::kHandle) {
    const HandleMap::Entry* entry = handles_.find(subject.number);
    return entry && entry->object;
  }
  if (subject.kind == Subject::Kind::kHostMemory) {
    const HostRuns::Run* run = hostRuns_.at(subject.number);
    return run && run->isKept;
  }
  return subject.number >= 1 && subject.number <= contexts_.size() && contexts_.at(subject.number).handle &&
         !contexts_.at(subject.number).ending;
}

bool SessionParking::hasRead() {
  const SharedControl& control = link_.memory().control();
  return control.failures.first() == 0 &&
         (link_.remote() || std::all_of(std::begin(control.chunkBusy), std::end(control.chunkBusy),
                                        [](const auto& busy) { return busy.load() == 0; }));
}

bool SessionParking::isQuiet() {
  // Work of destroyed streams is visible in the default stream. A failed context stays for as long as its program.
  bool quiet = true;
  for (uint16_t context = 1; quiet && context <= contexts_.size(); ++context) {
    if (!contexts_.at(context).handle) continue;
    std::vector<Mark> marks;
    quiet = marks_.fence(context, marks) == CUDA_SUCCESS && marks.empty();
    marks_.giveBack(marks);
  }
  return quiet;
}

bool SessionParking::emptyPools() {
  for (size_t device = 0; device < memory_.devices(); ++device) memory_.trimPools(device);
  for (size_t device = 0; device < memory_.devices(); ++device)
    if (budgets_.at(device).ownBytes() != charges_.bytesOn(device)) return false;
  return true;
}

void SessionParking::write(cmd::Op op, uint16_t context, std::span<const std::byte> body) {
  const wire::CommandHeader header{static_cast<uint32_t>(sizeof(header) + body.size()), static_cast<uint16_t>(op),
                                   context, 0, 0};
  for (const auto bytes : {std::as_bytes(std::span(&header, 1)), body})
    written_.insert(written_.end(), bytes.begin(), bytes.end());
}

bool SessionParking::writeJournal() {
  if (writtenAt_ == session_.position()) return true;
  for (uint16_t context = 1; context <= contexts_.size(); ++context)
    if (contexts_.at(context).handle) session_.forwardOutput(context);
  journal_.prune([this](const Subject& subject) { return isThere(subject); });
  written_ = journal_.frames();
  const uint16_t before = contexts_.bound();
  bool isKnown = true;
  for (uint16_t context = 1; context <= contexts_.size() && isKnown; ++context)
    if (contexts_.at(context).handle) isKnown = contexts_.use(context) && eventTimes_.note(handles_, context);
  contexts_.use(before);
  eventTimes_.each([&](uint64_t wire, const EventTimes::Moment& at) {
    const HandleMap::Entry* entry = handles_.find(wire);
    if (!entry || !entry->object) return;
    cmd::EventHappened body{};
    body.event = wire;
    body.unixNs = at.unixNs;
    std::memcpy(body.afterMs, &at.ms, sizeof(at.ms));
    write(cmd::Op::kEventHappened, entry->context, std::as_bytes(std::span(&body, 1)));
  });
  for (const uint64_t pool : memory_.pools().all()) {
    const MemoryPools::Usage usage = *memory_.pools().usage(pool);
    const cmd::PoolHigh body{pool, usage.reservedHigh, usage.usedHigh};
    write(cmd::Op::kPoolHigh, 0, std::as_bytes(std::span(&body, 1)));
  }
  if (!isKnown || written_.size() > wire::kMaxJournalBytes) return false;
  writtenAt_ = session_.position();
  return true;
}

std::string SessionParking::whyNotNow() {
  if (std::string why = whyKept_(); !why.empty()) return why;
  if (!hasRead()) return "its program has not read all replies";
  if (!isQuiet()) return "it has running work or a failed context";
  if (!emptyPools()) return "it has device memory";
  return writeJournal() ? "" : "its journal is too large, or an event cannot be recorded";
}

void SessionParking::keepsIdle(std::string why) {
  isKept_ = !why.empty();
  const std::lock_guard lock(keptMutex_);
  kept_ = std::move(why);
}

bool SessionParking::parks(int64_t idleNs) {
  // The thread that resumes this session has work to do.
  if (afterNs_ == 0 || (session_.isResumed() && (!restoredAt_ || session_.position() == *restoredAt_))) return false;
  if (!link_.isParked()) {
    if (idleNs < afterNs_) return false;
    if (std::string why = whyNotNow(); !why.empty()) {
      if (why != toldKept_) log(LogLevel::Info, "the session is idle and is not parked: %s", why.c_str());
      toldKept_ = why;
      keepsIdle(std::move(why));
      return false;
    }
  }
  if (!link_.park(written_)) return false;
  session_.end({"it was idle; its program gets another worker when it needs one", true, true});
  return true;
}

CUresult SessionParking::onEventHappened(const cmd::Decoded<cmd::EventHappened>& command) {
  CUevent event = nullptr;
  if (!handle(HandleKind::kEvent, command.fixed.event, event)) return violation("unknown event");
  EventTimes::Moment at{command.fixed.unixNs, 0};
  static_assert(sizeof(command.fixed.afterMs) == sizeof(at.ms));
  std::memcpy(&at.ms, command.fixed.afterMs, sizeof(at.ms));
  return eventTimes_.happened(command.fixed.event, contexts_.homeOf(session_.current().context), at);
}

CUresult SessionParking::onSessionRestored(const cmd::Decoded<cmd::SessionRestored>&) {
  if (!session_.isResumed()) return violation("a session that was not parked is restored");
  restoredAt_ = session_.position();
  session_.restored();
  return CUDA_SUCCESS;
}

CUresult SessionParking::elapsed(cmd::Op op, std::span<const std::byte> body) {
  cmd::Decoded<cmd::EventElapsedTime> asked;
  static_assert(sizeof(cmd::EventElapsedTime) == sizeof(cmd::EventElapsedTimeV2));
  if ((op != cmd::Op::kEventElapsedTime && op != cmd::Op::kEventElapsedTimeV2) || !cmd::decode(body, asked))
    return CUDA_ERROR_INVALID_HANDLE;
  const HandleMap::Entry* start = handles_.find(HandleKind::kEvent, asked.fixed.hStart);
  const HandleMap::Entry* end = handles_.find(HandleKind::kEvent, asked.fixed.hEnd);
  if (!start || !start->object || !end || !end->object) return CUDA_ERROR_INVALID_HANDLE;
  cmd::EventElapsedTimeReply answer{};
  if (const CUresult rc = eventTimes_.between(*start, *end, answer.pMilliseconds)) return rc;
  reply(answer);
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
