// SPDX-License-Identifier: Apache-2.0
// The activity of the device for a session, as lines of text (docs/reference/profile.md).
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cuda/cupti.h"

namespace millpond::worker {

/// Filled by a thread of CUPTI, and emptied by the one that issues the session's commands.
class ProfileLines {
 public:
  /// Limit of the lines kept for a client that does not fetch them.
  static constexpr size_t kMostBytes = size_t{64} << 20;

  /// The driver's numbers of the devices; lines refer to each by its position. None: lines have the driver's numbers.
  void nameDevices(std::vector<int> devices);

  void add(const cupti::KernelRecord& kernel);
  void add(const cupti::CopyRecord& copy);
  void add(const cupti::PeerCopyRecord& copy);
  void add(const cupti::FillRecord& fill);
  /// The command of the session for which the work with this number is submitted.
  void addCommand(uint32_t correlation, uint32_t thread, uint64_t position);
  /// Lost records.
  void lose(uint64_t records);

  struct Page {
    std::string lines;  ///< whole ones
    uint64_t lost = 0;  ///< records, since the beginning
    bool hasMore = false;
  };
  /// The first lines, together at most `mostBytes`, which are dropped here.
  Page take(size_t mostBytes);

 private:
  /// The number of a name, whose line comes before those that use it.
  uint32_t numberOf(const char* name);
  void append(std::string_view line);
  uint32_t placeOf(uint32_t device) const;

  std::mutex mutex_;
  std::string lines_;
  size_t taken_ = 0;
  uint64_t lost_ = 0;
  std::unordered_map<std::string, uint32_t> names_;
  std::vector<int> devices_;
};

}  // namespace millpond::worker
