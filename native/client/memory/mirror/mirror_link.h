// SPDX-License-Identifier: Apache-2.0
// How the mirror talks to the worker: on streams of its own, one in each context, on which nothing but its copies runs, so that
// none of them waits for the program's work. Callers hold the mirror's lock, except for `settle`.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "protocol/client/session_client.h"

namespace millpond::client {

class HandleTable;

class MirrorLink {
 public:
  explicit MirrorLink(HandleTable& handles) : handles_(handles) {}
  /// Appends the new contents of the worker's memory.
  void push(uint16_t context, uint64_t address, std::span<const std::byte> bytes);
  /// The contents of host memory that becomes mirrored.
  static void fill(uint16_t context, uint64_t address, std::span<const std::byte> bytes);
  /// As `push`, for zeros.
  void clear(uint16_t context, uint64_t address, uint64_t bytes);
  /// Orders later work of a stream after everything pushed.
  void order(uint16_t context, uint64_t stream);
  /// Waits until all that was pushed is there.
  void awaitPushed();
  /// Reads memory of the worker with its present contents. Without success, the contents of `to` are undefined.
  int32_t fetch(uint16_t context, uint64_t address, std::span<std::byte> to);
  /// The streams that were ordered, and therefore may have work.
  std::vector<uint64_t> streams() const;
  /// Waits until all contexts have finished their work; if a capture forbids waiting for a whole context, the given
  /// streams.
  void settle(const std::vector<uint64_t>& streams) const;
  /// The context has ended, and its stream with it.
  void forget(uint16_t context);

 private:
  struct Side {
    uint64_t stream = 0;
    uint64_t event = 0;   ///< behind what was pushed last
    uint64_t pushes = 0;  ///< batches so far
    bool isOpen = false;  ///< data was pushed since the event was recorded
    bool isFailed = false;
  };
  /// Null if there can be none.
  Side* side(uint16_t context);

  HandleTable& handles_;
  std::map<uint16_t, Side> sides_;
  /// By stream, or by number of the context for its legacy stream: the number of batches that its next work follows.
  std::unordered_map<uint64_t, uint64_t> ordered_;
  uint64_t pushes_ = 0;  ///< of all sides
};

}  // namespace millpond::client
