// SPDX-License-Identifier: Apache-2.0
// The software GPU inside this process, for tests that have more sessions than processes: its addresses are the same in
// each session, and objects that a session leaves behind (as workers do, which end with their process) are removed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/device/driver.h"
#include "worker/device/session_devices.h"

namespace millpond::worker {

class OwnDriver {
 public:
  /// For each device, for one session.
  static constexpr uint64_t kLimit = uint64_t{16} << 20;

  /// Takes part in the devices of other processes, of 64 MiB each, instead of having some of its own. Called before `instance`.
  static void share(const std::string& state, int devices);
  /// The instance of this process; the program must be linked with the software GPU.
  static OwnDriver& instance();

  const Driver& table() const { return table_; }
  /// Every device of the software GPU.
  static std::vector<DeviceShare> shares(const Driver& table);
  /// Ends running work, even if it would never end by itself. May be called on any thread.
  void cancel();
  /// Ends all contexts: nothing runs on the devices from now on.
  void quieten();
  /// Resets the driver, after `quieten`. Host memory that is still registered is unmapped, except for `others`.
  void reset(std::span<const void* const> others);

 private:
  OwnDriver();

  Driver table_;
};

}  // namespace millpond::worker
