// SPDX-License-Identifier: Apache-2.0
// Memory of which this process and the worker each have a copy at the same address, because they map nothing together. They are
// made equal at points of the program's order: changes of the program go to the worker before work that could read them, and
// pages that the device may have changed are unmapped until the program touches them, or, where bytes are compared, fetched
// when the program has waited. docs/decisions/0012 says why.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/addresses/memory_map.h"
#include "client/addresses/pages/awaited_words.h"
#include "client/addresses/pages/compared_bytes.h"
#include "client/addresses/pages/traced_pages.h"
#include "client/memory/mirror/fault_handler.h"
#include "client/memory/mirror/mirror_link.h"
#include "client/memory/mirror/quiet_watch.h"

namespace millpond::client {

/// One for the process, never destroyed.
class Mirror {
 public:
  /// `memory`: of the process. `handles`: for the streams on which it copies.
  Mirror(HandleTable& handles, const MemoryMap& memory) : memory_(memory), link_(handles) {}
  /// Whether there is any such memory. Costs one read: every launch asks.
  static bool exists() noexcept { return exists_.load(std::memory_order_relaxed); }

  /// Mirrors pages that neither side has used, or whose contents are the program's (`content`). False if the system
  /// refuses.
  bool addPages(std::unique_ptr<TracedPages> pages, uint16_t context, TracedPages::Content content);
  /// Handling of the device's changes.
  enum class Writes : bool { kNever, kMerged };
  /// Whether copies of graphs write there on this side: only a wait orders them with the device's work.
  enum class Landed : bool { kNo, kYes };
  /// Mirrors the program's memory with its present contents.
  void addBytes(uint64_t address, size_t bytes, uint16_t context);
  /// The same for host memory that only graphs use at the worker: their writes are newer than these contents.
  void addProgramBytes(uint64_t address, size_t bytes, uint16_t context, Writes writes, Landed landed);
  /// Mirrors the worker's memory with its present contents, at addresses of this process that nothing uses yet. For the
  /// driver's code.
  int32_t adoptBytes(uint64_t address, size_t bytes, uint16_t context);
  enum class Removed { kNothing, kBytes, kPages };
  /// Ends the mirroring of the memory that begins there. Compared bytes stay unchanged, and traced pages are unmapped.
  Removed remove(uint64_t address);
  /// The context is about to end.
  void forget(uint16_t context);
  /// Whether any of it is mirrored.
  bool overlaps(uint64_t address, uint64_t bytes) const;
  /// Whether any of it is traced: a system call there may fail.
  bool overlapsPages(uint64_t address, uint64_t bytes) const;
  /// Waits until the device has finished its work so far, and fetches compared bytes.
  void settle();

  /// Around a command that lets the device read or write anything: sends the program's changes first, and until its end no
  /// contents count as the device's final ones. `stream` 0: the legacy one of the context.
  void beginWork(uint16_t context, uint64_t stream);
  void endWork() noexcept { posting_.fetch_sub(1, std::memory_order_release); }
  /// The amount of work begun so far, if all of it has been appended.
  std::optional<uint64_t> moment() const;
  /// The program is about to wait for work, or to ask whether it is done: a running kernel may be polling a word that
  /// the program has written since the launch. `isAnswered`: the query is answered immediately, so that the program may
  /// repeat it often.
  void beginWait(bool isAnswered);
  /// The program has waited for work. `whole`: for all of it until that moment.
  void afterWait(std::optional<uint64_t> whole);
  /// A stream has been given a word to wait for, or to write. For words in other memory, only the fact that a stream
  /// may wait is recorded.
  void await(AwaitedWord word);
  /// Whether streams may be waiting for words: then the program may still write memory that they read later. Takes no
  /// lock if no stream has a word.
  bool mayStreamWait() const;
  /// Surrounds a function of the program in a stream, on the thread that runs it: the device waits for it.
  void beginHostFunction();
  void endHostFunction();

  /// Addresses of this process's own memory among data sent to devices since the last call.
  std::vector<uint64_t> takeNamed();

  /// In a forked child.
  static void abandon() noexcept;

 private:
  struct Traced {
    std::unique_ptr<TracedPages> pages;
    uint16_t context;
    /// Pages that a host function fetched while the device may have been working, with their contents at that time.
    std::map<size_t, std::vector<std::byte>> early;
    size_t size() const { return pages->bytes(); }
  };
  struct Compared {
    ComparedBytes bytes;
    uint16_t context;
    Writes writes = Writes::kMerged;
    Landed landed = Landed::kNo;
    bool isVariable = false;  ///< ends with its context
    size_t size() const { return bytes.bytes(); }
  };
  /// A part of the pushed bytes that is sent after the rest.
  struct Held {
    uint16_t context;
    uint64_t address;
    std::vector<std::byte> bytes;
  };
  using Lock = std::unique_lock<std::mutex>;

  uint64_t work() const { return work_.load(std::memory_order_acquire); }

  template <typename Regions>
  static bool meets(const Regions& regions, uint64_t address, uint64_t bytes);
  static bool serve(void* of, const FaultHandler::Fault& fault);
  bool serveOrdinary(uint64_t address, bool isWrite);
  bool serveHostFunction(uint64_t address, bool isWrite);
  /// Does not wait for the device. Called with the lock held.
  bool serveAtOnce(uint64_t address, bool isWrite);
  Traced* tracedAt(uint64_t address);
  Compared* comparedAt(uint64_t address);
  /// True when the page can be used that way now.
  bool upgrade(Traced& region, size_t page, bool isWrite);
  void bring(Traced& region, TracedPages::Run run, bool isWrite);
  void bringAll(Traced& region);
  /// Whether the device, or a function of the program that the device waits for, may be waiting for a thread that
  /// accesses memory.
  bool mayBeAwaited() const;
  enum class Quiet : uint8_t { kYes, kMoreWork, kGivenUp };
  /// Waits until the device has finished its work so far, unless `mayGiveUp` is set and there is a reason to.
  Quiet awaitQuiet(Lock& lock, unsigned attempt, bool mayGiveUp);
  void pushAll();
  void push(uint16_t context, uint64_t address, std::span<const std::byte> bytes);
  void pushHeld();
  /// Records addresses of this process's own memory among data for devices.
  void noteNamed(uint64_t address, std::span<const std::byte> bytes);
  void noteNamed(const ComparedBytes& region, size_t offset, size_t bytes);
  void pushTraced();
  void pushEarly(Traced& region);
  void pushCompared();
  void pushOnlyWord();
  /// Sends `words` only after everything else, because they signal the program.
  void mergeCompared(std::span<const AwaitedWord> words = {});

  void tellAwaited();
  bool doesStreamWait() const;
  [[noreturn]] void watchWords();
  /// Whether any condition has become true.
  bool lookAtWords();
  bool isMadeTrue(const AwaitedWord& word);
  void pushDue();
  void show(const std::vector<AwaitedWord>& words);
  std::optional<uint64_t> askForWord(const AwaitedWord& word);
  void mergeWord(const AwaitedWord& word, uint64_t now);

  static inline std::atomic<bool> exists_{false};

  const MemoryMap& memory_;
  mutable std::mutex mutex_;
  MirrorLink link_;
  std::map<uint64_t, Traced> traced_;      ///< by address
  std::map<uint64_t, Compared> compared_;  ///< by address
  std::atomic<uint64_t> work_{0};
  std::atomic<uint32_t> posting_{0};  ///< commands of `work_` that may not have been appended yet
  std::atomic<uint32_t> gate_{0};     ///< 1: work waits until the device is idle
  std::vector<AwaitedWord> awaited_;
  std::atomic<uint64_t> awaitedElsewhere_{
      0};  ///< `work_` when a stream was last given a word of other memory to wait for
  std::vector<Held> held_;
  std::vector<uint64_t> named_;
  std::atomic<uint32_t> awaiting_{0};  ///< 1: there are awaited words
  QuietWatch watch_{[this](const std::vector<uint64_t>& streams) { link_.settle(streams); }};
  /// A wait that was abandoned: the request, and the work that it concerns.
  struct Unanswered {
    uint32_t question;
    uint64_t work;
  };
  std::optional<Unanswered> unanswered_;
  uint64_t quiet_ = 0;                              ///< `work_` when the device was known to have done it all
  uint64_t merged_ = 0;                             ///< the same, with compared bytes brought here since
  std::chrono::steady_clock::time_point nextPoll_;  ///< from here on, queries compare bytes again
};

/// A turn of the device, for as long as its command is being appended.
class MirrorTurn {
 public:
  MirrorTurn() = default;
  MirrorTurn(Mirror& mirror, uint16_t context, uint64_t stream) : mirror_(&mirror) {
    mirror.beginWork(context, stream);
  }
  ~MirrorTurn() {
    if (mirror_) mirror_->endWork();
  }
  MirrorTurn(const MirrorTurn&) = delete;
  MirrorTurn& operator=(const MirrorTurn&) = delete;

 private:
  Mirror* mirror_ = nullptr;  ///< null: no turn
};

}  // namespace millpond::client
