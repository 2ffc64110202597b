// SPDX-License-Identifier: Apache-2.0
// Commands at the gates of the devices: a command that occupies a lane of a device, its computation or its copies in one
// direction, waits until the session has a time slice there. Issued work continues, and its replies are sent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "worker/claim/claim_accounts.h"
#include "worker/core/session_part.h"
#include "worker/gate/gates.h"
#include "worker/gate/work_gate.h"
#include "worker/memory/address_gate.h"
#include "worker/memory/host_runs.h"

namespace millpond::worker {

class SessionGates : private SessionPart {
 public:
  /// `nodeGates`: of the node's devices; none: compute shares are not enforced.
  SessionGates(SessionCore& session, ClaimAccounts& accounts, HostRuns& hostRuns, gate::Gates nodeGates)
      : SessionPart(session), accounts_(accounts), hostRuns_(hostRuns), nodeGates_(std::move(nodeGates)) {}

  Status open();
  void close();
  /// Changes the compute shares of the devices. May be called on any thread.
  void setShares(std::vector<Share> shares);

  /// Whether one of them is on: commands go through `take`.
  bool areOn() const { return areOn_; }
  /// Executes the command, unless it must wait at the gate of its device: then it returns false.
  bool take(const ServerLink::Frame& frame, const std::function<CUresult()>& execute);
  /// Charges a copy that goes ahead of held commands, because a function of the program that the GPU waits for needs it.
  void chargeNow(const ServerLink::Frame& frame);
  /// Executes a piece of a copy to the client, unless it must wait at the gate: then it returns nothing, and is to be
  /// called again after `progress`.
  std::optional<CUresult> download(const Stream& stream, uint64_t bytes, const std::function<CUresult()>& execute);
  /// Whether such a piece waits.
  bool holdsDownload() const { return !downloadsHeldAt_.empty(); }
  /// Measures what has completed. `isHeld`: the command that was last refused still waits. Returns whether anything
  /// happened.
  bool progress(bool isHeld);
  /// Whether work is being measured.
  bool awaits() const;
  /// How long no held command can continue. 0: as long as the work in flight takes.
  int64_t napNs() const;
  void forgetContext(uint16_t number) {
    for (const auto& gate : gates_) gate->forget(number);
  }

 private:
  /// Work that occupies a lane of a device.
  struct GatedWork {
    gate::Work work;
    Stream stream;
    gate::Lane lane;
    gate::WorkGate* gate;
    bool isBrief = false;  ///< admitted without a turn, and charged already
  };
  gate::WorkGate& gateOf(size_t device, gate::Lane lane) {
    return *gates_[device * gate::kLanes.size() + static_cast<size_t>(lane)];
  }
  void applyShares();
  std::optional<GatedWork> gatedWork(const ServerLink::Frame& frame);
  bool admit(GatedWork& work, int64_t now);
  bool isHeld(const gate::WorkGate& gate) const { return &gate == heldAt_ || downloadsHeldAt_.contains(&gate); }
  CUresult issue(const GatedWork& work, const std::function<CUresult()>& execute, int64_t now);

  ClaimAccounts& accounts_;
  HostRuns& hostRuns_;
  gate::Gates nodeGates_;
  std::vector<std::unique_ptr<gate::WorkGate>> gates_;  ///< by device, those of its lanes together
  bool areOn_ = false;
  const gate::WorkGate* heldAt_ = nullptr;
  std::set<const gate::WorkGate*> downloadsHeldAt_;  ///< since `progress`
  int64_t lastWorkAt_ = 0;
  std::mutex sharesMutex_;
  std::vector<Share> shares_;  ///< last setting; empty: as at the start of the session
  bool areOpen_ = false;
};

}  // namespace millpond::worker
