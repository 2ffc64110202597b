// SPDX-License-Identifier: Apache-2.0
#include "cupti/collector.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "cupti/source.h"

namespace millpond::profiler {
namespace {

constexpr uint64_t bit(uint32_t kind) { return uint64_t{1} << kind; }
constexpr uint64_t kOfDevices = bit(kConcurrentKernel) | bit(kCopy) | bit(kFill) | bit(kPeerCopy);
/// There are no records of overhead, because there is nothing to report.
constexpr uint64_t kAll =
    kOfDevices | bit(kDriver) | bit(kRuntime) | bit(kOverhead) | bit(kSynchronization) | bit(kExternalCorrelation);

/// The most calls that are kept for a program that does not flush, and that are remembered for later work.
constexpr size_t kMostCallsKept = size_t{1} << 20;

bool beginsWith(uint32_t number, std::string_view name) {
  const char* const known = CallNames::ofDriver().nameOf(number);
  return known && std::string_view(known).starts_with(name);
}

/// The kind of synchronization of a call; 0: none.
uint32_t waitOf(uint32_t number) {
  if (beginsWith(number, "cuStreamSynchronize")) return static_cast<uint32_t>(SyncType::kStream);
  if (beginsWith(number, "cuCtxSynchronize")) return static_cast<uint32_t>(SyncType::kContext);
  if (beginsWith(number, "cuEventSynchronize")) return static_cast<uint32_t>(SyncType::kEvent);
  if (beginsWith(number, "cuStreamWaitEvent")) return static_cast<uint32_t>(SyncType::kStreamWaitsForEvent);
  return 0;
}

Result resultOf(int32_t driver) {
  switch (driver) {
    case 0: return kSuccess;
    case 7: return kMultipleSubscribersNotSupported;
    case 801: return kNotSupported;
    default: return kUnknown;
  }
}

}  // namespace

Collector& Collector::instance() {
  static Collector& one = *std::unique_ptr<Collector>(new Collector()).release();
  return one;
}

Result Collector::enable(uint32_t kind) {
  if (kind == 0 || kind >= kKindCount) return kInvalidKind;
  if (!(kAll & bit(kind))) return kNotSupported;
  const ActivityTable* const source = activitySource();
  if (!source) return kNotInitialized;
  const std::lock_guard lock(control_);
  const uint64_t before = kinds_.load();
  if (before & bit(kind)) return kSuccess;
  if ((bit(kind) & kOfDevices) && !(before & kOfDevices))
    if (const Result begun = resultOf(source->begin()); begun != kSuccess) return begun;
  since_[kind].store(nowNs());
  until_[kind].store(INT64_MAX);
  kinds_.store(before | bit(kind));
  if (before == 0) source->observe(&Collector::called);
  if (kind == kRuntime) switchRuntime(true);
  if (before == 0) {
    const std::lock_guard flushing(flushing_);
    buffers_.prepare();
  }
  return kSuccess;
}

Result Collector::disable(uint32_t kind) {
  if (kind == 0 || kind >= kKindCount) return kInvalidKind;
  const ActivityTable* const source = activitySource();
  if (!source) return kNotInitialized;
  const std::lock_guard lock(control_);
  const uint64_t before = kinds_.load();
  if (!(before & bit(kind))) return kSuccess;
  const uint64_t after = before & ~bit(kind);
  kinds_.store(after);
  if (after == 0) source->observe(nullptr);
  if (kind == kRuntime) switchRuntime(false);
  if ((before & kOfDevices) && !(after & kOfDevices)) source->end();
  until_[kind].store(nowNs());
  return kSuccess;
}

Result Collector::enableDriverCall(uint32_t number, bool isWanted) {
  if (!CallNames::ofDriver().nameOf(number)) return kInvalidParameter;
  const std::lock_guard lock(notes_);
  wanted_[number] = isWanted;
  unwanted_[number] = !isWanted;
  return kSuccess;
}

Result Collector::enableRuntimeCall(uint32_t number, bool isWanted) {
  if (!CallNames::ofRuntime().nameOf(number)) return kInvalidParameter;
  const std::lock_guard lock(control_);
  wantedRuntime_[number] = isWanted;
  unwantedRuntime_[number] = !isWanted;
  if (isRuntimeOn_ || isWanted) switchRuntime((kinds_.load() & bit(kRuntime)) != 0);
  return kSuccess;
}

// With control_ held.
void Collector::switchRuntime(bool isOn) {
  const ActivityTable* const source = activitySource();
  if (!source) return;
  isRuntimeOn_ = isOn || wantedRuntime_.any();
  runtimeTurn_.fetch_add(1);
  source->observeRuntime(isRuntimeOn_ ? &Collector::calledRuntime : nullptr);
  for (uint32_t number = 1; number < kMostCalls; ++number)
    source->setRuntimeSwitch(number, (isOn && !unwantedRuntime_[number]) || wantedRuntime_[number]);
}

// With notes_ held.
bool Collector::isNoted(uint32_t number) const {
  if (number == 0 || unwanted_[number]) return false;
  return wanted_[number] || (kinds_.load() & bit(kDriver)) != 0;
}

void Collector::called(const ObservedCall* call) { instance().note(*call); }

void Collector::note(const ObservedCall& observed) {
  const uint64_t kinds = kinds_.load();
  const uint32_t number = CallNames::ofDriver().numberOf(observed.name);
  // Calls that only query this process are many, and cause no work.
  if (kinds == 0 || (!observed.hasWorked && waitOf(number) == 0)) return;
  const std::vector<RuntimeCall>& open = openCalls();
  const bool isNested = !open.empty();
  Call call{
      .kind = kDriver,
      .number = number,
      .start = observed.start,
      .end = observed.end,
      .result = observed.result,
      .threadId = threadId(),
      .correlation = isNested ? open.back().correlation : lastCorrelation_.fetch_add(1) + 1,
      .thread = observed.thread,
      .streamBegin = observed.streamBegin,
      .streamEnd = observed.streamEnd,
      .kinds = kinds,
      .hasStream = observed.hasStream,
      .stream = observed.stream,
      .isNested = isNested,
      .externalIds = {},
  };
  // Those of a nested call belong to its caller.
  if (!isNested && (kinds & bit(kExternalCorrelation))) call.externalIds = ThreadNotes::own().externalIds.top();
  keep(std::move(call));
}

void Collector::keep(Call call) {
  const std::lock_guard lock(notes_);
  call.isNoted = call.kind == kRuntime || (!call.isNested && isNoted(call.number));
  if (calls_.size() < kMostCallsKept)
    calls_.push_back(std::move(call));
  else
    ++lostCalls_;
}

uint32_t Collector::threadId() const {
  return systemThreads_.load() ? static_cast<uint32_t>(::syscall(SYS_gettid)) : static_cast<uint32_t>(::pthread_self());
}

void Collector::calledRuntime(uint32_t number, bool isExit, int32_t result) {
  instance().noteRuntime(number, isExit, result);
}

std::vector<RuntimeCall>& Collector::openCalls() {
  ThreadNotes& own = ThreadNotes::own();
  // The ends of calls that were in progress when the switches changed are not reported.
  if (const uint32_t turn = runtimeTurn_.load(); own.turn != turn) {
    own.turn = turn;
    own.openCalls.clear();
  }
  return own.openCalls;
}

void Collector::noteRuntime(uint32_t number, bool isExit, int32_t result) {
  std::vector<RuntimeCall>& open = openCalls();
  const uint64_t kinds = kinds_.load();
  if (!isExit) {
    open.push_back({.number = number,
                    .start = nowNs(),
                    .correlation = lastCorrelation_.fetch_add(1) + 1,
                    .kinds = kinds,
                    .externalIds = {}});
    if (kinds & bit(kExternalCorrelation)) open.back().externalIds = ThreadNotes::own().externalIds.top();
    return;
  }
  // The end of a call that began before its switch was on.
  if (open.empty() || open.back().number != number) return open.clear();
  RuntimeCall begun = std::move(open.back());
  open.pop_back();
  if (kinds == 0) return;
  keep({.kind = kRuntime,
        .number = number,
        .start = begun.start,
        .end = nowNs(),
        .result = result,
        .threadId = threadId(),
        .correlation = begun.correlation,
        .kinds = begun.kinds,
        .externalIds = std::move(begun.externalIds)});
}

// With flushing_ held.
void Collector::remember(const std::vector<Call>& calls) {
  for (const Call& call : calls) {
    if (call.streamEnd == call.streamBegin) continue;
    if (sentCount_ >= kMostCallsKept) {
      // Their work was done long ago.
      sent_.clear();
      sentCount_ = 0;
    }
    sent_[call.thread][call.streamBegin] = {call.streamEnd, call.start,     call.correlation,
                                            call.kinds,     call.hasStream, call.stream};
    ++sentCount_;
  }
}

// With flushing_ held.
const Collector::Sent* Collector::sentBy(const Work& work) const {
  const CommandPlace* const place = work_.commandOf(work.correlation);
  if (!place) return nullptr;
  const auto thread = sent_.find(place->thread);
  if (thread == sent_.end()) return nullptr;
  auto found = thread->second.upper_bound(place->position);
  if (found == thread->second.begin()) return nullptr;
  --found;
  return place->position < found->second.streamEnd ? &found->second : nullptr;
}

Result Collector::flush() {
  const ActivityTable* const source = activitySource();
  if (!source) return kNotInitialized;
  const std::lock_guard lock(flushing_);
  // This comes first: calls precede the work of the devices that is complete by now.
  int64_t lead = 0;
  uint64_t lost = lost_;
  const int32_t answer = source->read(
      [](void* to, const char* lines, size_t bytes) {
        static_cast<WorkReader*>(to)->add({lines, bytes});
      },
      &work_, &lead, &lost);
  std::vector<Call> calls;
  {
    const std::lock_guard notes(notes_);
    calls = std::exchange(calls_, {});
    buffers_.drop(std::exchange(lostCalls_, 0));
  }
  if (lost > lost_) buffers_.drop(lost - std::exchange(lost_, lost));
  remember(calls);

  std::vector<Work> all = work_.take();
  std::unordered_map<uint32_t, std::vector<const Work*>> workOf;
  std::vector<std::pair<uint32_t, const Work*>> earlier;
  uint32_t firstOfNow = UINT32_MAX;
  for (const Call& call : calls) firstOfNow = std::min(firstOfNow, call.correlation);
  // Work begins after its call, which bounds the error of the comparison of the clocks.
  for (const Work& work : all)
    if (const Sent* sent = sentBy(work)) lead = std::min(lead, work.start - sent->start);
  for (const Work& work : all) {
    if (const Sent* sent = sentBy(work)) {
      if (sent->hasStream) places_[sent->stream] = {work.context, work.stream};
      lastPlace_ = {work.context, kNone};
      if (!(sent->kinds & bit(work.kind))) continue;
      if (sent->correlation >= firstOfNow)
        workOf[sent->correlation].push_back(&work);
      else
        earlier.emplace_back(sent->correlation, &work);
    } else if (work.start - lead >= since_[work.kind].load() && work.start - lead <= until_[work.kind].load()) {
      // Not caused by a call: the program's own copy, such as that of memory that kernels and the program share.
      earlier.emplace_back(lastCorrelation_.fetch_add(1) + 1, &work);
    }
  }
  const Clock::Conversion stamps = clock_.conversion();
  for (const auto& [correlation, work] : earlier) write(*work, correlation, lead, stamps);
  // Records of one call are kept together, because readers see one buffer after the other.
  for (const Call& call : calls) {
    write(call, stamps);
    if (call.isNested) continue;
    const auto found = workOf.find(call.correlation);
    if (found == workOf.end()) continue;
    for (const Work* work : found->second) write(*work, call.correlation, lead, stamps);
    workOf.erase(found);
  }
  // Called within calls of the runtime that have not returned yet.
  for (const auto& [correlation, left] : workOf)
    for (const Work* work : left) write(*work, correlation, lead, stamps);
  buffers_.complete();
  if (kinds_.load() != 0) buffers_.prepare();
  return resultOf(answer);
}

void Collector::write(const Call& call, const Clock::Conversion& stamps) {
  for (const ExternalId& each : call.externalIds)
    buffers_.append(ExternalCorrelationRecord{.kind = kExternalCorrelation,
                                              .externalKind = each.kind,
                                              .externalId = each.id,
                                              .correlation = call.correlation,
                                              .reserved = 0});
  if (call.isNoted)
    buffers_.append(CallRecord{.kind = call.kind,
                               .call = call.number,
                               .start = stamps(call.start),
                               .end = stamps(call.end),
                               .process = static_cast<uint32_t>(::getpid()),
                               .thread = call.threadId,
                               .correlation = call.correlation,
                               .result = static_cast<uint32_t>(call.result)});
  const uint32_t wait = call.kind == kDriver ? waitOf(call.number) : 0;
  if (wait == 0 || !(call.kinds & bit(kSynchronization))) return;
  Place place = lastPlace_;
  if (call.hasStream)
    if (const auto known = places_.find(call.stream); known != places_.end()) place = known->second;
  buffers_.append(SyncRecord{.kind = kSynchronization,
                             .type = static_cast<SyncType>(wait),
                             .start = stamps(call.start),
                             .end = stamps(call.end),
                             .correlation = call.correlation,
                             .context = place.context,
                             .stream = call.hasStream ? place.stream : kNone,
                             .event = kNone,
                             .eventSync = 0,
                             .result = static_cast<uint32_t>(call.result),
                             .padding = 0});
}

void Collector::write(const Work& work, uint32_t correlation, int64_t lead, const Clock::Conversion& stamps) {
  const ActivityTable* const source = activitySource();
  const int32_t place = source ? source->placeOf(work.device) : -1;
  // A device that the program does not see.
  if (place < 0) return;
  const auto fill = [&](auto& record) {
    record.kind = work.kind;
    record.start = stamps(work.start - lead);
    record.end = stamps(work.end - lead);
    record.device = static_cast<uint32_t>(place);
    record.context = work.context;
    record.stream = work.stream;
    record.correlation = correlation;
  };
  const auto& numbers = work.numbers;
  const auto number = [&](size_t index) { return static_cast<int32_t>(numbers[index]); };
  switch (work.kind) {
    case kConcurrentKernel: {
      KernelRecord record{};
      fill(record);
      record.completed = record.end;
      record.name = work.name;
      for (size_t i = 0; i < 3; ++i) {
        record.grid[i] = number(1 + i);
        record.block[i] = number(4 + i);
      }
      record.registersPerThread = static_cast<uint16_t>(numbers[7]);
      record.staticSharedBytes = number(8);
      record.dynamicSharedBytes = number(9);
      return buffers_.append(record);
    }
    case kCopy: {
      CopyRecord record{};
      fill(record);
      record.copy = static_cast<uint8_t>(numbers[0]);
      record.from = static_cast<uint8_t>(numbers[1]);
      record.to = static_cast<uint8_t>(numbers[2]);
      record.bytes = numbers[3];
      record.copyCount = 1;
      return buffers_.append(record);
    }
    default: {
      FillRecord record{};
      fill(record);
      record.value = static_cast<uint32_t>(numbers[0]);
      record.bytes = numbers[1];
      record.memoryKind = 3;  // the device's: there are no fills of other memory
      return buffers_.append(record);
    }
  }
}

}  // namespace millpond::profiler
