// SPDX-License-Identifier: Apache-2.0
// The parts of a device that work at the same time, each shared by claims for itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "worker/claim/share.h"

namespace millpond::worker::gate {

enum class Lane : uint32_t {
  kCompute,
  kToDevice,    ///< copies from host memory
  kFromDevice,  ///< copies to host memory
};
inline constexpr std::array kLanes{Lane::kCompute, Lane::kToDevice, Lane::kFromDevice};

/// Ending of the gate's file.
constexpr const char* suffixOf(Lane lane) {
  switch (lane) {
    case Lane::kToDevice: return ".to-device";
    case Lane::kFromDevice: return ".from-device";
    case Lane::kCompute: break;
  }
  return "";
}

/// The share of a lane. The bus is not reserved: every claim may also use the time that the others leave there. One copy
/// may take long, and copies of many processes proceed together, so what they take beyond the share is repaid.
constexpr Share shareOf(Lane lane, Share compute) {
  if (lane == Lane::kCompute || compute.serviceClass == ServiceClass::kBestEffort) return compute;
  return {ServiceClass::kBurstable, compute.percent, compute.priority, true};
}

}  // namespace millpond::worker::gate
