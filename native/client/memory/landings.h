// SPDX-License-Identifier: Apache-2.0
// The memory of this process with pending landings, that is, bytes in transit without a waiting call: from asynchronous
// copies of a device on another host, and from launches of graphs. Its contents differ from those that the program's
// streams see, so code that reads it for a stream consults this class.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/range_map.h"
#include "cuda/gen/cuda_api.h"
#include "protocol/condition.h"

namespace millpond::client {

class CommandSink;

class Landings {
 public:
  struct Range {
    uint64_t address = 0;
    uint64_t bytes = 0;
    bool isWhole = true;  ///< every byte of it is written
  };
  enum class Source : uint8_t {
    kCopy,
    kGraph,  ///< the worker's graphs have the bytes without receiving them
  };

  /// Whether any is pending. Costs one read.
  bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }

  /// The number of a landing that is about to begin. Threads that wait for the landing first wait for `markSent`.
  /// `isHeld`: it may wait for later calls of the program.
  uint64_t begin(Source source, std::span<const Range> ranges, bool isHeld = false);
  void markSent(uint64_t number);
  /// The landing is over. May also be called on the thread that reads the worker's messages.
  void end(uint64_t number) noexcept;
  /// The first pending landing of a copy, if with `more` further bytes the worker would hold more than `most` bytes of
  /// such landings; otherwise 0.
  uint64_t firstOver(uint64_t more, uint64_t most) const noexcept;
  /// The first pending landing of a copy, held or not, that writes to any of this memory; 0: none.
  uint64_t firstCopyTo(uint64_t address, uint64_t bytes, bool isHeld) const noexcept;
  /// All landings of lower numbers are over, and no command in transit names them.
  uint64_t over() const noexcept;

  /// Bytes as a stream sees them: with the number of the landing that brings them, or 0 if they have arrived.
  struct Part {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t landing = 0;
    Source source = Source::kCopy;
    bool isWhole = true;  ///< the worker has the bytes in one piece
    uint64_t begun = 0;   ///< HostFunctions::given() when the landing began
  };
  /// The parts of a range. While this object exists, the worker keeps the bytes of the landings.
  class Parts {
   public:
    Parts(Landings& landings, uint64_t address, uint64_t bytes);
    ~Parts();
    Parts(const Parts&) = delete;
    Parts& operator=(const Parts&) = delete;
    std::vector<Part>::const_iterator begin() const { return parts_.begin(); }
    std::vector<Part>::const_iterator end() const { return parts_.end(); }

   private:
    Landings& landings_;
    std::vector<Part> parts_;
  };

  /// Waits until nothing is in transit to any of that memory.
  CUresult await(const CommandSink& call, uint64_t address, uint64_t bytes);
  /// The same for bytes of copies that do not wait for the program.
  CUresult awaitCopies(const CommandSink& call, uint64_t address, uint64_t bytes);
  CUresult await(const CommandSink& call, uint64_t number);
  /// If the worker keeps much data for finished landings: the number to send in LandingsOver. For calls that have
  /// waited.
  std::optional<uint64_t> takeReport() noexcept {
    if (untold_.load(std::memory_order_relaxed) < kMuchBytes) [[likely]]
      return std::nullopt;
    untold_.store(0, std::memory_order_relaxed);
    return over();
  }

 private:
  /// The most bytes of finished landings that the worker keeps before it gets a message; each landing counts as at
  /// least a page.
  static constexpr uint64_t kMuchBytes = uint64_t{1} << 20;
  static constexpr uint64_t kLeastBytes = 4096;

  struct UnderWay {
    Source source = Source::kCopy;
    uint64_t begun = 0;
    std::vector<Range> ranges;
    bool isHeld = false;
    bool isSent = false;
  };
  uint64_t overLocked() const;

  mutable std::mutex mutex_;
  Condition sent_;
  uint64_t last_ = 0;
  uint64_t copied_ = 0;  ///< bytes of pending landings of copies
  std::map<uint64_t, UnderWay> underWay_;
  RangeMap ranges_;                ///< address → the landing that writes there last
  std::multiset<uint64_t> named_;  ///< landings that commands are about to name
  std::atomic<uint64_t> count_{0};
  std::atomic<uint64_t> untold_{0};  ///< bytes of landings that are over
};

}  // namespace millpond::client
