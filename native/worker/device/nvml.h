// SPDX-License-Identifier: Apache-2.0
// Information about a host that only NVIDIA's management library has. Where it is absent, as with a software GPU,
// nothing is known.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace millpond::worker {

class Nvml {
 public:
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// "580.159.04"; empty: unknown.
  std::string driverVersion() const;
  /// Memory of a device that is in use by all processes, by UUID; none: unknown.
  std::optional<uint64_t> usedBytes(const std::string& uuid) const;
  /// Number of active NVLink links of a device, by UUID.
  unsigned linksOf(const std::string& uuid) const;
  /// Whether two devices, by UUID, reach each other over NVLink, directly or through switches.
  bool areLinked(const std::string& uuid, const std::string& other) const;

  /// An error that the driver has reported for a device, and that makes it unusable: an Xid.
  struct Fault {
    std::string uuid;
    std::string reason;
  };

  /// Starts to record the driver's reports about a device, by UUID.
  void watch(const std::string& uuid);
  /// Faults reported since the last call. Also counts all Xids, whether they are faults or not.
  std::vector<Fault> takeFaults();
  /// The measurements of NVML for a monitored device, by the members of CardFigures in api/proto; unreported ones are
  /// absent.
  std::map<std::string, unsigned> figures(const std::string& uuid) const;
  /// Why a monitored device must not be used now, according to its card and the driver; empty: no fault is known.
  std::string illness(const std::string& uuid) const;

 private:
  using Device = struct OpaqueNvmlDevice*;
  using EventSet = struct OpaqueNvmlEventSet*;
  /// Xids of a device since monitoring began.
  struct Xids {
    unsigned count = 0;
    unsigned last = 0;
  };
  void* find(const char* name) const;
  Device device(const std::string& uuid) const;
  std::string recoveryOf(Device device) const;
  void addMemoryErrors(Device device, std::map<std::string, unsigned>& all) const;

  void* library_ = nullptr;                // stays loaded: it has threads of its own
  std::map<std::string, Device> watched_;  // by UUID
  std::map<std::string, Xids> xids_;       // by UUID, of devices whose driver reports them
  EventSet reports_ = nullptr;
};

}  // namespace millpond::worker
