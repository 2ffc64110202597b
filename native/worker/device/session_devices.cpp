// SPDX-License-Identifier: Apache-2.0
#include "worker/device/session_devices.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

namespace millpond::worker {
namespace {

/// Attributes of features that a remoted device does not support yet; the client refuses the corresponding calls.
constexpr CUdevice_attribute kNotRemoted[] = {
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH,
};

}  // namespace

std::string uuidText(const CUuuid& uuid) {
  std::array<unsigned char, 16> b;
  std::memcpy(b.data(), &uuid, 16);
  char text[48];
  std::snprintf(text, sizeof(text), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  return text;
}

Result<CUdevice> SessionDevices::find(const std::string& uuid) const {
  int count = 0;
  if (CUresult rc = driver_.cuDeviceGetCount(&count)) return Error{failure(driver_, "cuDeviceGetCount", rc)};
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    CUuuid own{};
    if (driver_.cuDeviceGet(&device, i) || driver_.cuDeviceGetUuid_v2(&own, device)) continue;
    if (uuidText(own) == uuid) return device;
  }
  return Error{"this node's driver has no device " + uuid + " (it shows " + std::to_string(count) + ")"};
}

Status SessionDevices::retain(CUdevice device, CUcontext& context) {
  for (const auto& [known, itsContext] : retained_) {
    if (known != device) continue;
    context = itsContext;
    return Done{};
  }
  if (CUresult rc = driver_.cuDevicePrimaryCtxRetain(&context, device))
    return Error{failure(driver_, "cuDevicePrimaryCtxRetain", rc)};
  // With HMM or ATS a kernel of the tenant could read and write this process like its own memory. Queried after the
  // context has been created, because earlier the driver has not initialised its unified memory.
  int isReachable = 0;
  if (!trustsPageableAccess_ && driver_.cuDeviceGetAttribute &&
      driver_.cuDeviceGetAttribute(&isReachable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device) == CUDA_SUCCESS &&
      isReachable != 0)
    return Error{
        "kernels on this device can address the pageable memory of the worker (HMM or ATS), and with it everything that "
        "keeps tenants apart. Load the driver with \"options nvidia_uvm uvm_disable_hmm=1\" in /etc/modprobe.d, or, on "
        "a node of one tenant only, start the agent with --trust-pageable-access"};
  retained_.emplace_back(device, context);
  return Done{};
}

Status SessionDevices::warm(const std::string& uuid) {
  auto device = find(uuid);
  if (!device) return device.error();
  CUcontext context = nullptr;
  return retain(*device, context);
}

void SessionDevices::cool() {
  for (const auto& [device, context] : retained_) driver_.cuDevicePrimaryCtxRelease_v2(device);
  retained_.clear();
}

Status SessionDevices::assign(const std::vector<DeviceShare>& shares, const std::function<Status()>& admit) {
  if (shares.empty() || shares.size() > kMaxSessionDevices)
    return Error{"a session needs 1 to " + std::to_string(kMaxSessionDevices) + " devices, not " +
                 std::to_string(shares.size())};
  devices_.clear();
  for (const DeviceShare& share : shares) {
    auto device = find(share.uuid);
    if (!device) return device.error();
    Device entry{*device, nullptr, share};
    size_t total = 0;
    if (CUresult rc = driver_.cuDeviceTotalMem_v2(&total, *device))
      return Error{failure(driver_, "cuDeviceTotalMem_v2", rc)};
    // 0 means the whole device, and so does more memory than it has.
    if (share.memoryBytes == 0 || share.memoryBytes > total) entry.share.memoryBytes = total;
    int processors = 0, threads = 0;
    if (countsDriverMemory_ &&
        driver_.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, *device) == CUDA_SUCCESS &&
        driver_.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, *device) ==
            CUDA_SUCCESS)
      entry.costs = DriverCosts::of(static_cast<uint64_t>(processors), static_cast<uint64_t>(threads));
    // The sizes that the agent reports may have been measured on this node.
    if (share.contextBytes != 0) entry.costs.context = share.contextBytes;
    entry.costs.prints = share.printsBytes.value_or(entry.costs.prints);
    entry.costs.allocates = share.allocatesBytes.value_or(entry.costs.allocates);
    devices_.push_back(entry);
  }
  if (admit) {
    if (auto admitted = admit(); !admitted) {
      cool();
      return admitted;
    }
  }
  for (Device& entry : devices_)
    if (auto got = retain(entry.device, entry.context); !got) return got;
  return Done{};
}

std::vector<DeviceAccount> SessionDevices::accounts() const {
  std::vector<DeviceAccount> out;
  for (const Device& entry : devices_)
    out.push_back({entry.share.uuid, entry.share.memoryBytes, entry.share.contextBytes});
  return out;
}

Status SessionDevices::resize(const std::vector<DeviceShare>& shares) {
  const auto isSame = [](const Device& device, const DeviceShare& share) { return device.share.uuid == share.uuid; };
  if (!std::equal(devices_.begin(), devices_.end(), shares.begin(), shares.end(), isSame))
    return Error{"the session has other devices"};
  std::vector<Device> resized = devices_;
  for (size_t i = 0; i < shares.size(); ++i) {
    size_t total = 0;
    if (CUresult rc = driver_.cuDeviceTotalMem_v2(&total, resized[i].device))
      return Error{failure(driver_, "cuDeviceTotalMem_v2", rc)};
    resized[i].share = shares[i];
    if (shares[i].memoryBytes == 0 || shares[i].memoryBytes > total) resized[i].share.memoryBytes = total;
  }
  devices_ = std::move(resized);
  return Done{};
}

Result<Snapshot> SessionDevices::snapshot() const {
  Snapshot out;
  if (CUresult rc = driver_.cuDriverGetVersion(&out.driverVersion))
    return Error{failure(driver_, "cuDriverGetVersion", rc)};
  for (const Device& entry : devices_) {
    DeviceSnapshot d;
    char name[256] = {};
    CUuuid uuid{};
    if (CUresult rc = driver_.cuDeviceGetName(name, sizeof(name) - 1, entry.device))
      return Error{failure(driver_, "cuDeviceGetName", rc)};
    if (CUresult rc = driver_.cuDeviceGetUuid_v2(&uuid, entry.device))
      return Error{failure(driver_, "cuDeviceGetUuid_v2", rc)};
    d.name = name;
    std::memcpy(d.uuid.data(), &uuid, 16);
    d.memoryBytes = entry.share.memoryBytes;
    d.computePercent = entry.share.computePercent;
    d.attributes.fill(kNoAttribute);
    for (int id = 1; id < kDeviceAttributeLimit; ++id) {
      int value = 0;
      if (driver_.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(id), entry.device) == CUDA_SUCCESS)
        d.attributes[static_cast<size_t>(id)] = value;
    }
    for (const CUdevice_attribute id : kNotRemoted) d.attributes[static_cast<size_t>(id)] = 0;
    // Managed memory is mirrored at the client, and coherent while the device is idle.
    d.attributes[CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] = 1;
    d.attributes[CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS] = 0;
    // The worker has its own pools.
    d.attributes[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] = 1;
    d.attributes[CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES] = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    // The client creates these files itself, and they are valid in its process.
    d.attributes[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED] =
        d.attributes[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED];
    driver_.cuCtxSetCurrent(entry.context);
    driver_.cuCtxGetStreamPriorityRange(&d.leastStreamPriority, &d.greatestStreamPriority);
    out.devices.push_back(std::move(d));
  }
  // The codes are in the range of the enumeration, with gaps.
  for (int code = 0; code < 1000; ++code) {
    const char* name = nullptr;
    const char* text = nullptr;
    if (driver_.cuGetErrorName(static_cast<CUresult>(code), &name) || !name) continue;
    if (driver_.cuGetErrorString(static_cast<CUresult>(code), &text) || !text) continue;
    out.errors.push_back({code, name, text});
  }
  return out;
}

}  // namespace millpond::worker
