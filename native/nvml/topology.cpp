// SPDX-License-Identifier: Apache-2.0
#include "nvml/gen/api.h"

namespace millpond::nvml::api {

namespace {

// NVML's numbers for the distance between two devices, and the links known between them.
enum Level : unsigned { kSamePlace = 0, kOneSwitch = 10, kOneNode = 40, kOneHost = 50 };
enum Reach : unsigned { kReached = 0, kNotReached = 5, kNotKnown = 6 };
enum Way : unsigned { kRead = 0, kWrite = 1, kNvlink = 2, kAtomics = 3, kPci = 4 };

bool areSame(const std::string& a, const std::string& b) { return !a.empty() && a == b; }

Level levelOf(const Gpu& a, const Gpu& b) {
  if (a.index == b.index) return kSamePlace;
  if (areSame(a.pcieSwitch, b.pcieSwitch)) return kOneSwitch;
  return areSame(a.numaNode, b.numaNode) ? kOneNode : kOneHost;
}

}  // namespace

Return deviceGetP2PStatus(const Gpu& device, const Gpu& other, unsigned capability, unsigned& status) {
  if (capability > kPci) return kInvalidArgument;
  // NCCL queries every pair, including a device with itself, and fails if that is refused.
  if (device.index == other.index) {
    status = kReached;
    return kSuccess;
  }
  const bool areLinked = areSame(device.nvlinkDomain, other.nvlinkDomain);
  if (capability == kPci) {
    status = kNotKnown;
  } else {
    // Only the driver of their host knows whether they reach each other over PCIe.
    status = areLinked ? kReached : capability == kNvlink ? kNotReached : kNotKnown;
  }
  return kSuccess;
}

Return deviceGetTopologyCommonAncestor(const Gpu& device, const Gpu& other, unsigned& level) {
  level = levelOf(device, other);
  return kSuccess;
}

Return deviceGetTopologyNearestGpus(const View& view, const Gpu& device, unsigned level, std::vector<Handle>& devices) {
  for (const Gpu& other : view.gpus)
    if (other.index != device.index && levelOf(device, other) <= level) devices.push_back(View::handleOf(other));
  return kSuccess;
}

}  // namespace millpond::nvml::api
