// SPDX-License-Identifier: Apache-2.0
// Copies from commands to the device, which reads them directly from the ring, registered with the driver.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "worker/commands/copies/stream_reads.h"
#include "worker/commands/memory/host_buffers.h"
#include "worker/commands/memory/host_copies.h"
#include "worker/core/function_order.h"
#include "worker/core/session_part.h"
#include "worker/memory/address_gate.h"

namespace millpond::worker {

class Uploads : private SessionPart {
 public:
  Uploads(SessionCore& session, AddressGate& addresses, HostBuffers& buffers, HostCopies& hostCopies,
          FunctionOrder& order, StreamReads& reads)
      : SessionPart(session),
        addresses_(addresses),
        buffers_(buffers),
        hostCopies_(hostCopies),
        order_(order),
        reads_(reads) {}

  CUresult onCopyToDevice(const cmd::Decoded<cmd::CopyToDevice>& command);

  /// Whether no copy reads the ring any more, and none is awaited.
  bool empty() const { return holds_.empty() && !awaited_; }
  /// Whether later commands must not begin yet, because a copy is awaited that is not done.
  bool isAwaited() {
    if (!awaited_) [[likely]]
      return false;
    if (marks_.happened(*awaited_) == CUDA_ERROR_NOT_READY) return true;
    marks_.giveBack(*awaited_);
    awaited_.reset();
    return false;
  }
  /// Forgets the copies that are done.
  void progress() {
    while (!holds_.empty() && marks_.happened(holds_.front().mark) != CUDA_ERROR_NOT_READY) {
      marks_.giveBack(holds_.front().mark);
      holds_.pop_front();
    }
  }
  /// The offset in the stream of commands up to which no copy reads any more, at most `read`.
  uint64_t doneUpTo(uint64_t read) const { return holds_.empty() ? read : std::min(read, holds_.front().start); }
  void forgetContext(uint16_t number) {
    for (Hold& each : holds_) each.mark.forgetContext(number);
    if (awaited_) awaited_->forgetContext(number);
  }

 private:
  CUresult copy(const cmd::CopyToDevice& copy, std::span<const std::byte> data, const Stream& s);

  /// Ring bytes that a copy still reads.
  struct Hold {
    uint64_t start;
    Mark mark;
  };

  void hold(const Hold& hold);
  /// Whether few blocks of the lanes are left, after those that are read have been released.
  bool areLanesLow();

  AddressGate& addresses_;
  HostBuffers& buffers_;
  HostCopies& hostCopies_;
  FunctionOrder& order_;
  StreamReads& reads_;
  std::deque<Hold> holds_;       ///< by `start`
  std::optional<Mark> awaited_;  ///< behind the copy that is done before later commands begin
  std::vector<std::byte> small_;
};

}  // namespace millpond::worker
