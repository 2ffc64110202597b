// SPDX-License-Identifier: Apache-2.0
// A management library of a host with three devices, of which the first two are joined by NVLink. Tests inject events:
// fakeNvmlReport, fakeNvmlAnswer, fakeNvmlFailRows, fakeNvmlRecover.
#include <array>
#include <cstring>
#include <deque>

namespace {

constexpr std::array<const char*, 3> kDevices = {"GPU-a", "GPU-b", "GPU-c"};
constexpr int kInvalidArgument = 2, kNotFound = 6;
constexpr int kCapabilityNvlink = 2, kIsThere = 0, kNotSupported = 5;
constexpr int kUnsupported = 3, kTimeout = 10;
constexpr unsigned long long kXidEvents = 8;

struct EventData {
  const void* device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpuInstance;
  unsigned computeInstance;
};

std::deque<EventData> reports;
std::array<bool, 3> areRegistered{};
std::array<int, 3> answers{};
std::array<bool, 3> haveFailedRows{};
std::array<int, 3> recoveries{-1, -1, -1};  // negative: the driver does not report it

size_t indexOf(const void* device) {
  return static_cast<size_t>(static_cast<const char* const*>(device) - kDevices.data());
}

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

/// The first two devices have links 0 and 2.
[[gnu::visibility("default")]] int nvmlDeviceGetNvLinkState(const void* device, unsigned link, unsigned* isActive) {
  if (!isOne(device) || link >= 18) return kInvalidArgument;
  if (device == &kDevices[2]) return kUnsupported;
  *isActive = link == 0 || link == 2;
  return 0;
}

[[gnu::visibility("default")]] int nvmlEventSetCreate(void** set) {
  *set = &reports;
  return 0;
}

/// The last device cannot report.
[[gnu::visibility("default")]] int nvmlDeviceRegisterEvents(const void* device, unsigned long long types, void* set) {
  if (!isOne(device) || types != kXidEvents || set != &reports) return kInvalidArgument;
  if (device == &kDevices[2]) return kUnsupported;
  areRegistered[indexOf(device)] = true;
  return 0;
}

[[gnu::visibility("default")]] int nvmlEventSetWait_v2(void* set, EventData* event, unsigned) {
  if (set != &reports) return kInvalidArgument;
  if (reports.empty()) return kTimeout;
  *event = reports.front();
  reports.pop_front();
  return 0;
}

[[gnu::visibility("default")]] int nvmlDeviceGetTemperature(const void* device, int sensor, unsigned* celsius) {
  if (!isOne(device) || sensor != 0) return kInvalidArgument;
  *celsius = 40;
  return answers[indexOf(device)];
}

[[gnu::visibility("default")]] int nvmlDeviceGetRemappedRows(const void* device, unsigned* corrected,
                                                             unsigned* uncorrected, unsigned* isPending,
                                                             unsigned* hasFailed) {
  if (!isOne(device)) return kInvalidArgument;
  *corrected = 2;
  *uncorrected = 1;
  *isPending = 1;
  *hasFailed = haveFailedRows[indexOf(device)] ? 1 : 0;
  return 0;
}

/// The first device has more corrected errors than fit into 32 bits; the last has no ECC.
[[gnu::visibility("default")]] int nvmlDeviceGetTotalEccErrors(const void* device, int kind, int counter,
                                                               unsigned long long* count) {
  if (!isOne(device) || kind < 0 || kind > 1 || counter != 0) return kInvalidArgument;
  if (device == &kDevices[2]) return kUnsupported;
  *count = kind == 0 && device == &kDevices[0] ? 1ULL << 32 : static_cast<unsigned long long>(kind) * 3;
  return 0;
}

struct FieldValue {
  unsigned field, scope;
  long long at, tookUs;
  int type, result;
  unsigned long long value;
};

[[gnu::visibility("default")]] int nvmlDeviceGetFieldValues(const void* device, int count, FieldValue* values) {
  constexpr unsigned kRecoveryAction = 230;
  if (!isOne(device) || count != 1 || values->field != kRecoveryAction) return kInvalidArgument;
  const int recovery = recoveries[indexOf(device)];
  values->result = recovery < 0 ? kUnsupported : 0;
  values->value = recovery < 0 ? 1 : static_cast<unsigned long long>(recovery);
  return 0;
}

/// The recovery action that the driver requires for a device; negative: it reports none any more.
[[gnu::visibility("default")]] void fakeNvmlRecover(unsigned index, int action) { recoveries[index] = action; }

/// The driver reports an event of a device, if it is monitored.
[[gnu::visibility("default")]] void fakeNvmlReport(unsigned index, unsigned long long type, unsigned long long data) {
  if (areRegistered[index]) reports.push_back({&kDevices[index], type, data, 0, 0});
}

/// A device returns this from now on.
[[gnu::visibility("default")]] void fakeNvmlAnswer(unsigned index, int answer) { answers[index] = answer; }

[[gnu::visibility("default")]] void fakeNvmlFailRows(unsigned index) { haveFailedRows[index] = true; }

}  // extern "C"
