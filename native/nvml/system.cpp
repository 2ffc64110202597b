// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <ctime>

#include "nvml/gen/api.h"

namespace millpond::nvml::api {

namespace {

// An opaque placeholder: no events are delivered to programs.
char eventSet;

const std::string& driverVersion(const View& view) {
  static const std::string none;
  return view.gpus.empty() ? none : view.gpus.front().driverVersion;
}

}  // namespace

Return systemGetDriverVersion(const View& view, std::string& version) {
  version = driverVersion(view);
  return version.empty() ? kNotSupported : kSuccess;
}

Return systemGetNVMLVersion(const View& view, std::string& version) {
  // As in the real library: the version of the interface, then that of its driver.
  version = "13";
  if (!driverVersion(view).empty()) version += "." + driverVersion(view);
  return kSuccess;
}

Return systemGetCudaDriverVersion(const View& view, int& version) {
  version = view.gpus.empty() ? 0 : view.gpus.front().cudaVersion;
  return version == 0 ? kNotSupported : kSuccess;
}

Return systemGetProcessName(const View& view, unsigned pid, std::string& name) {
  for (const Gpu& gpu : view.gpus) {
    for (const Process& process : gpu.processes) {
      if (process.pid != pid) continue;
      name = process.program;
      return kSuccess;
    }
  }
  return kNotFound;
}

Return unitGetCount(unsigned& count) {
  count = 0;
  return kSuccess;
}

Return getExcludedDeviceCount(unsigned& count) {
  count = 0;
  return kSuccess;
}

Return systemGetHicVersion(unsigned& count, void*) {
  count = 0;
  return kSuccess;
}

Return eventSetCreate(EventSet& set) {
  set = reinterpret_cast<EventSet>(&eventSet);
  return kSuccess;
}

Return eventSetWait_v2(EventSet set, void* event, unsigned timeoutMs) {
  if (!set || !event) return kInvalidArgument;
  timespec left{static_cast<time_t>(timeoutMs / 1000), static_cast<long>(timeoutMs % 1000) * 1'000'000};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
  return kTimeout;
}

Return eventSetFree(EventSet set) { return set ? kSuccess : kInvalidArgument; }

}  // namespace millpond::nvml::api
