// SPDX-License-Identifier: Apache-2.0
// Memory of replies over TCP that may have to be resent: staging chunks, and buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "worker/commands/memory/host_buffers.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

/// Replies over TCP with at least this much data are sent without a copy, and the memory stays until the client has
/// acknowledged them. Smaller ones are copied, so that unacknowledged replies never hold many chunks.
inline constexpr size_t kLentBytes = size_t{128} << 10;

class LentReplies : private SessionPart {
 public:
  explicit LentReplies(SessionCore& session) : SessionPart(session) {}

  /// Notes that the last reply was sent from that memory, which stays until the client has received it.
  void add(uint32_t chunk) { all_.push_back({link_.replied(), chunk, {}}); }
  void add(std::shared_ptr<const HostBuffer> buffer) {
    all_.push_back({link_.replied(), std::nullopt, std::move(buffer)});
  }
  size_t size() const { return all_.size(); }
  /// Releases the memory of replies that the client has received. Returns whether there were any.
  bool progress() {
    bool some = false;
    for (; !all_.empty() && all_.front().end <= link_.acknowledged(); all_.pop_front()) {
      const Lent& lent = all_.front();
      if (lent.chunk) link_.memory().control().chunkBusy[*lent.chunk].store(0, std::memory_order_relaxed);
      some = true;
    }
    return some;
  }

 private:
  struct Lent {
    uint64_t end;  ///< offset of its end in the stream of replies
    std::optional<uint32_t> chunk;
    std::shared_ptr<const HostBuffer> buffer;
  };

  std::deque<Lent> all_;
};

}  // namespace millpond::worker
