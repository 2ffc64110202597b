// SPDX-License-Identifier: Apache-2.0
// Bounds the work of streams that may reach a function of the program, or a wait for a word. A card's driver queues about a thousand
// launches, and blocks the next call. If the worker blocked, which serves all threads and reports the end of such a
// function, and receives the commands that write the word, it would deadlock with itself. So the program's call blocks instead, as on a card.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "client/memory/command_sink.h"
#include "client/state/handle_table.h"
#include "cuda/gen/cuda_api.h"
#include "protocol/gen/commands.h"
#include "protocol/word_waits.h"

namespace millpond::client {

/// Whether a command records an event, which takes a place in a stream's queue if the event has timing.
constexpr bool isRecord(cmd::Op op) noexcept {
  return op == cmd::Op::kEventRecord || op == cmd::Op::kEventRecordWithFlags;
}

/// Whether a command takes a place in a stream's queue. Waits for events and functions of the program do not.
constexpr bool isQueued(cmd::Op op) noexcept {
  switch (op) {
    case cmd::Op::kCopyToDevice:
    case cmd::Op::kStreamBatchMemOpV2:
    case cmd::Op::kStreamWaitValue32V2:
    case cmd::Op::kStreamWaitValue64V2:
    case cmd::Op::kStreamWriteValue32V2:
    case cmd::Op::kStreamWriteValue64V2: return true;
    default: return cmd::isWork(op);
  }
}

class QueueBound {
 public:
  explicit QueueBound(HandleTable& handles) : handles_(handles) {}
  /// Called before a wait for a word is sent to a stream. Starts counting commands, until every counted stream has been
  /// found empty.
  void expectWord() noexcept { hasWords_.store(true, std::memory_order_relaxed); }
  bool hasWords() const noexcept { return hasWords_.load(std::memory_order_relaxed); }
  /// Called before a command of `bytes` bytes for a stream, while functions of the program may be pending, or streams may
  /// wait for words: waits until there is room. Called without any lock of the session, so that other threads continue.
  CUresult admit(const CommandSink& call, uint64_t stream, size_t bytes) noexcept;

 private:
  /// Work of a stream that may be waiting in its queue.
  struct Lane {
    size_t count = 0;
    size_t bytes = 0;     ///< stored in the queue itself
    uint64_t drains = 0;  ///< how often lanes had been found empty when this one began
  };
  using Key = std::pair<uint16_t, uint64_t>;  ///< context and stream
  bool take(const Key& key, size_t bytes);
  /// Whether the card has room for another command: streams share its channels.
  bool hasPlace(const Key& key, const Lane& lane) const;
  void emptied(const Key& key, const Lane& before, uint64_t generation);
  /// Queries which of the other streams are empty.
  CUresult lookAtOthers(const CommandSink& call, const Key& own);

  HandleTable& handles_;
  std::mutex mutex_;
  uint64_t epoch_ = 0;       ///< of the functions ahead of the lanes
  uint64_t generation_ = 0;  ///< of the lanes
  std::map<Key, Lane> lanes_;
  uint64_t drains_ = 0;
  std::atomic<bool> hasWords_{false};
};

}  // namespace millpond::client
