// SPDX-License-Identifier: Apache-2.0
#include "worker/nvml.h"

#include <dlfcn.h>

namespace millpond::worker {
namespace {

// Of nvml.h, which build hosts need not have.
constexpr int kSuccess = 0;
constexpr int kCapabilityNvlink = 2;
constexpr int kCapabilityIsThere = 0;

}  // namespace

Nvml::Nvml(const char* library) : library_(::dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
  const auto init = reinterpret_cast<int (*)()>(find("nvmlInit_v2"));
  if (!init || init() != kSuccess) library_ = nullptr;
}

void* Nvml::find(const char* name) const { return library_ ? ::dlsym(library_, name) : nullptr; }

std::string Nvml::driverVersion() const {
  const auto version = reinterpret_cast<int (*)(char*, unsigned)>(find("nvmlSystemGetDriverVersion"));
  char text[96] = {};
  if (!version || version(text, sizeof(text) - 1) != kSuccess) return "";
  return text;
}

Nvml::Device Nvml::device(const std::string& uuid) const {
  const auto byUuid = reinterpret_cast<int (*)(const char*, Device*)>(find("nvmlDeviceGetHandleByUUID"));
  Device device = nullptr;
  if (!byUuid || byUuid(uuid.c_str(), &device) != kSuccess) return nullptr;
  return device;
}

bool Nvml::areLinked(const std::string& uuid, const std::string& other) const {
  const auto status = reinterpret_cast<int (*)(Device, Device, int, int*)>(find("nvmlDeviceGetP2PStatus"));
  const Device first = device(uuid), second = device(other);
  int found = -1;
  return status && first && second && status(first, second, kCapabilityNvlink, &found) == kSuccess &&
         found == kCapabilityIsThere;
}

}  // namespace millpond::worker
