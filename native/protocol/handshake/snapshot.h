// SPDX-License-Identifier: Apache-2.0
// Properties of the devices that a client receives once, when it connects, and uses for all later queries.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace millpond {

/// Attribute ids run from 1 to below this; the 13.0 header ends at 147.
inline constexpr int kDeviceAttributeLimit = 160;
/// Value of an attribute that the driver refused to return.
inline constexpr int32_t kNoAttribute = INT32_MIN;

/// One virtual device: the physical one's properties with the session's limits applied.
struct DeviceSnapshot {
  std::string name;
  std::array<uint8_t, 16> uuid{};
  uint64_t memoryBytes = 0;  ///< the vGPU's limit: cuDeviceTotalMem
  uint32_t computePercent = 100;
  std::array<int32_t, kDeviceAttributeLimit> attributes{};  ///< indexed by CUdevice_attribute
  int32_t leastStreamPriority = 0;
  int32_t greatestStreamPriority = 0;
};

struct ErrorText {
  int32_t code = 0;
  std::string name;  ///< "CUDA_ERROR_INVALID_VALUE"
  std::string text;  ///< "invalid argument"
};

struct Snapshot {
  int32_t driverVersion = 0;  ///< 13000 for CUDA 13.0
  std::vector<DeviceSnapshot> devices;
  std::vector<ErrorText> errors;

  std::vector<std::byte> encode() const;
  static Result<Snapshot> decode(std::span<const std::byte> bytes);
};

/// Describes how the devices of `other` differ in kind; empty: they are of the same kind. Their identity and the amounts that
/// were granted may differ.
std::string differenceOfKind(const Snapshot& own, const Snapshot& other);

}  // namespace millpond
