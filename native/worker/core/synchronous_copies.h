// SPDX-License-Identifier: Apache-2.0
// Order of synchronous copies and of later work in streams that the driver does not order with theirs. A program takes the
// bytes to be there when the call has returned; here the call returns when the command is sent, and the copy may be under way.
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

  /// Asked before the copy: whether later work of other streams waits for it. Behind other work a card's call returns before
  /// its copy has begun, and what that work waits for may be in one of those streams. `works`: the commands of the copy that
  /// have given the stream work already.
  bool orders(const Stream& stream, uint64_t works) {
    return captures_.empty() && handles_.countOf(HandleKind::kStream) != 0 &&
           (isSettled(stream, works) || driver_.cuStreamQuery(stream.handle) == CUDA_SUCCESS);
  }
  /// The copy, which orders later work, was issued to that stream.
  void issued(const Stream& stream);

  StreamWorks worksOf(const Stream& stream) { return handles_.worksOf(entryOf(stream)); }
  /// Notes that the first `works` commands are done. A query does not always show it: events of the gate count as work.
  void settle(const Stream& stream, const StreamWorks& works);

  /// A copy of several commands, which the client numbers: before the first and behind the last one.
  void begin(const Stream& stream, uint64_t copy);
  void end(const Stream& stream, uint64_t copy);
  bool isPending() const { return last_.has_value(); }
  /// Orders work that the stream is about to get.
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
  /// Copies that threads of a program make at the same time, at most: further ones are not ordered.
  static constexpr size_t kMostBegun = 256;

  HandleMap::Entry* entryOf(const Stream& stream) {
    return stream.wire ? handles_.find(HandleKind::kStream, stream.wire) : nullptr;
  }
  /// Whether all work that the stream has had, without the last `works` commands, is done or is such copies.
  bool isSettled(const Stream& stream, uint64_t works);
  /// Forgets the last copy if it is done. Returns whether it was.
  bool isDone();

  const Driver& driver_;
  Contexts& contexts_;
  HandleMap& handles_;
  const OpenCaptures& captures_;
  Marks& marks_;
  std::optional<Copy> last_;  ///< one that may be under way; those before it are done when it is
  uint64_t copies_ = 0;
  std::vector<Begun> begun_;  ///< those that order later work
  /// What is done of the default stream of one context, or is such copies; of another stream: Entry::settled.
  StreamWorks settled_;
  uint16_t settledContext_ = 0;
};

}  // namespace millpond::worker
