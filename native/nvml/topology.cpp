// SPDX-License-Identifier: Apache-2.0
#include <cstring>

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

/// Maximum number of NVLink links of a card.
constexpr unsigned kMostLinks = 18;
constexpr unsigned kLinkCapabilities = 6;
constexpr unsigned kSwitch = 2;

/// The addresses that NVIDIA's library reports for a switch that a virtual machine does not see, as seen on an H200.
constexpr char kHiddenSwitchLegacy[16] = "FFFFFFF:FF:FF.0";
constexpr char kHiddenSwitch[32] = "FFFFFFFF:FF:FF.0";

template <typename Info>
void fillHiddenSwitch(Info& pci) {
  pci = {};
  pci.domain = pci.deviceId = 0xffffffff;
  pci.bus = pci.device = 0xff;
}

Return checkLink(const Gpu& device, unsigned link) {
  if (link >= kMostLinks) return kInvalidArgument;
  return device.nvlinks == 0 ? kNotSupported : kSuccess;
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
    // Only the driver of their host knows whether they can access each other over PCIe.
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

Return deviceGetNvLinkState(const Gpu& device, unsigned link, unsigned& isActive) {
  if (const Return result = checkLink(device, link)) return result;
  isActive = link < device.nvlinks;
  return kSuccess;
}

Return deviceGetNvLinkCapability(const Gpu& device, unsigned link, unsigned capability, unsigned& isThere) {
  if (const Return result = checkLink(device, link)) return result;
  if (capability >= kLinkCapabilities) return kInvalidArgument;
  isThere = link < device.nvlinks;
  return kSuccess;
}

Return deviceGetNvLinkRemotePciInfo(const Gpu& device, unsigned link, PciInfoV2& pci) {
  if (const Return result = checkLink(device, link)) return result;
  if (link >= device.nvlinks) return kInvalidArgument;
  fillHiddenSwitch(pci);
  std::memcpy(pci.busId, kHiddenSwitchLegacy, sizeof kHiddenSwitchLegacy);
  return kSuccess;
}

Return deviceGetNvLinkRemotePciInfo_v2(const Gpu& device, unsigned link, PciInfo& pci) {
  if (const Return result = checkLink(device, link)) return result;
  if (link >= device.nvlinks) return kInvalidArgument;
  fillHiddenSwitch(pci);
  std::memcpy(pci.legacyBusId, kHiddenSwitchLegacy, sizeof kHiddenSwitchLegacy);
  std::memcpy(pci.busId, kHiddenSwitch, sizeof kHiddenSwitch);
  return kSuccess;
}

Return deviceGetNvLinkRemoteDeviceType(const Gpu& device, unsigned link, unsigned& type) {
  if (const Return result = checkLink(device, link)) return result;
  if (link >= device.nvlinks) return kInvalidArgument;
  type = kSwitch;
  return kSuccess;
}

}  // namespace millpond::nvml::api
