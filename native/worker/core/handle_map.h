// SPDX-License-Identifier: Apache-2.0
// Maps handles, which the client chooses, to the driver's objects.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "protocol/handle.h"

namespace millpond::worker {

/// The numbers of commands that have given work to a stream, and to the default stream, for which a blocking stream waits. The
/// default stream waits for all blocking streams; its `own` counts their commands, too.
struct StreamWorks {
  uint64_t own = 0;
  uint64_t byDefault = 0;
};

class HandleMap {
 public:
  struct Entry {
    uint64_t wire = 0;  ///< 0: the slot is free
    bool used = false;  ///< it once held a handle: the use of a destroyed one is an error of the program, not an attack
    void* object = nullptr;  ///< null: the driver failed to create it
    uint16_t context = 0;
    bool isTouched = false;      ///< stream: it may have work
    bool isBlocking = false;     ///< stream: it and the default stream wait for each other
    bool isOpen = false;         ///< blocking stream: it got work since the default stream did
    uint64_t orderedBehind = 0;  ///< stream: number of the synchronous copy for which its work waits
    uint64_t works = 0;          ///< stream: commands that gave it work
    StreamWorks settled{};       ///< stream: see SynchronousCopies
  };

  /// Returns false if the slot is taken or out of bounds: the client broke the protocol.
  bool adopt(uint64_t wire, void* object, uint16_t context) {
    const uint32_t index = handle::index(wire);
    if (index >= handle::kMaxHandles || wire == 0) return false;
    if (index >= entries_.size()) entries_.resize(index + 64);
    Entry& entry = entries_[index];
    if (entry.wire != 0) return false;
    entry = {wire, true, object, context, entry.isTouched, false, entry.isOpen};
    ++count_;
    if (object) ++live(handle::kind(wire));
    return true;
  }
  /// Returns null if the session does not own such a handle.
  Entry* find(HandleKind kind, uint64_t wire) {
    return handle::kind(wire) == kind ? const_cast<Entry*>(find(wire)) : nullptr;
  }
  const Entry* find(uint64_t wire) const {
    const uint32_t index = handle::index(wire);
    return index < entries_.size() && entries_[index].wire == wire && wire != 0 ? &entries_[index] : nullptr;
  }
  /// Whether a handle that is not found belonged to the session at some time.
  bool wasKnown(uint64_t wire) const {
    const uint32_t index = handle::index(wire);
    return index < entries_.size() && entries_[index].used;
  }
  bool drop(HandleKind kind, uint64_t wire) {
    Entry* entry = find(kind, wire);
    if (!entry) return false;
    lose(*entry);
    *entry = {0, true, nullptr, 0, entry->isTouched, false, entry->isOpen};
    --count_;
    return true;
  }
  /// Notes that the object is destroyed; the handle stays.
  void lose(Entry& entry) {
    if (std::exchange(entry.object, nullptr)) --live(handle::kind(entry.wire));
  }
  /// Number of handles of that kind that have an object.
  size_t countOf(HandleKind kind) const { return live_[static_cast<size_t>(kind) % kKinds]; }
  bool empty() const { return count_ == 0; }
  template <typename Visit>
  void each(HandleKind kind, Visit&& visit) {
    for (Entry& entry : entries_)
      if (entry.wire != 0 && handle::kind(entry.wire) == kind) visit(entry);
  }
  template <typename Visit>
  void all(Visit&& visit) const {
    for (const Entry& entry : entries_)
      if (entry.wire != 0) visit(entry);
  }
  /// Notes that the stream may have work, until a visit of eachTouched() finds otherwise.
  void touch(Entry& stream) {
    if (std::exchange(stream.isTouched, true)) return;
    touched_.push_back(handle::index(stream.wire));
  }
  /// Notes that the stream gets work.
  void open(Entry& stream) {
    touch(stream);
    ++stream.works;
    if (stream.isBlocking) ++blockingWorks_;
    if (!stream.isBlocking || std::exchange(stream.isOpen, true)) return;
    open_.push_back(handle::index(stream.wire));
  }
  bool hasOpen() const { return !open_.empty(); }
  /// Notes that the default stream gets work.
  void noteDefaultWork() { ++defaultWorks_; }
  /// Returns the works of a stream. Null: the default stream.
  StreamWorks worksOf(const Entry* stream) const {
    if (!stream) return {defaultWorks_ + blockingWorks_, defaultWorks_};
    return {stream->works, stream->isBlocking ? defaultWorks_ : 0};
  }
  /// Visits the touched streams; `visit` returns whether the stream may still have work.
  template <typename Visit>
  void eachTouched(Visit&& visit) {
    eachNoted(touched_, &Entry::isTouched, visit);
  }
  /// Visits the open streams; `visit` returns whether the stream stays open. A slot keeps its note when its stream ends, and
  /// its next stream may be a non-blocking one, which is never open.
  template <typename Visit>
  void eachOpen(Visit&& visit) {
    const auto visitBlocking = [&](const Entry& entry) { return entry.isBlocking && visit(entry); };
    eachNoted(open_, &Entry::isOpen, visitBlocking);
  }
  /// Handles created in that context.
  template <typename Visit>
  void eachOf(uint16_t context, Visit&& visit) {
    for (Entry& entry : entries_)
      if (entry.wire != 0 && entry.context == context) visit(entry);
  }

 private:
  static constexpr size_t kKinds = 16;
  template <typename Visit>
  void eachNoted(std::vector<uint32_t>& noted, bool Entry::*flag, const Visit& visit) {
    std::erase_if(noted, [&](uint32_t index) {
      Entry& entry = entries_[index];
      entry.*flag = entry.object && handle::kind(entry.wire) == HandleKind::kStream && visit(std::as_const(entry));
      return !(entry.*flag);
    });
  }
  size_t& live(HandleKind kind) { return live_[static_cast<size_t>(kind) % kKinds]; }

  std::vector<Entry> entries_;
  std::vector<uint32_t> touched_;  ///< slots whose entry is touched, each once
  std::vector<uint32_t> open_;     ///< slots whose entry is open, each once
  std::array<size_t, kKinds> live_{};
  size_t count_ = 0;            ///< of the slots in use
  uint64_t defaultWorks_ = 0;   ///< commands that gave work to the default stream, of any context
  uint64_t blockingWorks_ = 0;  ///< commands that gave work to blocking streams
};

}  // namespace millpond::worker
