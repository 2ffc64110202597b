// SPDX-License-Identifier: Apache-2.0
// The state of the claim at one moment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "nvml/types.h"

namespace millpond::nvml {

/// Properties that the card's own management library reports to a claim on a whole card.
struct Card {
  std::optional<unsigned> temperatureCelsius, powerMilliwatts, powerLimitMilliwatts, performanceState;
  std::optional<unsigned> clocks[3], maxClocks[3];  ///< graphics, SM, memory; MHz
  std::optional<unsigned> memoryUtilization;        ///< percent
};

/// A program of the claim, as one vGPU sees it.
struct Process {
  unsigned pid = 0;
  std::string program;
  uint64_t memory = 0;
  std::optional<unsigned> utilization;  ///< percent of the claim's share
};

struct Gpu {
  unsigned index = 0;  ///< among those of the claim
  int64_t atUs = 0;    ///< time of the view; Unix time
  std::string uuid;
  std::string name;
  std::string pciBusId;  ///< "0000:01:00.0"; empty: unknown
  std::string driverVersion;
  int cudaVersion = 0;       ///< 13000 is CUDA 13.0; 0: unknown
  int major = 0, minor = 0;  ///< compute capability; 0: unknown
  std::optional<unsigned> minorNumber;
  std::string numaNode, pcieSwitch, nvlinkDomain;  ///< equal for devices in the same place; empty: unknown
  unsigned nvlinks = 0;                            ///< links to other vGPUs of the claim
  std::optional<uint64_t> memoryTotal;             ///< the claim's limit
  uint64_t memoryUsed = 0;
  std::optional<unsigned> utilization;  ///< percent of the claim's share of the time
  Card card;
  std::vector<Process> processes;
};

struct View {
  std::vector<Gpu> gpus;

  /// nullptr if the handle is not ours, or the claim no longer has such a vGPU.
  const Gpu* find(Handle handle) const;
  /// Whether the handle is one of ours, also of a vGPU that the claim no longer has.
  static bool isHandle(Handle handle);
  /// Stays the same for as long as the process lives.
  static Handle handleOf(const Gpu& gpu);
};

/// Maximum number of vGPUs of a claim.
constexpr size_t kMostGpus = 64;

/// Parses the reply of NodeService/DescribeClaim.
Result<View> readDescription(const Json& answer);
/// The view of a claim that holds nothing: its request. `claim` is as returned by ClaimService.
Result<View> readRequest(const Json& claim);

/// The request of a claim.
struct Wanted {
  std::string identity;  ///< identifies the vGPU
  unsigned gpus = 1;
  uint64_t memoryBytes = 0;  ///< 0: in proportion to the device
  std::string state;         ///< for display: why it has none
};
View viewOf(const Wanted& wanted);

}  // namespace millpond::nvml
