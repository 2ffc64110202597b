// SPDX-License-Identifier: Apache-2.0
// What only NVIDIA's management library knows of a host. Where it is absent, as beside a software GPU, nothing is known.
#pragma once

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

 private:
  using Device = struct OpaqueNvmlDevice*;

  void* find(const char* name) const;
  Device device(const std::string& uuid) const;

  void* library_ = nullptr;  // stays loaded: it has threads of its own
};

}  // namespace millpond::worker
