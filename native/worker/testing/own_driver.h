// SPDX-License-Identifier: Apache-2.0
// The software GPU inside of this very process, for tests that have more sessions than processes: its addresses are the
// same in each session, and what a session leaves behind, as workers do that end with their process, is taken away.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/device/driver.h"
#include "worker/device/session_devices.h"

namespace millpond::worker {

class OwnDriver {
 public:
  /// Of each device, for one session.
  static constexpr uint64_t kLimit = uint64_t{16} << 20;

  /// The one of this process; the program must have been linked with the software GPU.
  static OwnDriver& instance();

  const Driver& table() const { return table_; }
  /// Every device of the software GPU.
  static std::vector<DeviceShare> shares(const Driver& table);
  /// Ends what still runs, also what would never end by itself. From any thread.
  void cancel();
  /// Ends all contexts: from here on nothing runs on the devices.
  void quieten();
  /// Makes the driver as new, behind `quieten`. Host memory that is registered still is unmapped, but for `others`.
  void reset(std::span<const void* const> others);

 private:
  OwnDriver();

  Driver table_;
};

}  // namespace millpond::worker
