// SPDX-License-Identifier: Apache-2.0
// Memory of this worker that streams still read.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "worker/core/marks.h"

namespace millpond::worker {

class StreamReads {
 public:
  explicit StreamReads(Marks& marks) : marks_(marks) {}

  bool empty() const { return all_.empty(); }
  /// Keeps memory until that mark, before which a stream reads it.
  void add(const Mark& mark, std::shared_ptr<const void> keeper) { all_.push_back({mark, std::move(keeper)}); }
  /// Releases memory that was read. Returns whether there was any.
  bool progress() {
    const size_t before = all_.size();
    std::erase_if(all_, [&](const Read& each) {
      if (marks_.happened(each.mark) == CUDA_ERROR_NOT_READY) return false;
      marks_.giveBack(each.mark);
      return true;
    });
    return all_.size() != before;
  }
  void forgetContext(uint16_t number) {
    for (Read& each : all_) each.mark.forgetContext(number);
  }

 private:
  struct Read {
    Mark mark;
    std::shared_ptr<const void> keeper;
  };

  Marks& marks_;
  std::deque<Read> all_;
};

}  // namespace millpond::worker
