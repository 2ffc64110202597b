// SPDX-License-Identifier: Apache-2.0
// The driver's virtual-memory calls. Only calls that take memory away wait for the device.
#pragma once

#include "worker/commands/memory/frees.h"
#include "worker/core/session_part.h"
#include "worker/memory/address_gate.h"
#include "worker/memory/virtual_memory.h"

namespace millpond::worker {

class VirtualMemoryCommands : private SessionPart {
 public:
  VirtualMemoryCommands(SessionCore& session, Budgets& budgets, DeviceMemory& memory, Frees& frees,
                        VirtualMemory& virtualMemory, Sharing* sharing)
      : SessionPart(session),
        budgets_(budgets),
        memory_(memory),
        frees_(frees),
        virtualMemory_(virtualMemory),
        sharing_(sharing) {}

  CUresult onVmReserve(const cmd::Decoded<cmd::VmReserve>& command);
  CUresult onVmUnreserve(const cmd::Decoded<cmd::VmUnreserve>& command);
  CUresult onVmGranularity(const cmd::Decoded<cmd::VmGranularity>& command);
  CUresult onVmCreate(const cmd::Decoded<cmd::VmCreate>& command);
  CUresult onVmRelease(const cmd::Decoded<cmd::VmRelease>& command);
  CUresult onVmMap(const cmd::Decoded<cmd::VmMap>& command);
  CUresult onVmUnmap(const cmd::Decoded<cmd::VmUnmap>& command);
  CUresult onVmSetAccess(const cmd::Decoded<cmd::VmSetAccess>& command);

 private:
  Budgets& budgets_;
  DeviceMemory& memory_;
  Frees& frees_;
  VirtualMemory& virtualMemory_;
  Sharing* sharing_;
};

}  // namespace millpond::worker
