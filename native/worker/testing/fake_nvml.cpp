// SPDX-License-Identifier: Apache-2.0
// A management library of a host with three devices, of which the first two are joined by NVLink.
#include <array>
#include <cstring>

namespace {

constexpr std::array<const char*, 3> kDevices = {"GPU-a", "GPU-b", "GPU-c"};
constexpr int kInvalidArgument = 2, kNotFound = 6;
constexpr int kCapabilityNvlink = 2, kIsThere = 0, kNotSupported = 5;

bool isOne(const void* device) { return device == &kDevices[0] || device == &kDevices[1] || device == &kDevices[2]; }

}  // namespace

extern "C" {

[[gnu::visibility("default")]] int nvmlInit_v2() { return 0; }

[[gnu::visibility("default")]] int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  constexpr char kVersion[] = "580.1";
  if (length < sizeof kVersion) return kInvalidArgument;
  std::memcpy(version, kVersion, sizeof kVersion);
  return 0;
}

[[gnu::visibility("default")]] int nvmlDeviceGetHandleByUUID(const char* uuid, const void** device) {
  for (const char* const& each : kDevices) {
    if (std::strcmp(each, uuid) != 0) continue;
    *device = &each;
    return 0;
  }
  return kNotFound;
}

[[gnu::visibility("default")]] int nvmlDeviceGetP2PStatus(const void* one, const void* other, int capability,
                                                          int* status) {
  if (!isOne(one) || !isOne(other) || one == other) return kInvalidArgument;
  const bool isLast = one == &kDevices[2] || other == &kDevices[2];
  *status = capability == kCapabilityNvlink && !isLast ? kIsThere : kNotSupported;
  return 0;
}

}  // extern "C"
