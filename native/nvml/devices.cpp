// SPDX-License-Identifier: Apache-2.0
#include <strings.h>

#include <cstdio>
#include <cstring>

#include "nvml/gen/api.h"

namespace millpond::nvml::api {

namespace {

constexpr unsigned kBrandUnknown = 0;
constexpr unsigned kBrandNvidia = 14;
constexpr unsigned kUuidText = 1;

struct PciAddress {
  unsigned domain, bus, device, function;
};

bool readPci(const char* text, PciAddress& address) {
  int read = 0;
  const bool isWhole = std::sscanf(text, "%8x:%2x:%2x.%1x%n", &address.domain, &address.bus, &address.device,
                                   &address.function, &read) == 4;
  if (isWhole) return text[read] == '\0';
  // The domain and the function may be left out.
  address = {};
  return std::sscanf(text, "%8x:%2x:%2x%n", &address.domain, &address.bus, &address.device, &read) == 3 &&
         text[read] == '\0';
}

bool isSame(const PciAddress& a, const PciAddress& b) {
  return a.domain == b.domain && a.bus == b.bus && a.device == b.device && a.function == b.function;
}

/// NVML's numbers of the generations, by compute capability.
unsigned architectureOf(int major, int minor) {
  switch (major) {
    case 3: return 2;                   // Kepler
    case 5: return 3;                   // Maxwell
    case 6: return 4;                   // Pascal
    case 7: return minor >= 5 ? 6 : 5;  // Turing, Volta
    case 8: return minor >= 9 ? 8 : 7;  // Ada, Ampere
    case 9: return 9;                   // Hopper
    case 10:
    case 11:
    case 12: return 10;  // Blackwell
    default: return 0xffff'ffff;
  }
}

template <typename Pci>
Return fill(const Gpu& gpu, Pci& pci, char (&busId)[32]) {
  PciAddress address{};
  if (!readPci(gpu.pciBusId.c_str(), address)) return kNotSupported;
  pci.domain = address.domain;
  pci.bus = address.bus;
  pci.device = address.device;
  std::snprintf(busId, sizeof busId, "%08X:%02X:%02X.%X", address.domain, address.bus, address.device,
                address.function);
  return kSuccess;
}

// The ids of the model are unknown.
template <typename Pci>
Return fillOld(const Gpu& gpu, Pci& pci) {
  pci = {};
  char whole[32];
  const Return result = fill(gpu, pci, whole);
  // Only domains with four digits fit.
  if (result == kSuccess) std::memcpy(pci.busId, whole + 4, 13);
  return result;
}

}  // namespace

Return deviceGetCount(const View& view, unsigned& count) {
  count = static_cast<unsigned>(view.gpus.size());
  return kSuccess;
}

Return deviceGetHandleByIndex(const View& view, unsigned index, Handle& device) {
  if (index >= view.gpus.size()) return kInvalidArgument;
  device = View::handleOf(view.gpus[index]);
  return kSuccess;
}

Return deviceGetHandleByUUID(const View& view, std::string_view uuid, Handle& device) {
  for (const Gpu& gpu : view.gpus) {
    if (gpu.uuid.size() != uuid.size() || ::strncasecmp(gpu.uuid.data(), uuid.data(), uuid.size()) != 0) continue;
    device = View::handleOf(gpu);
    return kSuccess;
  }
  return kNotFound;
}

Return deviceGetHandleByUUIDV(const View& view, Uuid& uuid, Handle& device) {
  if (uuid.version != versionOf<Uuid>(1)) return kVersionMismatch;
  if (uuid.form == kUuidText) {
    const size_t length = ::strnlen(uuid.value.text, sizeof uuid.value.text);
    return deviceGetHandleByUUID(view, {uuid.value.text, length}, device);
  }
  char text[41] = "GPU-";
  size_t at = 4;
  for (size_t i = 0; i < sizeof uuid.value.bytes; ++i) {
    const bool isDash = i == 4 || i == 6 || i == 8 || i == 10;
    at +=
        static_cast<size_t>(std::snprintf(text + at, sizeof text - at, isDash ? "-%02x" : "%02x", uuid.value.bytes[i]));
  }
  return deviceGetHandleByUUID(view, text, device);
}

Return deviceGetHandleByPciBusId(const View& view, std::string_view busId, Handle& device) {
  PciAddress wanted{};
  if (busId.size() >= 32 || !readPci(std::string(busId).c_str(), wanted)) return kInvalidArgument;
  for (const Gpu& gpu : view.gpus) {
    PciAddress its{};
    if (!readPci(gpu.pciBusId.c_str(), its) || !isSame(its, wanted)) continue;
    device = View::handleOf(gpu);
    return kSuccess;
  }
  return kNotFound;
}

Return deviceGetIndex(const Gpu& device, unsigned& index) {
  index = device.index;
  return kSuccess;
}

Return deviceGetName(const Gpu& device, std::string& name) {
  name = device.name;
  return kSuccess;
}

Return deviceGetUUID(const Gpu& device, std::string& uuid) {
  uuid = device.uuid;
  return kSuccess;
}

Return deviceGetBrand(const Gpu& device, unsigned& brand) {
  brand = device.driverVersion.empty() ? kBrandUnknown : kBrandNvidia;
  return kSuccess;
}

Return deviceGetArchitecture(const Gpu& device, unsigned& architecture) {
  if (device.major == 0) return kNotSupported;
  architecture = architectureOf(device.major, device.minor);
  return kSuccess;
}

Return deviceGetCudaComputeCapability(const Gpu& device, int& major, int& minor) {
  if (device.major == 0) return kNotSupported;
  major = device.major;
  minor = device.minor;
  return kSuccess;
}

Return deviceGetPciInfo(const Gpu& device, PciInfoV1& pci) { return fillOld(device, pci); }

Return deviceGetPciInfo_v2(const Gpu& device, PciInfoV2& pci) { return fillOld(device, pci); }

Return deviceGetPciInfo_v3(const Gpu& device, PciInfo& pci) {
  pci = {};
  const Return result = fill(device, pci, pci.busId);
  if (result == kSuccess) std::memcpy(pci.legacyBusId, pci.busId + 4, 13);
  return result;
}

Return deviceGetPciInfoExt(const Gpu& device, PciInfoExt& pci) {
  const unsigned version = pci.version;
  if (version != versionOf<PciInfoExt>(1)) return kVersionMismatch;
  pci = {};
  pci.version = version;
  // A 3D controller.
  pci.baseClass = 3;
  pci.subClass = 2;
  return fill(device, pci, pci.busId);
}

Return deviceGetBoardId(const Gpu& device, unsigned& board) {
  PciAddress address{};
  if (!readPci(device.pciBusId.c_str(), address)) return kNotSupported;
  board = address.domain << 16 | address.bus << 8 | address.device << 3;
  return kSuccess;
}

Return deviceOnSameBoard(const Gpu& device, const Gpu& other, int& isSame) {
  isSame = device.index == other.index;
  return kSuccess;
}

}  // namespace millpond::nvml::api
