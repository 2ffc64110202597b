// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/memory/virtual_memory.h"

#include <algorithm>
#include <cstring>

namespace millpond::worker {
namespace {

constexpr size_t kMaxAccess = 64;

template <typename C>
CUmemAllocationProp properties(const C& command, CUdevice device, bool isShareable) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  prop.allocFlags.compressionType = static_cast<unsigned char>(command.compression);
  prop.allocFlags.gpuDirectRDMACapable = static_cast<unsigned char>(command.rdma);
  prop.allocFlags.usage = static_cast<unsigned short>(command.usage);
  // A driver cannot export tiles as files.
  if (isShareable && !(command.usage & CU_MEM_CREATE_USAGE_TILE_POOL))
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

}  // namespace

CUresult VirtualMemoryCommands::onVmReserve(const cmd::Decoded<cmd::VmReserve>& command) {
  CUdeviceptr address = 0;
  if (CUresult rc = virtualMemory_.reserve(command.fixed.bytes, command.fixed.alignment,
                                           AddressGate::wish(command.fixed.hint), address))
    return rc;
  reply(cmd::VmReserveReply{address});
  return CUDA_SUCCESS;
}

CUresult VirtualMemoryCommands::onVmUnreserve(const cmd::Decoded<cmd::VmUnreserve>& command) {
  const CUdeviceptr address = AddressGate::key(command.fixed.address);
  const uint64_t bytes = command.fixed.bytes;
  if (CUresult rc = virtualMemory_.unreserve(address, bytes)) return rc;
  const auto finish = [this, address, bytes](uint16_t) { virtualMemory_.freeAddresses(address, bytes); };
  frees_.endAtOnce({.finish = finish, .address = address, .bytes = bytes});
  return CUDA_SUCCESS;
}

CUresult VirtualMemoryCommands::onVmGranularity(const cmd::Decoded<cmd::VmGranularity>& command) {
  CUdevice id = 0;
  if (!device(command.fixed.device, id)) return violation("no device of the session");
  const CUmemAllocationProp prop =
      properties(command.fixed, id, memory_.canShare(static_cast<size_t>(command.fixed.device)));
  size_t bytes = 0;
  if (CUresult rc = driver_.cuMemGetAllocationGranularity(
          &bytes, &prop, static_cast<CUmemAllocationGranularity_flags>(command.fixed.option)))
    return rc;
  reply(cmd::VmGranularityReply{bytes});
  return CUDA_SUCCESS;
}

CUresult VirtualMemoryCommands::onVmCreate(const cmd::Decoded<cmd::VmCreate>& command) {
  CUdevice id = 0;
  if (!device(command.fixed.device, id)) return violation("no device of the session");
  const auto attempt = [this, wanted = command.fixed, id]() -> CUresult {
    bool isNew = true;
    const auto ordinal = static_cast<size_t>(wanted.device);
    const CUresult rc = virtualMemory_.create(wanted.memory, ordinal, wanted.bytes,
                                              properties(wanted, id, memory_.canShare(ordinal)), isNew);
    if (!isNew) return violation("there is memory of this number already");
    budgets_.publish(ordinal);
    return rc;
  };
  CUresult rc = attempt();
  if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
    if (memory_.trimPools(static_cast<size_t>(command.fixed.device))) rc = attempt();
  }
  // Memory that was given back may still be waiting for its streams.
  return rc == CUDA_ERROR_OUT_OF_MEMORY ? frees_.after(attempt, Frees::Which::kOfPoolsToo) : rc;
}

CUresult VirtualMemoryCommands::onVmRelease(const cmd::Decoded<cmd::VmRelease>& command) {
  if (sharing_) sharing_->remove(Sharing::Kind::kPages, command.fixed.memory);
  const CUresult rc = virtualMemory_.release(command.fixed.memory);
  budgets_.publish();
  return rc;
}

CUresult VirtualMemoryCommands::onVmMap(const cmd::Decoded<cmd::VmMap>& command) {
  const auto& wanted = command.fixed;
  const CUdeviceptr address = AddressGate::key(wanted.address);
  frees_.settle(address, wanted.bytes);
  return virtualMemory_.map(address, wanted.bytes, wanted.offset, wanted.memory);
}

CUresult VirtualMemoryCommands::onVmUnmap(const cmd::Decoded<cmd::VmUnmap>& command) {
  const CUdeviceptr address = AddressGate::key(command.fixed.address);
  const uint64_t bytes = command.fixed.bytes;
  std::vector<uint64_t> memories;
  if (CUresult rc = virtualMemory_.unmap(address, bytes, memories)) return rc;
  const auto finish = [this, address, bytes, memories](uint16_t) {
    virtualMemory_.unmapPages(address, bytes);
    virtualMemory_.forget(memories);
    budgets_.publish();
  };
  frees_.end({.finish = finish, .address = address, .bytes = bytes});
  return CUDA_SUCCESS;
}

CUresult VirtualMemoryCommands::onVmSetAccess(const cmd::Decoded<cmd::VmSetAccess>& command) {
  struct Access {
    int32_t device;
    int32_t flags;
  };
  const auto tail = command.tail[0];
  if (tail.empty() || tail.size() % sizeof(Access) || tail.size() > kMaxAccess * sizeof(Access))
    return violation("access for no device, or for too many");
  std::vector<CUmemAccessDesc> descs;
  for (size_t at = 0; at < tail.size(); at += sizeof(Access)) {
    Access access;
    std::memcpy(&access, tail.data() + at, sizeof access);
    CUdevice id = 0;
    if (!device(access.device, id)) return violation("no device of the session");
    CUmemAccessDesc desc{};
    desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    desc.location.id = id;
    desc.flags = static_cast<CUmemAccess_flags>(access.flags);
    descs.push_back(desc);
  }
  return virtualMemory_.setAccess(AddressGate::key(command.fixed.address), command.fixed.size, descs);
}

}  // namespace millpond::worker
