// SPDX-License-Identifier: Apache-2.0
// Memory and events that sessions of one claim share. Memory that several sessions have open counts once against the
// limit of the claim.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "worker/commands/memory/device_memory.h"
#include "worker/commands/memory/frees.h"
#include "worker/core/budgets.h"
#include "worker/core/session_objects.h"
#include "worker/core/session_part.h"
#include "worker/ipc/peer_sharing.h"
#include "worker/memory/address_gate.h"
#include "worker/memory/virtual_memory.h"

namespace millpond::worker {

class SharedObjects : private SessionPart {
 public:
  /// `sharing`: null where sessions share nothing.
  SharedObjects(SessionCore& session, Sharing* sharing, Budgets& budgets, DeviceMemory& memory,
                VirtualMemory& virtualMemory, Frees& frees, SessionObjects& objects)
      : SessionPart(session),
        sharing_(sharing),
        budgets_(budgets),
        memory_(memory),
        virtualMemory_(virtualMemory),
        frees_(frees),
        objects_(objects) {}

  CUresult onShareMemory(const cmd::Decoded<cmd::ShareMemory>& command);
  CUresult onOpenMemory(const cmd::Decoded<cmd::OpenMemory>& command);
  CUresult onVmShare(const cmd::Decoded<cmd::VmShare>& command);
  CUresult onVmOpen(const cmd::Decoded<cmd::VmOpen>& command);
  CUresult onPoolShare(const cmd::Decoded<cmd::PoolShare>& command);
  CUresult onPoolOpen(const cmd::Decoded<cmd::PoolOpen>& command);
  CUresult onPoolSharePointer(const cmd::Decoded<cmd::PoolSharePointer>& command);
  CUresult onPoolOpenPointer(const cmd::Decoded<cmd::PoolOpenPointer>& command);
  CUresult onShareEvent(const cmd::Decoded<cmd::ShareEvent>& command);
  CUresult onOpenEvent(const cmd::Decoded<cmd::OpenEvent>& command);

  /// Ends one use of memory of an opened pool, when its stream has reached that position.
  void closeOpened(CUdeviceptr address, std::vector<Mark> place);

 private:
  CUresult exportFile(CUmemGenericAllocationHandle memory, std::shared_ptr<const UniqueFd>& file);
  CUresult uuidOf(size_t ordinal, std::array<std::byte, 16>& uuid) const;
  /// The session's ordinal of that device.
  bool ordinalOf(const std::array<std::byte, 16>& uuid, size_t& ordinal) const;
  CUresult shareItem(Sharing::Kind kind, uint64_t object, size_t ordinal, Sharing::Item item, Sharing::Handle& handle);
  /// The handle of an allocation that lies in a device's arena; `pool` 0: of none.
  CUresult shareAllocation(Sharing::Kind kind, size_t ordinal, CUdeviceptr address, uint64_t bytes, uint64_t pool,
                           Sharing::Handle& handle);
  /// An object of another session on a device of this one.
  CUresult openItem(Sharing::Kind kind, const Sharing::Handle& handle, Sharing::Item& item, size_t& ordinal);
  CUresult importMemory(Sharing::Kind kind, const Sharing::Handle& handle, Sharing::Item& item, size_t& ordinal,
                        CUmemGenericAllocationHandle& memory);
  CUresult importFile(const Sharing::Item& item, CUmemGenericAllocationHandle& memory);
  /// Opens memory of an opened pool, in a run that is mapped already or newly mapped.
  CUresult openPooled(uint64_t pool, const Sharing::Handle& handle, cmd::PoolOpenPointerReply& opened);
  CUresult openEvent(const Sharing::Handle& handle, CUevent& event);

  Sharing* const sharing_;
  Budgets& budgets_;
  DeviceMemory& memory_;
  VirtualMemory& virtualMemory_;
  Frees& frees_;
  SessionObjects& objects_;
};

}  // namespace millpond::worker
