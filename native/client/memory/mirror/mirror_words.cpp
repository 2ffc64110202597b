// SPDX-License-Identifier: Apache-2.0
// Words of mirrored memory that streams write and wait for: a thread of ours looks at them, on both sides, for as long as a
// stream waits.
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <map>

#include "base/log.h"
#include "client/addresses/helper_thread.h"
#include "client/memory/mirror/mirror.h"
#include "protocol/futex.h"

namespace millpond::client {
namespace {

constexpr long kShortestPauseNs = 20'000;
constexpr long kLongestPauseNs = 1'000'000;

uint64_t valueOf(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}

}  // namespace

void Mirror::await(AwaitedWord word) {
  {
    const Lock lock(mutex_);
    if (!meets(traced_, word.address, word.bytes) && !meets(compared_, word.address, word.bytes)) {
      if (word.by == AwaitedWord::By::kStream)
        awaitedElsewhere_.store(work_.fetch_add(1, std::memory_order_release) + 1, std::memory_order_release);
      return;
    }
  }
  static const bool isStarted = startHelperThread(
      [](void* self) -> void* {
        ::prctl(PR_SET_NAME, "millpond-words");
        static_cast<Mirror*>(self)->watchWords();
      },
      this);
  if (!isStarted) log(LogLevel::Error, "cannot start the thread that polls memory that streams wait for");
  const Lock lock(mutex_);
  word.work = work_.fetch_add(1, std::memory_order_release) + 1;
  awaited_.push_back(word);
  tellAwaited();
}

// With the lock held.
void Mirror::tellAwaited() {
  awaiting_.store(awaited_.empty() ? 0 : 1, std::memory_order_release);
  if (!awaited_.empty()) futexWake(awaiting_);
}

bool Mirror::mayStreamWait() const {
  if (awaiting_.load(std::memory_order_acquire) == 0 && awaitedElsewhere_.load(std::memory_order_acquire) == 0)
    return false;
  const Lock lock(mutex_);
  return doesStreamWait();
}

bool Mirror::doesStreamWait() const {
  if (awaitedElsewhere_.load(std::memory_order_relaxed) > quiet_) return true;
  return std::any_of(awaited_.begin(), awaited_.end(),
                     [](const AwaitedWord& each) { return each.by == AwaitedWord::By::kStream; });
}

void Mirror::watchWords() {
  for (long pause = kShortestPauseNs;;) {
    if (awaiting_.load(std::memory_order_acquire) == 0) {
      futexWait(awaiting_, 0);
      pause = kShortestPauseNs;
      continue;
    }
    pause = lookAtWords() ? kShortestPauseNs : std::min(pause * 2, kLongestPauseNs);
    const timespec little{0, pause};
    ::nanosleep(&little, nullptr);
  }
}

bool Mirror::lookAtWords() {
  const Lock lock(mutex_);
  const size_t before = awaited_.size();
  pushDue();
  // Each word is read once for all streams that wait for it.
  std::map<uint64_t, std::optional<uint64_t>> there;
  for (const AwaitedWord& word : awaited_)
    if (const auto [at, isNew] = there.try_emplace(word.address); isNew) at->second = askForWord(word);
  std::vector<AwaitedWord> shown;
  std::erase_if(awaited_, [&](const AwaitedWord& word) {
    const std::optional<uint64_t> now = there[word.address];
    const bool is = now && word.isTrue(*now);
    if (is && word.by == AwaitedWord::By::kProgram) shown.push_back(word);
    return is || !now;
  });
  show(shown);
  // The program must see the others change too, so that a change back is detected.
  for (const AwaitedWord& word : awaited_)
    if (const auto now = there.extract(word.address); now && now.mapped()) mergeWord(word, *now.mapped());
  tellAwaited();
  return awaited_.size() != before;
}

void Mirror::pushDue() {
  const auto isDue = [&](const AwaitedWord& word) { return word.by == AwaitedWord::By::kStream && isMadeTrue(word); };
  const auto due =
      std::stable_partition(awaited_.begin(), awaited_.end(), [&](const AwaitedWord& word) { return !isDue(word); });
  const auto rest = due - awaited_.begin();
  if (due == awaited_.end()) return;
  pushAll();
  awaited_.resize(static_cast<size_t>(rest));
}

void Mirror::show(const std::vector<AwaitedWord>& words) {
  if (words.empty()) return;
  // Earlier values of the word are obsolete.
  std::erase_if(awaited_, [&](const AwaitedWord& word) {
    return word.by == AwaitedWord::By::kProgram &&
           std::any_of(words.begin(), words.end(),
                       [&](const AwaitedWord& each) { return each.address == word.address && each.work > word.work; });
  });
  mergeCompared(words);
  for (auto& [address, region] : traced_) pushEarly(region);
  pushHeld();
}

/// Whether the program has written it and the worker does not know that yet.
bool Mirror::isMadeTrue(const AwaitedWord& word) {
  if (Traced* region = tracedAt(word.address)) {
    const size_t page = region->pages->pageOf(word.address);
    if (region->pages->state(page) != TracedPages::State::kDirty) return false;
    const size_t offset = word.address % TracedPages::kPage;
    return word.isTrue(valueOf(region->pages->data({page, 1}).subspan(offset, word.bytes)));
  }
  const Compared* region = comparedAt(word.address);
  const std::optional<uint64_t> changed = region ? region->bytes.changed(word.address, word.bytes) : std::nullopt;
  return changed && word.isTrue(*changed);
}

/// The worker's value; none if it can no longer be read.
std::optional<uint64_t> Mirror::askForWord(const AwaitedWord& word) {
  const Compared* compared = comparedAt(word.address);
  const Traced* traced = tracedAt(word.address);
  if (!compared && !traced) return std::nullopt;
  std::byte now[8] = {};
  const auto bytes = std::span(now).first(word.bytes);
  if (link_.fetch(compared ? compared->context : traced->context, word.address, bytes) != 0) return std::nullopt;
  return valueOf(bytes);
}

void Mirror::mergeWord(const AwaitedWord& word, uint64_t now) {
  if (Compared* region = comparedAt(word.address))
    region->bytes.merge(word.address - region->bytes.address(), std::as_bytes(std::span(&now, 1)).first(word.bytes));
}

// A flag that the program sets is sent after all the data that it announces.

void Mirror::push(uint16_t context, uint64_t address, std::span<const std::byte> bytes) {
  for (const AwaitedWord& word : awaited_) {
    const uint64_t begin = std::max(word.address, address);
    const uint64_t end = std::min(word.end(), address + bytes.size());
    if (word.by != AwaitedWord::By::kStream || begin >= end) continue;
    const auto part = bytes.subspan(begin - address, end - begin);
    held_.push_back({context, begin, {part.begin(), part.end()}});
    if (begin > address) push(context, address, bytes.first(begin - address));
    if (end < address + bytes.size()) push(context, end, bytes.subspan(end - address));
    return;
  }
  link_.push(context, address, bytes);
}

void Mirror::pushHeld() {
  if (held_.empty()) return;
  link_.awaitPushed();
  for (const Held& each : held_) link_.push(each.context, each.address, each.bytes);
  held_.clear();
}

}  // namespace millpond::client
