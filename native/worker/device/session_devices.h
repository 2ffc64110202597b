// SPDX-License-Identifier: Apache-2.0
// The devices of a session, with the driver's data, in the client's order.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "protocol/handshake/snapshot.h"
#include "worker/claim/claim_accounts.h"
#include "worker/claim/driver_memory.h"
#include "worker/claim/share.h"
#include "worker/device/driver.h"

namespace millpond::worker {

inline constexpr size_t kMaxSessionDevices = 64;

/// One entry of an assignment.
struct DeviceShare {
  std::string uuid;
  uint64_t memoryBytes = 0;
  uint32_t computePercent = 100;
  ServiceClass serviceClass = ServiceClass::kGuaranteed;
  int32_t priority = 0;       ///< of the claim
  uint64_t contextBytes = 0;  ///< of a context, which the claim has in addition; 0: contexts are not charged
  /// Memory of a context whose kernels print, or allocate memory; none: the same as on known cards.
  std::optional<uint64_t> printsBytes{}, allocatesBytes{};

  /// All best-effort sessions, which have no share, have equal weight.
  Share compute() const { return {serviceClass, computePercent == 0 ? 1 : computePercent, priority}; }
};

/// "GPU-" and the UUID in its usual form.
std::string uuidText(const CUuuid& uuid);

class SessionDevices {
 public:
  struct Device {
    CUdevice device = 0;
    CUcontext context = nullptr;  ///< the primary context, retained
    DeviceShare share;
    DriverCosts costs{};
  };

  /// `trustsPageableAccess`: whether to accept devices whose kernels can address this process's pageable memory.
  explicit SessionDevices(const Driver& driver, bool trustsPageableAccess = false)
      : driver_(driver), trustsPageableAccess_(trustsPageableAccess) {}
  SessionDevices(const SessionDevices&) = delete;
  SessionDevices& operator=(const SessionDevices&) = delete;

  /// Charges the driver's own memory, such as contexts; call it before `assign`.
  void countDriverMemory() { countsDriverMemory_ = true; }
  /// Creates the context of one device ahead of a session.
  Status warm(const std::string& uuid);
  /// Ends contexts that were created ahead: no claim is charged for their memory.
  void cool();
  /// Opens the devices of a session, by UUID. `admit`: called before the contexts are created; an error aborts.
  Status assign(const std::vector<DeviceShare>& shares, const std::function<Status()>& admit = nullptr);
  /// The session's parts of the devices.
  std::vector<DeviceAccount> accounts() const;
  /// Changes the sizes of the same devices before the session has a client; an error leaves them unchanged.
  Status resize(const std::vector<DeviceShare>& shares);
  /// The snapshot for the client.
  Result<Snapshot> snapshot() const;

  const std::vector<Device>& all() const { return devices_; }

 private:
  Result<CUdevice> find(const std::string& uuid) const;
  Status retain(CUdevice device, CUcontext& context);

  const Driver& driver_;
  const bool trustsPageableAccess_;
  bool countsDriverMemory_ = false;
  std::vector<Device> devices_;
  std::vector<std::pair<CUdevice, CUcontext>> retained_;
};

}  // namespace millpond::worker
