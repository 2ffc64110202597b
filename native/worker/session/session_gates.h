// SPDX-License-Identifier: Apache-2.0
// Commands at the gates of the devices: a command that takes GPU time waits until the session has a time slice. Issued
// work continues, and its replies are sent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "worker/claim/claim_accounts.h"
#include "worker/core/session_part.h"
#include "worker/gate/compute_gate.h"
#include "worker/gate/gates.h"
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
  /// A command that takes GPU time.
  struct GatedWork {
    gate::Work work;
    Stream stream;
    gate::ComputeGate* gate;
  };
  /// Whether one of its ends is host memory: such a copy uses the bus, and no compute share.
  bool isHostCopy(const cmd::CopyBox& box);
  std::optional<GatedWork> gatedWork(const ServerLink::Frame& frame);

  ClaimAccounts& accounts_;
  HostRuns& hostRuns_;
  gate::Gates nodeGates_;
  std::vector<std::unique_ptr<gate::ComputeGate>> gates_;  ///< by device
  bool areOn_ = false;
  const gate::ComputeGate* heldAt_ = nullptr;
  int64_t lastWorkAt_ = 0;
  std::mutex sharesMutex_;
  std::vector<Share> shares_;  ///< last setting; empty: as at the start of the session
  bool areOpen_ = false;
};

}  // namespace millpond::worker
