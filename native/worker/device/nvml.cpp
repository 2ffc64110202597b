// SPDX-License-Identifier: Apache-2.0
#include "worker/device/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <climits>

namespace millpond::worker {
namespace {

// Constants of nvml.h, which build hosts need not have.
constexpr int kSuccess = 0;
constexpr int kCapabilityNvlink = 2;
constexpr int kCapabilityIsThere = 0;
constexpr unsigned kMostLinks = 18;
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

/// nvmlFieldValue_t; the value of the queried field is an unsigned int.
struct FieldValue {
  unsigned field;
  unsigned scope;
  long long at;
  long long tookUs;
  int type;
  int result;
  union {
    unsigned number;
    unsigned long long room;
  } value;
};
constexpr unsigned kRecoveryAction = 230;
enum Recovery : unsigned { kNone, kResetDevice, kRebootHost, kDrainPeers, kDrainAndReset };

struct XidRange {
  unsigned long long first, last;
};

/// Xids for which NVIDIA's catalogue recommends at most a restart of the program. They concern a program, an engine
/// that lost one, or memory that is contained (94) or replaced in time (63). 154 only summarizes earlier ones, and also
/// appears after recovery: `recoveryOf` handles it. All other Xids make a card unusable.
constexpr std::array<XidRange, 25> kHarmlessXids = {{
    {8, 8},     {11, 11},   {13, 14},   {25, 25},   {31, 32},   {37, 41},   {43, 45},   {60, 60},   {63, 63},
    {66, 72},   {75, 77},   {80, 80},   {82, 86},   {88, 89},   {92, 94},   {96, 108},  {121, 121}, {126, 135},
    {137, 137}, {139, 139}, {141, 141}, {152, 154}, {157, 157}, {160, 161}, {162, 165},
}};

unsigned clamped(unsigned long long number) {
  return static_cast<unsigned>(std::min<unsigned long long>(number, UINT_MAX));
}

bool condemns(unsigned long long xid) {
  return std::none_of(kHarmlessXids.begin(), kHarmlessXids.end(),
                      [xid](XidRange each) { return each.first <= xid && xid <= each.last; });
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

std::optional<uint64_t> Nvml::usedBytes(const std::string& uuid) const {
  struct {
    unsigned long long total, free, used;
  } memory{};
  const auto ask = reinterpret_cast<int (*)(Device, decltype(memory)*)>(find("nvmlDeviceGetMemoryInfo"));
  const Device its = device(uuid);
  if (!ask || !its || ask(its, &memory) != kSuccess) return std::nullopt;
  return memory.used;
}

bool Nvml::areLinked(const std::string& uuid, const std::string& other) const {
  const auto status = reinterpret_cast<int (*)(Device, Device, int, int*)>(find("nvmlDeviceGetP2PStatus"));
  const Device first = device(uuid), second = device(other);
  int found = -1;
  return status && first && second && status(first, second, kCapabilityNvlink, &found) == kSuccess &&
         found == kCapabilityIsThere;
}

unsigned Nvml::linksOf(const std::string& uuid) const {
  const auto state = reinterpret_cast<int (*)(Device, unsigned, unsigned*)>(find("nvmlDeviceGetNvLinkState"));
  const Device its = device(uuid);
  if (!state || !its) return 0;
  unsigned links = 0;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    unsigned isActive = 0;
    if (state(its, link, &isActive) == kSuccess && isActive) ++links;
  }
  return links;
}

void Nvml::watch(const std::string& uuid) {
  const Device its = device(uuid);
  if (!its) return;
  watched_[uuid] = its;
  const auto create = reinterpret_cast<int (*)(EventSet*)>(find("nvmlEventSetCreate"));
  const auto join = reinterpret_cast<int (*)(Device, unsigned long long, EventSet)>(find("nvmlDeviceRegisterEvents"));
  if (!create || !join) return;
  if (!reports_ && create(&reports_) != kSuccess) reports_ = nullptr;
  // A device that reports no events, such as a MIG instance, is still queried for its state.
  if (reports_ && join(its, kXidEvents, reports_) == kSuccess) xids_[uuid];
}

std::vector<Nvml::Fault> Nvml::takeFaults() {
  std::vector<Fault> faults;
  const auto wait = reinterpret_cast<int (*)(EventSet, EventData*, unsigned)>(find("nvmlEventSetWait_v2"));
  if (!wait || !reports_) return faults;
  constexpr int kMostAtOnce = 64;
  EventData event{};
  for (int i = 0; i < kMostAtOnce && wait(reports_, &event, 0) == kSuccess; ++i) {
    if ((event.type & kXidEvents) == 0) continue;
    for (const auto& [uuid, its] : watched_) {
      if (its != event.device) continue;
      Xids& xids = xids_[uuid];
      ++xids.count;
      xids.last = clamped(event.data);
      if (condemns(event.data)) faults.push_back({uuid, "the driver has reported Xid " + std::to_string(event.data)});
    }
  }
  return faults;
}

std::string Nvml::illness(const std::string& uuid) const {
  const auto known = watched_.find(uuid);
  if (known == watched_.end()) return "";
  Device const device = known->second;
  // Queried from the card itself, so the result is valid for the card.
  const auto temperature = reinterpret_cast<int (*)(Device, int, unsigned*)>(find("nvmlDeviceGetTemperature"));
  unsigned celsius = 0;
  const int answer = temperature ? temperature(device, kTemperatureOfGpu, &celsius) : kSuccess;
  if (answer == kGpuIsLost) return "it has fallen off its bus";
  if (answer == kResetRequired) return "it requires a reset";
  const auto rows =
      reinterpret_cast<int (*)(Device, unsigned*, unsigned*, unsigned*, unsigned*)>(find("nvmlDeviceGetRemappedRows"));
  unsigned corrected = 0, uncorrected = 0, isPending = 0, hasFailed = 0;
  if (rows && rows(device, &corrected, &uncorrected, &isPending, &hasFailed) == kSuccess && hasFailed)
    return "no spare rows are left for failed rows of its memory";
  return recoveryOf(device);
}

std::map<std::string, unsigned> Nvml::figures(const std::string& uuid) const {
  std::map<std::string, unsigned> all;
  const auto known = watched_.find(uuid);
  if (known == watched_.end()) return all;
  Device const device = known->second;
  const auto add = [&](const char* member, const char* function) {
    const auto ask = reinterpret_cast<int (*)(Device, unsigned*)>(find(function));
    unsigned value = 0;
    if (ask && ask(device, &value) == kSuccess) all[member] = value;
  };
  const auto addOf = [&](const char* member, const char* function, int which) {
    const auto ask = reinterpret_cast<int (*)(Device, int, unsigned*)>(find(function));
    unsigned value = 0;
    if (ask && ask(device, which, &value) == kSuccess) all[member] = value;
  };
  addOf("temperatureCelsius", "nvmlDeviceGetTemperature", kTemperatureOfGpu);
  add("powerMilliwatts", "nvmlDeviceGetPowerUsage");
  add("powerLimitMilliwatts", "nvmlDeviceGetEnforcedPowerLimit");
  add("performanceState", "nvmlDeviceGetPerformanceState");
  constexpr const char* kClocks[] = {"graphicsClockMhz", "smClockMhz", "memoryClockMhz"};
  constexpr const char* kMostClocks[] = {"maxGraphicsClockMhz", "maxSmClockMhz", "maxMemoryClockMhz"};
  for (int clock = 0; clock < static_cast<int>(std::size(kClocks)); ++clock) {
    addOf(kClocks[clock], "nvmlDeviceGetClockInfo", clock);
    addOf(kMostClocks[clock], "nvmlDeviceGetMaxClockInfo", clock);
  }
  struct {
    unsigned gpu, memory;
  } busy{};
  const auto rates = reinterpret_cast<int (*)(Device, decltype(busy)*)>(find("nvmlDeviceGetUtilizationRates"));
  if (rates && rates(device, &busy) == kSuccess) {
    all["utilizationPercent"] = busy.gpu;
    all["memoryUtilizationPercent"] = busy.memory;
  }
  addMemoryErrors(device, all);
  if (const auto xids = xids_.find(uuid); xids != xids_.end()) {
    all["xids"] = xids->second.count;
    if (xids->second.count != 0) all["lastXid"] = xids->second.last;
  }
  return all;
}

/// Errors of the card's memory since the driver was loaded, and the number of its rows that were permanently replaced.
void Nvml::addMemoryErrors(Device device, std::map<std::string, unsigned>& all) const {
  constexpr int kSinceLoad = 0;
  constexpr const char* kErrors[] = {"eccCorrectedErrors", "eccUncorrectedErrors"};
  const auto errors =
      reinterpret_cast<int (*)(Device, int, int, unsigned long long*)>(find("nvmlDeviceGetTotalEccErrors"));
  for (int kind = 0; kind < static_cast<int>(std::size(kErrors)); ++kind) {
    unsigned long long count = 0;
    if (errors && errors(device, kind, kSinceLoad, &count) == kSuccess) all[kErrors[kind]] = clamped(count);
  }
  const auto rows =
      reinterpret_cast<int (*)(Device, unsigned*, unsigned*, unsigned*, unsigned*)>(find("nvmlDeviceGetRemappedRows"));
  unsigned corrected = 0, uncorrected = 0, isPending = 0, hasFailed = 0;
  if (!rows || rows(device, &corrected, &uncorrected, &isPending, &hasFailed) != kSuccess) return;
  all["remappedRows"] = corrected + uncorrected;
  all["pendingRowRemaps"] = isPending;
}

/// The recovery action that the driver requires before further use. Older drivers do not report it.
std::string Nvml::recoveryOf(Device device) const {
  const auto ask = reinterpret_cast<int (*)(Device, int, FieldValue*)>(find("nvmlDeviceGetFieldValues"));
  FieldValue value{};
  value.field = kRecoveryAction;
  if (!ask || ask(device, 1, &value) != kSuccess || value.result != kSuccess) return "";
  switch (value.value.number) {
    case kResetDevice:
    case kDrainAndReset: return "its driver requires a reset of it";
    case kRebootHost: return "its driver requires a restart of the host";
    default: return "";
  }
}

}  // namespace millpond::worker
