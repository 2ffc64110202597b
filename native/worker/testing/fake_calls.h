// SPDX-License-Identifier: Apache-2.0
// The entry points of the fake driver, by subject. Each takes the driver's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "worker/device/driver.h"

namespace millpond::worker {

class FakeDriver;

/// The parts of the fake driver to which its entry points belong.
struct FakeCalls {
  using Lock = std::lock_guard<std::mutex>;
  /// The one driver of the test.
  static FakeDriver& d();
  static std::byte* host(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

  static inline FakeDriver* current = nullptr;
  static inline thread_local unsigned boundDevice = 0;  ///< 1 + device, 0 for none
};

void fillDeviceCalls(Driver& table);
void fillMemoryCalls(Driver& table);
void fillWorkCalls(Driver& table);
void fillModuleCalls(Driver& table);

}  // namespace millpond::worker
