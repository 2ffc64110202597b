// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/memory/device_memory.h"

#include <algorithm>

#include "base/log.h"

namespace millpond::worker {
namespace {

/// The other devices of the session that can access the memory of this one.
std::vector<CUdevice> peersOf(const Driver& driver, const SessionDevices& devices, CUdevice device) {
  std::vector<CUdevice> peers;
  for (const auto& other : devices.all()) {
    int can = 0;
    if (other.device == device || std::find(peers.begin(), peers.end(), other.device) != peers.end()) continue;
    if (driver.cuDeviceCanAccessPeer && !driver.cuDeviceCanAccessPeer(&can, other.device, device) && can)
      peers.push_back(other.device);
  }
  return peers;
}

}  // namespace

DeviceMemory::DeviceMemory(SessionCore& session, Budgets& budgets, const Sharing* sharing)
    : SessionPart(session), budgets_(budgets), sharing_(sharing) {
  for (size_t device = 0; device < devices_.all().size(); ++device) {
    const CUdevice handle = devices_.all()[device].device;
    arenas_.push_back(std::make_unique<MemoryArena>(driver_, handle, budgets_.at(device),
                                                    peersOf(driver_, devices_, handle), canShare(device)));
  }
}

std::optional<size_t> DeviceMemory::deviceOf(CUdeviceptr address) const {
  for (size_t device = 0; device < arenas_.size(); ++device)
    if (arenas_[device]->owns(address)) return device;
  return std::nullopt;
}

bool DeviceMemory::canShare(size_t device) const {
  if (!sharing_ || !driver_.cuMemExportToShareableHandle || !driver_.cuMemImportFromShareableHandle ||
      !driver_.cuMemRetainAllocationHandle)
    return false;
  int can = 0;
  return driver_.cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                      devices_.all()[device].device) == CUDA_SUCCESS &&
         can;
}

CUresult DeviceMemory::allocate(size_t device, uint64_t bytes, CUdeviceptr& address) {
  const uint64_t redzone = session_.sanitizer().redzone();
  if (bytes > UINT64_MAX - redzone) return CUDA_ERROR_OUT_OF_MEMORY;
  bytes += redzone;
  CUresult rc = arena(device).allocate(bytes, address);
  if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
    if (!trimPools(device)) return rc;
    rc = arena(device).allocate(bytes, address);
  }
  budgets_.publish(device);
  return rc;
}

bool DeviceMemory::trimPools(size_t device) {
  std::vector<MemoryPools::Block> kept;
  pools_.trimDevice(device, kept);
  giveBack(kept);
  return !kept.empty();
}

void DeviceMemory::free(size_t device, CUdeviceptr address) {
  if (opened_.isMapped(address) && !opened_.leave(address)) return;
  if (CUresult rc = arena(device).free(address))
    log(LogLevel::Warn, "freeing device memory failed with %d", static_cast<int>(rc));
}

void DeviceMemory::giveBack(const std::vector<MemoryPools::Block>& blocks) {
  const uint16_t before = contexts_.bound();
  for (const MemoryPools::Block& block : blocks)
    for (uint16_t c = 1; c <= arenas_.size(); ++c) {
      if (!arenas_[c - 1u]->owns(block.address) || !contexts_.use(c)) continue;
      if (CUresult rc = arenas_[c - 1u]->free(block.address))
        log(LogLevel::Warn, "freeing the memory of a pool failed with %d", static_cast<int>(rc));
      budgets_.publish(c - 1u);
    }
  contexts_.use(before);
}

}  // namespace millpond::worker
