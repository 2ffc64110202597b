// SPDX-License-Identifier: Apache-2.0
// The order between synchronous copies and later work of streams that the driver does not order with them. A program assumes that
// the bytes have arrived when the call returns; here the call returns when the command is sent, and the copy may be in progress.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/core/marks.h"

namespace millpond::worker {

class SynchronousCopies {
 public:
  SynchronousCopies(const Driver& driver, Contexts& contexts, HandleMap& handles, const OpenCaptures& captures,
                    Marks& marks)
      : driver_(driver), contexts_(contexts), handles_(handles), captures_(captures), marks_(marks) {}

  /// Whether later work of other streams must wait for a copy that is about to be issued. If its stream has other work, a card's
  /// call returns before its copy has begun, and that work may wait for work of those streams. `works`: how many commands of
  /// the copy have already been counted as work of the stream.
  bool orders(const Stream& stream, uint64_t works) {
    return captures_.empty() && handles_.countOf(HandleKind::kStream) != 0 &&
           (isSettled(stream, works) || driver_.cuStreamQuery(stream.handle) == CUDA_SUCCESS);
  }
  /// Notes that the copy, for which later work must wait, was issued to that stream.
  void issued(const Stream& stream);

  StreamWorks worksOf(const Stream& stream) { return handles_.worksOf(entryOf(stream)); }
  /// Notes that the first `works` commands are done. A query does not always show it: events of the gate count as work.
  void settle(const Stream& stream, const StreamWorks& works);

  /// Called before the first and after the last command of a copy of several commands, with the client's number of the copy.
  void begin(const Stream& stream, uint64_t copy);
  void end(const Stream& stream, uint64_t copy);
  bool isPending() const { return last_.has_value(); }
  /// Makes the stream wait, if it must, before it gets its next work.
  void order(const Stream& stream, HandleMap::Entry& entry);
  void forgetContext(uint16_t number) {
    if (last_) last_->mark.forgetContext(number);
  }

 private:
  struct Copy {
    Mark mark;
    Stream stream;
    uint64_t number;
  };
  struct Begun {
    uint64_t copy;
    uint64_t stream;
  };
  /// The maximum number of such copies that threads of a program make at the same time; further ones are not ordered.
  static constexpr size_t kMostBegun = 256;

  HandleMap::Entry* entryOf(const Stream& stream) {
    return stream.wire ? handles_.find(HandleKind::kStream, stream.wire) : nullptr;
  }
  /// Whether all work of the stream except for the last `works` commands is done or consists of such copies.
  bool isSettled(const Stream& stream, uint64_t works);
  /// Forgets the last copy if it is done. Returns whether it was.
  bool isDone();

  const Driver& driver_;
  Contexts& contexts_;
  HandleMap& handles_;
  const OpenCaptures& captures_;
  Marks& marks_;
  std::optional<Copy> last_;  ///< the last one, possibly in progress; when it is done, so are those before it
  uint64_t copies_ = 0;
  std::vector<Begun> begun_;  ///< those that order later work
  /// How much of the default stream's work, in one context, is done or consists of such copies. For other streams see
  /// Entry::settled.
  StreamWorks settled_;
  uint16_t settledContext_ = 0;
};

}  // namespace millpond::worker
