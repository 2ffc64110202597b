// SPDX-License-Identifier: Apache-2.0
// What only NVIDIA's management library knows of a host. Where it is absent, as beside a software GPU, nothing is known.
#pragma once

#include <map>
#include <string>

namespace millpond::worker {

class Nvml {
 public:
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// "580.159.04"; empty: not known.
  std::string driverVersion() const;
  /// Whether two devices, by UUID, reach each other over NVLink, directly or through switches.
  bool areLinked(const std::string& uuid, const std::string& other) const;

  /// From now on what the driver reports of a device, by UUID, is taken note of.
  void watch(const std::string& uuid);
  /// Why a device that is watched must not be used any more; empty: nothing is known against it. What the driver has
  /// reported once holds for the life of this.
  std::string illness(const std::string& uuid);

 private:
  using Device = struct OpaqueNvmlDevice*;
  using EventSet = struct OpaqueNvmlEventSet*;
  struct Watched {
    Device device = nullptr;
    std::string reported;  ///< the first of the driver's reports that condemns it
  };

  void* find(const char* name) const;
  Device device(const std::string& uuid) const;
  void takeReports();
  std::string stateOf(Device device) const;

  void* library_ = nullptr;  // stays loaded: it has threads of its own
  std::map<std::string, Watched> watched_;  // by UUID
  EventSet reports_ = nullptr;
};

}  // namespace millpond::worker
