// SPDX-License-Identifier: Apache-2.0
// A byte ring for one producer and one consumer, in memory that two processes may share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/futex.h"
#include "protocol/rings/failure_slots.h"
#include "protocol/wire.h"

namespace millpond {

/// The state of a ring's consumer. A producer may set it back to `kAwake` from `kAsleep` and `kClosing`, never from
/// `kClosed`.
enum RingConsumerState : uint32_t {
  kAwake = 0,
  kAsleep = 1,
  kClosing = 2,  ///< about to close, unless something arrives
  kClosed = 3,   ///< published data that was not taken will never be taken
};

/// The shared words of a ring. Offsets count bytes since the session began.
struct RingControl {
  alignas(64) std::atomic<uint64_t> head;  ///< published by the producer
  alignas(64) std::atomic<uint64_t> tail;  ///< released by the consumer
  alignas(64) std::atomic<uint32_t> consumerState;
  alignas(64) std::atomic<uint32_t> producerSleeps;
};

/// First page of the shared region.
struct SharedControl {
  RingControl submit;
  RingControl reply;
  alignas(64) std::atomic<uint32_t> chunkBusy[wire::kStagingChunks];  ///< 1 until the client has copied the chunk
  alignas(64) FailureSlots failures;         ///< failures of commands without a waiting thread, not reported yet
  alignas(64) std::atomic<uint32_t> closed;  ///< 1: the other side is gone, stop waiting
};
static_assert(sizeof(SharedControl) <= 4096);

/// Wakes the consumer if it sleeps, and keeps one open that is about to close. Returns false if it has closed.
inline bool wakeConsumer(RingControl& control) {
  uint32_t state = control.consumerState.load(std::memory_order_seq_cst);
  while (state == kAsleep || state == kClosing) {
    if (!control.consumerState.compare_exchange_weak(state, kAwake, std::memory_order_seq_cst)) continue;
    futexWake(control.consumerState);
    return true;
  }
  return state != kClosed;
}
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// Control page, submit ring, reply ring and staging chunks of one session, in one memory file. The rings are mapped
/// twice in a row, so that any range of bytes in them is contiguous.
class SessionMemory {
 public:
  /// Creates the memory. The file is sealed, so neither side can shrink it under the other.
  static Result<SessionMemory> create();
  /// Maps memory that the other side created; its size and seals are checked.
  static Result<SessionMemory> map(UniqueFd file);

  SessionMemory() = default;
  SessionMemory(SessionMemory&& other) noexcept;
  SessionMemory& operator=(SessionMemory&& other) noexcept;
  ~SessionMemory();

  int file() const { return file_.get(); }
  SharedControl& control() const { return *control_; }
  std::byte* submit() const { return submit_; }
  std::byte* reply() const { return reply_; }
  std::byte* chunk(uint32_t index) const { return staging_ + size_t{index} * wire::kChunkBytes; }
  /// The runs that device copies read or write directly, to be registered with the driver.
  std::span<std::byte> submitRun() const { return {submit_, 2 * wire::kSubmitBytes}; }
  std::span<std::byte> stagingRun() const { return {staging_, wire::kChunkBytes * wire::kStagingChunks}; }
  /// Keeps the mapping out of forked children.
  void excludeFromFork() const;
  /// Maps other memory, created or mapped before, at the addresses of this one. After a failure neither is usable.
  Status replace(SessionMemory other) { return mapAt(std::move(other.file_)); }

 private:
  static Result<SessionMemory> mapFile(UniqueFd file);
  static Status check(const UniqueFd& file);
  /// Replaces any mapping there.
  Status mapAt(UniqueFd file);

  UniqueFd file_;
  std::byte* base_ = nullptr;
  size_t mapped_ = 0;
  SharedControl* control_ = nullptr;
  std::byte* submit_ = nullptr;
  std::byte* reply_ = nullptr;
  std::byte* staging_ = nullptr;
};

class RingProducer {
 public:
  RingProducer() = default;
  RingProducer(RingControl& control, std::byte* bytes, size_t capacity)
      : control_(&control),
        bytes_(bytes),
        capacity_(capacity),
        head_(control.head.load()),
        knownTail_(control.tail.load()) {
    if (head_ - knownTail_ <= capacity_) return;
    knownTail_ = head_ - capacity_;
    isBroken_ = true;
  }

  size_t capacity() const { return capacity_; }
  uint64_t head() const { return head_; }
  /// Free bytes, never more than the capacity, whatever the consumer reports.
  size_t space() {
    look(std::memory_order_acquire);
    return known();
  }
  bool hasSpace(size_t bytes) {
    if (known() >= bytes) return true;
    look(std::memory_order_acquire);
    return known() >= bytes;
  }
  /// The consumer has reported an impossible position: more than was published, or less than before. There will be no
  /// more space.
  bool isBroken() const { return isBroken_; }
  /// The place of the next bytes; contiguous for up to `capacity`. Call it only with that much space.
  std::byte* place() const { return bytes_ + head_ % capacity_; }
  void advance(size_t bytes) {
    claimAhead(bytes);
    head_ += bytes;
  }
  /// Takes back data published after `offset`. Only if the consumer is this same thread.
  void retract(uint64_t offset) {
    head_ = offset;
    control_->head.store(offset, std::memory_order_release);
  }
  /// Publishes everything advanced over, and wakes the consumer if it sleeps. Returns false if it closed the ring
  /// before, and takes none of it.
  bool publish() {
    // Sequentially consistent with the consumer's transition to sleep or closing: either it sees the head, or this
    // thread sees its state.
    control_->head.store(head_, std::memory_order_seq_cst);
    return control_->consumerState.load(std::memory_order_seq_cst) == kAwake || wakeConsumer(*control_);
  }
  /// Sleeps until the consumer releases something, at most `timeoutNs`.
  void sleepForSpace(size_t bytes, int64_t timeoutNs) {
    control_->producerSleeps.store(1, std::memory_order_seq_cst);
    look(std::memory_order_seq_cst);
    if (!isBroken_ && !hasSpace(bytes)) futexWait(control_->producerSleeps, 1, timeoutNs);
    control_->producerSleeps.store(0, std::memory_order_relaxed);
  }

 private:
  /// Prefetches, for writing, the cache lines of the frames after the next. The consumer has read them since they were
  /// last written, so each write would wait for its processor, and publishing waits for all writes before it.
  void claimAhead(size_t bytes) const {
    constexpr size_t kLine = 64;
    constexpr size_t kAhead = 8 * kLine;  // three launches
    constexpr size_t kMost = 8 * kLine;   // longer frames are written faster than they can be prefetched
    const uint64_t begin = (head_ + kAhead) / kLine * kLine;
    const uint64_t end = head_ + kAhead + (bytes < kMost ? bytes : kMost);
    for (uint64_t at = begin; at < end; at += kLine) claimLine(bytes_ + at % capacity_);
  }
  static void claimLine(const std::byte* line) { asm volatile("prefetchw %0" : : "m"(*line)); }

  size_t known() const { return capacity_ - static_cast<size_t>(head_ - knownTail_); }
  /// A tail is accepted only between the last one and the head, so `head_ - knownTail_` never exceeds the capacity.
  void look(std::memory_order order) {
    const uint64_t tail = control_->tail.load(order);
    isBroken_ = isBroken_ || tail - knownTail_ > head_ - knownTail_;
    if (!isBroken_) knownTail_ = tail;
  }

  RingControl* control_ = nullptr;
  std::byte* bytes_ = nullptr;
  size_t capacity_ = 0;
  uint64_t head_ = 0;
  uint64_t knownTail_ = 0;
  bool isBroken_ = false;
};

class RingConsumer {
 public:
  RingConsumer() = default;
  RingConsumer(RingControl& control, std::byte* bytes, size_t capacity)
      : control_(&control),
        bytes_(bytes),
        capacity_(capacity),
        read_(control.tail.load()),
        seen_(read_),
        released_(read_) {}

  /// Bytes ready to be read; more than the capacity if the producer misbehaves (check it).
  size_t available() const { return static_cast<size_t>(control_->head.load(std::memory_order_acquire) - read_); }
  /// The same, if only `enough` matters: the head, whose cache line the producer writes with each frame, is read only
  /// when the bytes seen before do not suffice.
  size_t available(size_t enough) {
    if (seen_ - read_ < enough) seen_ = read_ + available();
    return static_cast<size_t>(seen_ - read_);
  }
  size_t capacity() const { return capacity_; }
  uint64_t position() const { return read_; }
  std::byte* data() const { return bytes_ + read_ % capacity_; }
  void skip(size_t bytes) {
    read_ += bytes;
    if (seen_ < read_) seen_ = read_;
  }
  /// The producer has taken back bytes that this side had seen.
  void retracted() { seen_ = read_; }
  /// Reads everything again that was not released.
  void rewind() { read_ = released_; }
  /// Releases everything before `offset` to the producer.
  void release(uint64_t offset) {
    if (offset == released_) return;
    released_ = offset;
    control_->tail.store(offset, std::memory_order_seq_cst);
    if (control_->producerSleeps.load(std::memory_order_seq_cst) != 0) {
      control_->producerSleeps.store(0, std::memory_order_relaxed);
      futexWake(control_->producerSleeps);
    }
  }
  uint64_t released() const { return released_; }
  /// Sleeps until the producer publishes something, at most `timeoutNs`. `isWoken`: set by other threads of this process before
  /// they wake the consumer, which may be about to sleep.
  void sleep(int64_t timeoutNs, const std::atomic<bool>* isWoken = nullptr) {
    control_->consumerState.store(kAsleep, std::memory_order_seq_cst);
    if (control_->head.load(std::memory_order_seq_cst) == read_ &&
        !(isWoken && isWoken->load(std::memory_order_seq_cst)))
      futexWait(control_->consumerState, kAsleep, timeoutNs);
    control_->consumerState.store(kAwake, std::memory_order_relaxed);
  }
  /// Closes the ring: the next publishing producer sees it. Returns false, and changes nothing, if there are commands
  /// that were not taken and released, or some arrive at this moment.
  bool close() {
    if (released_ != read_) return false;
    control_->consumerState.store(kClosing, std::memory_order_seq_cst);
    uint32_t closing = kClosing;
    if (control_->head.load(std::memory_order_seq_cst) == read_)
      return control_->consumerState.compare_exchange_strong(closing, kClosed, std::memory_order_seq_cst);
    control_->consumerState.store(kAwake, std::memory_order_relaxed);
    return false;
  }

 private:
  RingControl* control_ = nullptr;
  std::byte* bytes_ = nullptr;
  size_t capacity_ = 0;
  uint64_t read_ = 0;
  uint64_t seen_ = 0;  ///< the head when it was last read, at least `read_`
  uint64_t released_ = 0;
};

}  // namespace millpond
