// SPDX-License-Identifier: Apache-2.0
// How much the program may give its streams while a stream may come to a function of the program. A card's driver takes
// about a thousand launches, and makes the call of the next one wait; where that is the worker's, which serves all threads
// and tells of the end of such a function, it would wait for itself. So it is the program's call that waits, as on a card.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "cuda/gen/cuda_api.h"
#include "protocol/gen/commands.h"

namespace millpond::client {

class Call;

/// Whether a command takes one of the places in a stream's queue. Events, and functions of the program, take none.
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
  static QueueBound& instance() noexcept;
  /// Before a command of `bytes` bytes is given to a stream, while functions of the program may be awaited: waits until
  /// there is room for it. Without any lock of the session: other threads go on.
  CUresult admit(Call& call, uint64_t stream, size_t bytes) noexcept;

 private:
  /// What was given to a stream, and may be waiting in it.
  struct Lane {
    size_t count = 0;
    size_t bytes = 0;     ///< of what lies in the queue itself
    uint64_t drains = 0;  ///< how often lanes had been found empty when this one began
  };
  using Key = std::pair<uint16_t, uint64_t>;  ///< context and stream
  bool take(const Key& key, size_t bytes);
  /// Whether the card has a place for one more: streams share its channels.
  bool hasPlace(const Key& key, const Lane& lane) const;
  void emptied(const Key& key, const Lane& before, uint64_t epoch);
  /// Asks which of the other streams have nothing left.
  CUresult lookAtOthers(Call& call, const Key& own);

  std::mutex mutex_;
  uint64_t epoch_ = 0;  ///< of the functions that the lanes are behind
  std::map<Key, Lane> lanes_;
  uint64_t drains_ = 0;
};

}  // namespace millpond::client
