// SPDX-License-Identifier: Apache-2.0
#include "worker/process/health.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "worker/device/probe.h"
#include "worker/device/session_devices.h"

namespace millpond::worker {
namespace {

constexpr int kLookEveryMs = 2000;

struct WatchedDevice {
  CUdevice device = 0;
  std::string uuid;
  bool isSoftware = false;
};

Result<std::vector<WatchedDevice>> subjectsOf(const Driver& driver) {
  int count = 0;
  if (CUresult rc = driver.cuDeviceGetCount(&count)) return Error{failure(driver, "cuDeviceGetCount", rc)};
  std::vector<WatchedDevice> subjects;
  for (int i = 0; i < count; ++i) {
    WatchedDevice subject;
    CUuuid uuid{};
    CUresult rc = driver.cuDeviceGet(&subject.device, i);
    if (!rc) rc = driver.cuDeviceGetUuid_v2(&uuid, subject.device);
    if (rc) return Error{"device " + std::to_string(i) + ": " + failure(driver, "a query", rc)};
    subject.uuid = uuidText(uuid);
    subject.isSoftware = isSoftwareGpu(driver, subject.device);
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

/// A software GPU has no management library. Creating a context on it is a cheap test.
std::string illnessOfSoftware(const Driver& driver, CUdevice device) {
  CUcontext context = nullptr;
  if (CUresult rc = driver.cuDevicePrimaryCtxRetain(&context, device))
    return failure(driver, "cuDevicePrimaryCtxRetain", rc);
  driver.cuDevicePrimaryCtxRelease_v2(device);
  return "";
}

/// Waits for the next check; false when standard input has ended.
bool pause() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const int ready = ::poll(&input, 1, kLookEveryMs);
  if (ready == 0 || (ready < 0 && errno == EINTR)) return true;
  // Standard input carries no data: it only becomes readable at its end.
  return false;
}

}  // namespace

Status watchHealth(const Driver& driver, Nvml& nvml) {
  auto subjects = subjectsOf(driver);
  if (!subjects) return subjects.error();
  for (const WatchedDevice& each : *subjects)
    if (!each.isSoftware) nvml.watch(each.uuid);
  do {
    Json::Array faults;
    for (const Nvml::Fault& each : nvml.takeFaults())
      faults.push_back(Json::Object{{"uuid", each.uuid}, {"reason", each.reason}});
    Json::Array ill;
    for (const WatchedDevice& each : *subjects) {
      const std::string reason = each.isSoftware ? illnessOfSoftware(driver, each.device) : nvml.illness(each.uuid);
      if (!reason.empty()) ill.push_back(Json::Object{{"uuid", each.uuid}, {"reason", reason}});
    }
    Json::Array cards;
    for (const WatchedDevice& each : *subjects) {
      Json::Object figures;
      for (const auto& [member, value] : nvml.figures(each.uuid)) figures.push_back({member, value});
      if (!figures.empty()) cards.push_back(Json::Object{{"uuid", each.uuid}, {"figures", std::move(figures)}});
    }
    const Json word(Json::Object{{"ill", std::move(ill)}, {"faults", std::move(faults)}, {"cards", std::move(cards)}});
    std::printf("%s\n", word.dump().c_str());
    if (std::fflush(stdout) != 0)
      return Error{std::string("device health can no longer be reported: ") + std::strerror(errno)};
  } while (pause());
  return Done{};
}

}  // namespace millpond::worker
