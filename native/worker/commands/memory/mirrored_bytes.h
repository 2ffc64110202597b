// SPDX-License-Identifier: Apache-2.0
// Which memory of the client this worker has for it, in pages that the two mirror (HostMirror): what graphs write there stays
// here. Makes no driver calls.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "base/range_map.h"
#include "worker/commands/graphs/graph_table.h"

namespace millpond::worker {

class MirroredBytes {
 public:
  static constexpr size_t kMaxRanges = size_t{1} << 16;
  static constexpr size_t kMaxWriters = size_t{1} << 16;

  /// From now on, writes by launches there are newer than the client's contents, which have not arrived yet.
  void begin(uint64_t address, uint64_t bytes) {
    states_.set(address, bytes, kFilling);
    ++ranges_;
    ++filling_;
  }
  /// The client's contents have arrived.
  void fill(uint64_t address, uint64_t bytes) {
    states_.set(address, bytes, kFilled);
    if (filling_ == 0 || --filling_ != 0) return;
    writers_.clear();
    landed_ = {};
  }
  void end(uint64_t address, uint64_t bytes) {
    states_.erase(address, bytes, kFilling);
    states_.erase(address, bytes, kFilled);
    if (ranges_ != 0) --ranges_;
  }
  size_t ranges() const { return ranges_; }
  bool isAnyFilling() const { return filling_ != 0; }

  /// Calls `each(begin, end)` for the parts of a range that only the client has.
  template <typename Each>
  void eachOfClient(uint64_t address, uint64_t bytes, Each&& each) const {
    visit(address, bytes, [&](uint64_t begin, uint64_t end, uint64_t state) {
      if (state == 0) each(begin, end);
    });
  }
  /// The same for parts for which the worker has pages.
  template <typename Each>
  void eachOfBoth(uint64_t address, uint64_t bytes, Each&& each) const {
    visit(address, bytes, [&](uint64_t begin, uint64_t end, uint64_t state) {
      if (state != 0) each(begin, end);
    });
  }
  /// The same for parts that are not mirrored completely.
  template <typename Each>
  void eachNotFilled(uint64_t address, uint64_t bytes, Each&& each) const {
    visit(address, bytes, [&](uint64_t begin, uint64_t end, uint64_t state) {
      if (state != kFilled) each(begin, end);
    });
  }

  /// Bytes of a landing have been written there, which are newer than contents that have not arrived yet.
  void addLanded(uint64_t address, uint64_t bytes) {
    if (filling_ != 0) landed_.set(address, bytes, kWritten);
  }
  /// A copy of a launch that is in progress while contents have not arrived yet. False: there are too many.
  bool addWriter(std::shared_ptr<const GraphStage> stage) {
    writers_.insert(std::move(stage));
    return writers_.size() <= kMaxWriters;
  }
  /// Calls `each(begin, end)` for the parts of [address, address + bytes) that are being filled, and that no launch or landing writes.
  template <typename Each>
  void eachUnwritten(uint64_t address, uint64_t bytes, Each&& each) const {
    RangeMap written;
    landed_.visit(address, bytes, [&](uint64_t begin, uint64_t end, uint64_t by) {
      if (by != 0) written.set(begin, end - begin, kWritten);
    });
    for (const auto& stage : writers_)
      stage->eachRow(address, bytes, [&](uint64_t begin, uint64_t end) { written.set(begin, end - begin, kWritten); });
    states_.visit(address, bytes, [&](uint64_t first, uint64_t behind, uint64_t state) {
      if (state != kFilling) return;
      written.visit(first, behind - first, [&](uint64_t begin, uint64_t end, uint64_t by) {
        if (by == 0) each(begin, end);
      });
    });
  }

 private:
  static constexpr uint64_t kWritten = 1;
  static constexpr uint64_t kFilling = 1;
  static constexpr uint64_t kFilled = 2;

  template <typename Each>
  void visit(uint64_t address, uint64_t bytes, Each&& each) const {
    if (states_.empty())
      each(address, address + bytes, uint64_t{0});
    else
      states_.visit(address, bytes, each);
  }

  RangeMap states_;  ///< memory of the client → its state
  size_t ranges_ = 0;
  size_t filling_ = 0;
  std::set<std::shared_ptr<const GraphStage>> writers_;
  RangeMap landed_;
};

}  // namespace millpond::worker
