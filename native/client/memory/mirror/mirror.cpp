// SPDX-License-Identifier: Apache-2.0
#include "client/memory/mirror/mirror.h"

#include <algorithm>
#include <cstring>
#include <ctime>

#include "base/log.h"
#include "client/process/host_functions.h"
#include "protocol/futex.h"

namespace millpond::client {
namespace {

/// How often an access waits for a device to which other threads keep giving work, before those threads have to wait
/// for the access.
constexpr unsigned kAttempts = 4;
constexpr long kLookNs = 5'000;
/// How long an access waits for the device, which may be waiting for the thread in an undetectable way: a kernel may
/// poll memory that the thread is about to copy. After that the current page is fetched.
constexpr int64_t kTouchPatienceNs = 50'000'000;
/// Interval at which such an access checks whether it has to stop waiting.
constexpr int64_t kRelookNs = 500'000;
/// Compared bytes are read in pieces of this size.
constexpr size_t kReadPiece = wire::kChunkBytes;
/// A program that asks in a loop whether work is done spends at most this fraction (1 / N) of its time on comparing bytes.
constexpr int kPollShare = 8;

}  // namespace

void Mirror::abandon() noexcept {
  FaultHandler::abandon();
  exists_.store(false, std::memory_order_relaxed);
}

bool Mirror::addPages(std::unique_ptr<TracedPages> pages, uint16_t context, TracedPages::Content content) {
  if (!FaultHandler::start(&Mirror::serve, this)) {
    log(LogLevel::Error, "cannot start the threads that mirror memory");
    return false;
  }
  const uint64_t address = pages->address();
  const uint64_t bytes = pages->bytes();
  const Lock lock(mutex_);
  FaultHandler::cover(address, address + bytes);
  if (content == TracedPages::Content::kZero) link_.clear(context, address, bytes);
  traced_.emplace(address, Traced{std::move(pages), context, {}});
  exists_.store(true, std::memory_order_relaxed);
  return true;
}

void Mirror::addBytes(uint64_t address, size_t bytes, uint16_t context) {
  const Lock lock(mutex_);
  const auto* start = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> now(start, start + bytes);
  link_.push(context, address, now);
  compared_.emplace(address, Compared{ComparedBytes(address, std::move(now)), context});
  exists_.store(true, std::memory_order_relaxed);
}

void Mirror::addProgramBytes(uint64_t address, size_t bytes, uint16_t context, Writes writes, Landed landed) {
  const Lock lock(mutex_);
  const auto* start = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> now(start, start + bytes);
  MirrorLink::fill(context, address, now);
  compared_.emplace(address, Compared{ComparedBytes(address, std::move(now)), context, writes, landed});
  exists_.store(true, std::memory_order_relaxed);
}

int32_t Mirror::adoptBytes(uint64_t address, size_t bytes, uint16_t context) {
  const Lock lock(mutex_);
  if (compared_.contains(address)) return 0;
  std::vector<std::byte> now(bytes);
  if (const int32_t result = link_.fetch(context, address, now); result != 0) return result;
  std::memcpy(reinterpret_cast<void*>(address), now.data(), bytes);
  compared_.emplace(address,
                    Compared{ComparedBytes(address, std::move(now)), context, Writes::kMerged, Landed::kNo, true});
  exists_.store(true, std::memory_order_relaxed);
  return 0;
}

Mirror::Removed Mirror::remove(uint64_t address) {
  const Lock lock(mutex_);
  const Removed removed = traced_.erase(address) != 0     ? Removed::kPages
                          : compared_.erase(address) != 0 ? Removed::kBytes
                                                          : Removed::kNothing;
  std::erase_if(awaited_,
                [&](const AwaitedWord& each) { return !tracedAt(each.address) && !comparedAt(each.address); });
  return removed;
}

void Mirror::forget(uint16_t context) {
  const Lock lock(mutex_);
  std::erase_if(compared_, [&](const auto& each) { return each.second.isVariable && each.second.context == context; });
  link_.forget(context);
}

bool Mirror::overlaps(uint64_t address, uint64_t bytes) const {
  const Lock lock(mutex_);
  return meets(traced_, address, bytes) || meets(compared_, address, bytes);
}

bool Mirror::overlapsPages(uint64_t address, uint64_t bytes) const {
  const Lock lock(mutex_);
  return meets(traced_, address, bytes);
}

template <typename Regions>
bool Mirror::meets(const Regions& regions, uint64_t address, uint64_t bytes) {
  const auto next = regions.upper_bound(address);
  if (next != regions.end() && next->first - address < bytes) return true;
  return next != regions.begin() && address - std::prev(next)->first < std::prev(next)->second.size();
}

// Changes by the program

void Mirror::beginWork(uint16_t context, uint64_t stream) {
  for (;;) {
    while (gate_.load(std::memory_order_acquire) != 0) futexWait(gate_, 1);
    const Lock lock(mutex_);
    // The thread that holds the gate may have acquired it just now.
    if (gate_.load(std::memory_order_acquire) != 0) continue;
    work_.fetch_add(1, std::memory_order_release);
    posting_.fetch_add(1, std::memory_order_relaxed);
    pushAll();
    link_.order(context, stream);
    return;
  }
}

void Mirror::pushAll() {
  pushTraced();
  pushCompared();
  pushHeld();
}

std::vector<uint64_t> Mirror::takeNamed() {
  const Lock lock(mutex_);
  return std::exchange(named_, {});
}

void Mirror::noteNamed(uint64_t address, std::span<const std::byte> bytes) {
  if (memory_.hasLocal()) memory_.eachLocalAddress(address, bytes, [&](uint64_t each) { named_.push_back(each); });
}

void Mirror::noteNamed(const ComparedBytes& region, size_t offset, size_t bytes) {
  if (!memory_.hasLocal()) return;
  // Perhaps only some bytes of a pointer have changed.
  constexpr uint64_t kWord = sizeof(uint64_t);
  const uint64_t first = std::max(region.address(), (region.address() + offset) / kWord * kWord);
  const uint64_t behind =
      std::min(region.address() + region.bytes(), (region.address() + offset + bytes + kWord - 1) / kWord * kWord);
  noteNamed(first, std::span(region.last()).subspan(first - region.address(), behind - first));
}

void Mirror::pushTraced() {
  bool some = false;
  for (auto& [address, region] : traced_) {
    if (!region.early.empty()) pushEarly(region);
    if (!region.pages->isAccessible()) continue;
    some = true;
    region.pages->withdraw([&, start = address](size_t offset, std::span<const std::byte> bytes) {
      noteNamed(start + offset, bytes);
      push(region.context, start + offset, bytes);
    });
  }
  if (some) FaultHandler::keepInstalled();
}

void Mirror::pushEarly(Traced& region) {
  for (const auto& [page, asItCame] : region.early) {
    region.pages->takeBack(page);
    const std::span<const std::byte> now = region.pages->data({page, 1});
    const uint64_t start = region.pages->address() + page * TracedPages::kPage;
    noteNamed(start, now);
    eachDifference(now, asItCame,
                   [&](size_t at, size_t bytes) { push(region.context, start + at, now.subspan(at, bytes)); });
  }
  region.early.clear();
}

void Mirror::pushCompared() {
  for (auto& [address, region] : compared_)
    region.bytes.takeChanges(
        [&, start = address, all = &region.bytes](size_t offset, std::span<const std::byte> bytes) {
          noteNamed(*all, offset, bytes.size());
          push(region.context, start + offset, bytes);
        });
}

void Mirror::beginWait(bool isAnswered) {
  using Clock = std::chrono::steady_clock;
  const Lock lock(mutex_);
  if (compared_.empty() || quiet_ == work()) return;
  const Clock::time_point begin = Clock::now();
  if (isAnswered && begin < nextPoll_) return;
  pushOnlyWord();
  const Clock::time_point end = Clock::now();
  nextPoll_ = end + kPollShare * (end - begin);
}

// Among several words, the last one written by the program is unknown, and a kernel that saw it first would compute with old
// values of the others. A single word cannot arrive too early.
void Mirror::pushOnlyWord() {
  Compared* changed = nullptr;
  ComparedBytes::Word word;
  for (auto& [address, region] : compared_) {
    const std::optional<ComparedBytes::Word> found = region.bytes.onlyChange();
    if (!found || (found->bytes != 0 && changed)) return;
    if (found->bytes == 0) continue;
    changed = &region;
    word = *found;
  }
  if (!changed || changed->landed == Landed::kYes) return;
  // Checked again after the word: another thread may have written elsewhere before it.
  const auto placeOf = [](const Compared& region, const ComparedBytes::Word& at) {
    return (region.bytes.address() + at.offset) / at.now.size();
  };
  const auto isOther = [&](const Compared& region) {
    const std::optional<ComparedBytes::Word> found = region.bytes.onlyChange();
    return !found || (found->bytes != 0 && placeOf(region, *found) != placeOf(*changed, word));
  };
  for (const auto& [address, region] : compared_)
    if (isOther(region)) return;
  for (const auto& [address, region] : traced_)
    if (!region.early.empty() || region.pages->hasDirty()) return;
  changed->bytes.keep(word);
  noteNamed(changed->bytes, word.offset, word.bytes);
  push(changed->context, changed->bytes.address() + word.offset, word.data());
  pushHeld();
}

// Changes by the device

void Mirror::afterWait(std::optional<uint64_t> whole) {
  const Lock lock(mutex_);
  if (whole) {
    quiet_ = std::max(quiet_, *whole);
    std::erase_if(awaited_, [&](const AwaitedWord& each) { return each.work <= *whole; });
  }
  // Bytes that arrived while the device was working may be stale.
  for (auto& [address, region] : traced_) pushEarly(region);
  pushHeld();
  if (compared_.empty() || merged_ == work()) return;
  const uint64_t merged = quiet_;
  mergeCompared();
  merged_ = merged;
}

void Mirror::mergeCompared(std::span<const AwaitedWord> words) {
  std::vector<std::byte> now;
  for (auto& [address, region] : compared_) {
    if (region.writes == Writes::kNever) continue;
    now.resize(std::min(kReadPiece, region.bytes.bytes()));
    for (size_t at = 0; at < region.bytes.bytes(); at += kReadPiece) {
      const auto piece = std::span(now).first(std::min(kReadPiece, region.bytes.bytes() - at));
      // A failed context returns no contents; the next call reports the failure.
      if (link_.fetch(region.context, address + at, piece) != 0) break;
      for (const AwaitedWord& word : words) {
        const uint64_t begin = std::max(word.address, address + at);
        const uint64_t end = std::min(word.end(), address + at + piece.size());
        for (uint64_t each = begin; each < end; ++each)
          piece[each - address - at] = region.bytes.last()[each - address];
      }
      region.bytes.merge(at, piece);
    }
  }
  for (const AwaitedWord& word : words)
    if (const std::optional<uint64_t> shown = askForWord(word)) mergeWord(word, *shown);
}

void Mirror::beginHostFunction() {
  const Lock lock(mutex_);
  if (!compared_.empty()) mergeCompared();
}

void Mirror::endHostFunction() {
  const Lock lock(mutex_);
  bool some = false;
  for (auto& [address, region] : traced_) {
    some = some || !region.early.empty();
    pushEarly(region);
  }
  pushCompared();
  pushHeld();
  // Work behind the function in its stream was posted long ago.
  if (some || !compared_.empty()) link_.awaitPushed();
}

std::optional<uint64_t> Mirror::moment() const {
  const Lock lock(mutex_);
  return posting_.load(std::memory_order_acquire) == 0 ? std::optional(work()) : std::nullopt;
}

void Mirror::settle() {
  for (unsigned attempt = 0;; ++attempt) {
    Lock lock(mutex_);
    if (quiet_ != work() && awaitQuiet(lock, attempt, false) != Quiet::kYes) continue;
    if (merged_ != quiet_) mergeCompared();
    merged_ = quiet_;
    return;
  }
}

bool Mirror::mayBeAwaited() const { return doesStreamWait() || HostFunctions::anyPending(); }

Mirror::Quiet Mirror::awaitQuiet(Lock& lock, unsigned attempt, bool mayGiveUp) {
  const bool isGated = attempt >= kAttempts;
  if (isGated) gate_.store(1, std::memory_order_release);
  const uint64_t begun = work();
  const std::vector<uint64_t> streams = link_.streams();
  lock.unlock();
  const int64_t end = monotonicNs() + kTouchPatienceNs;
  // A function of the program, or a wait for a word, that is given to a stream meanwhile may come before the wait below.
  const auto mustGiveUp = [&] {
    if (!mayGiveUp) return false;
    const Lock look(mutex_);
    return mayBeAwaited() || monotonicNs() > end;
  };
  bool isGivenUp = false;
  // A command that was begun must be appended before a wait for it.
  while (posting_.load(std::memory_order_acquire) != 0 && begun == work() && !isGivenUp) {
    const timespec little{0, kLookNs};
    ::nanosleep(&little, nullptr);
    isGivenUp = mustGiveUp();
  }
  const bool isAppended = !isGivenUp && begun == work();
  const std::optional<uint32_t> question = isAppended && mayGiveUp ? watch_.ask(streams) : std::nullopt;
  if (question)
    while (!isGivenUp && !watch_.isAnswered(*question, kRelookNs)) isGivenUp = mustGiveUp();
  else if (isAppended)
    link_.settle(streams);
  lock.lock();
  if (isGated) {
    gate_.store(0, std::memory_order_release);
    futexWake(gate_, INT32_MAX);
  }
  if (isGivenUp) {
    if (question) unanswered_ = {*question, begun};
    return Quiet::kGivenUp;
  }
  if (!isAppended) return Quiet::kMoreWork;
  quiet_ = std::max(quiet_, begun);
  return begun == work() ? Quiet::kYes : Quiet::kMoreWork;
}

// Accesses by the program

bool Mirror::serve(void* of, const FaultHandler::Fault& fault) {
  Mirror& mirror = *static_cast<Mirror*>(of);
  return fault.inHostFunction ? mirror.serveHostFunction(fault.address, fault.isWrite)
                              : mirror.serveOrdinary(fault.address, fault.isWrite);
}

Mirror::Traced* Mirror::tracedAt(uint64_t address) {
  const auto next = traced_.upper_bound(address);
  if (next == traced_.begin()) return nullptr;
  Traced& region = std::prev(next)->second;
  return address - region.pages->address() < region.pages->bytes() ? &region : nullptr;
}

Mirror::Compared* Mirror::comparedAt(uint64_t address) {
  const auto next = compared_.upper_bound(address);
  if (next == compared_.begin()) return nullptr;
  Compared& region = std::prev(next)->second;
  return address - region.bytes.address() < region.size() ? &region : nullptr;
}

bool Mirror::upgrade(Traced& region, size_t page, bool isWrite) {
  const TracedPages::State state = region.pages->state(page);
  if (state == TracedPages::State::kAway) return false;
  if (!isWrite || state == TracedPages::State::kDirty) return true;
  const TracedPages::Run run = region.pages->writable(page);
  if (!region.pages->grant(run, TracedPages::State::kDirty)) bringAll(region);
  return true;
}

bool Mirror::serveOrdinary(uint64_t address, bool isWrite) {
  Lock lock(mutex_);
  for (unsigned attempt = 0;; ++attempt) {
    if (mayBeAwaited()) return serveAtOnce(address, isWrite);
    Traced* region = tracedAt(address);
    if (!region) return false;
    const size_t page = region->pages->pageOf(address);
    if (upgrade(*region, page, isWrite)) return true;
    if (unanswered_ && watch_.isAnswered(unanswered_->question, 0)) {
      quiet_ = std::max(quiet_, unanswered_->work);
      unanswered_.reset();
    }
    // A wait for the same work has been abandoned before.
    if (unanswered_ && unanswered_->work == work()) return serveAtOnce(address, isWrite);
    const Quiet quiet = quiet_ == work() ? Quiet::kYes : awaitQuiet(lock, attempt, true);
    if (quiet == Quiet::kMoreWork) continue;
    if (quiet == Quiet::kGivenUp) return serveAtOnce(address, isWrite);
    // The lock was released in the meantime.
    region = tracedAt(address);
    if (!region) return false;
    if (!upgrade(*region, page, isWrite)) bring(*region, region->pages->wanted(page), isWrite);
    return true;
  }
}

void Mirror::bring(Traced& region, TracedPages::Run run, bool isWrite) {
  const auto state = isWrite ? TracedPages::State::kDirty : TracedPages::State::kClean;
  const uint64_t start = region.pages->address() + run.first * TracedPages::kPage;
  // If the device cannot be queried any more, the last known contents are as good as any.
  link_.fetch(region.context, start, region.pages->data(run));
  if (!region.pages->grant(run, state)) bringAll(region);
}

void Mirror::bringAll(Traced& region) {
  TracedPages& pages = *region.pages;
  for (TracedPages::Run run = pages.away(0); run.count != 0; run = pages.away(run.first + run.count))
    link_.fetch(region.context, pages.address() + run.first * TracedPages::kPage, pages.data(run));
  pages.grant({0, pages.pages()}, TracedPages::State::kDirty);
}

bool Mirror::serveHostFunction(uint64_t address, bool isWrite) {
  const Lock lock(mutex_);
  return serveAtOnce(address, isWrite);
}

bool Mirror::serveAtOnce(uint64_t address, bool isWrite) {
  Traced* region = tracedAt(address);
  if (!region) return false;
  const size_t page = region->pages->pageOf(address);
  if (upgrade(*region, page, isWrite)) return true;
  // Streams may be writing to the page: it is withdrawn again soon, and only the program's changes are sent.
  bring(*region, {page, 1}, true);
  const std::span<std::byte> now = region->pages->data({page, 1});
  region->early[page].assign(now.begin(), now.end());
  return true;
}

}  // namespace millpond::client
