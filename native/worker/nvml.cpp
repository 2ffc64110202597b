// SPDX-License-Identifier: Apache-2.0
#include "worker/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

namespace millpond::worker {
namespace {

// Of nvml.h, which build hosts need not have.
constexpr int kSuccess = 0;
constexpr int kCapabilityNvlink = 2;
constexpr int kCapabilityIsThere = 0;
constexpr int kGpuIsLost = 15;
constexpr int kResetRequired = 16;
constexpr int kTemperatureOfGpu = 0;
constexpr unsigned long long kXidEvents = 8;

/// nvmlEventData_t.
struct EventData {
  void* device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpuInstance;
  unsigned computeInstance;
};

/// Those that speak of a program and not of the card: it did something wrong, was ended, or lost memory that is contained
/// (94); and those that only tell of rows that were replaced in time (63), or may have to be (92).
constexpr std::array<unsigned long long, 11> kHarmlessXids = {8, 13, 31, 32, 43, 45, 63, 68, 92, 94, 109};

bool condemns(unsigned long long xid) {
  return std::find(kHarmlessXids.begin(), kHarmlessXids.end(), xid) == kHarmlessXids.end();
}

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

void Nvml::watch(const std::string& uuid) {
  const Device its = device(uuid);
  if (!its) return;
  watched_[uuid] = {its, ""};
  const auto create = reinterpret_cast<int (*)(EventSet*)>(find("nvmlEventSetCreate"));
  const auto join = reinterpret_cast<int (*)(Device, unsigned long long, EventSet)>(find("nvmlDeviceRegisterEvents"));
  if (!create || !join) return;
  if (!reports_ && create(&reports_) != kSuccess) reports_ = nullptr;
  // A device that reports nothing, such as a part of one, is still asked for its state.
  if (reports_) join(its, kXidEvents, reports_);
}

std::string Nvml::illness(const std::string& uuid) {
  takeReports();
  const auto known = watched_.find(uuid);
  if (known == watched_.end()) return "";
  const std::string state = stateOf(known->second.device);
  return state.empty() ? known->second.reported : state;
}

void Nvml::takeReports() {
  const auto wait = reinterpret_cast<int (*)(EventSet, EventData*, unsigned)>(find("nvmlEventSetWait_v2"));
  if (!wait || !reports_) return;
  constexpr int kMostAtOnce = 64;
  EventData event{};
  for (int i = 0; i < kMostAtOnce && wait(reports_, &event, 0) == kSuccess; ++i) {
    if ((event.type & kXidEvents) == 0 || !condemns(event.data)) continue;
    for (auto& [uuid, its] : watched_)
      if (its.device == event.device && its.reported.empty())
        its.reported = "the driver has reported Xid " + std::to_string(event.data);
  }
}

std::string Nvml::stateOf(Device device) const {
  // Asked of the card itself, so it is an answer about the card.
  const auto temperature = reinterpret_cast<int (*)(Device, int, unsigned*)>(find("nvmlDeviceGetTemperature"));
  unsigned celsius = 0;
  const int answer = temperature ? temperature(device, kTemperatureOfGpu, &celsius) : kSuccess;
  if (answer == kGpuIsLost) return "it has fallen off its bus";
  if (answer == kResetRequired) return "it has to be reset";
  const auto rows =
      reinterpret_cast<int (*)(Device, unsigned*, unsigned*, unsigned*, unsigned*)>(find("nvmlDeviceGetRemappedRows"));
  unsigned corrected = 0, uncorrected = 0, isPending = 0, hasFailed = 0;
  if (rows && rows(device, &corrected, &uncorrected, &isPending, &hasFailed) == kSuccess && hasFailed)
    return "broken rows of its memory cannot be replaced any more";
  return "";
}

}  // namespace millpond::worker
