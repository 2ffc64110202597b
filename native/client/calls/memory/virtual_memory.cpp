// SPDX-License-Identifier: Apache-2.0
// Virtual-memory management. The process's own history suffices to check every call; only calls that take addresses or
// memory wait for the worker.
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>

#include "base/log.h"
#include "client/addresses/address_guard.h"
#include "client/addresses/shareable_file.h"
#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"

namespace millpond::client::api {
namespace {

/// Number of attempts to find addresses that are free on both sides. Each is this much further from the first one,
/// whose place may be occupied by the memory of a whole device.
constexpr int kAddressAttempts = 16;
constexpr uint64_t kAddressStep = uint64_t{1} << 36;
/// Mapped memory has no owner among the contexts, and is not freed by address.
constexpr unsigned kMapped = MemoryRun::kMapped;

/// Granularity of host memory, as measured on a card.
constexpr size_t kHostGranularity = size_t{2} << 20;

bool isHost(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/// Whether the location is memory of a device of this process: its context, or the call's error.
CUresult checkProperties(const CUmemAllocationProp* prop, const Context*& context) {
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (isHost(prop->location)) {
    static std::atomic<bool> said{false};
    logOnce(said, LogLevel::Info, "host memory made by cuMemCreate is not supported: use cuMemHostAlloc");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (prop->requestedHandleTypes && (prop->allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL))
    return CUDA_ERROR_INVALID_VALUE;
  context = Client::instance().contexts().primary(prop->location.id);
  return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

template <typename C>
void setProperties(C& wire, const CUmemAllocationProp& prop, const Context& context) {
  wire.device = context.sessionDevice();
  wire.compression = prop.allocFlags.compressionType;
  wire.rdma = prop.allocFlags.gpuDirectRDMACapable;
  wire.usage = prop.allocFlags.usage;
}

/// With the lock held.
CUresult releaseAll(Call& call, const std::vector<uint64_t>& ended) {
  CUresult result = CUDA_SUCCESS;
  for (const uint64_t memory : ended) {
    cmd::VmRelease wire{};
    wire.memory = memory;
    if (const CUresult r = call.post(wire); result == CUDA_SUCCESS) result = r;
  }
  return result;
}

/// Frees memory to which only closed files referred.
CUresult sweepExports(Call& call) {
  VirtualMemory& vm = call.remote().virtualMemory;
  std::lock_guard lock(vm.mutex);
  std::vector<uint64_t> ended;
  vm.sweepExports(ended);
  return releaseAll(call, ended);
}

CUresult reserveAtWorker(Call& call, uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t& address) {
  cmd::VmReserve wire{};
  wire.bytes = bytes;
  wire.alignment = alignment;
  wire.hint = hint;
  cmd::VmReserveReply reply{};
  const CUresult result = call.wait(wire, reply);
  address = reply.address;
  return result;
}

CUresult unreserveAtWorker(Call& call, uint64_t address, uint64_t bytes) {
  cmd::VmUnreserve wire{};
  wire.address = address;
  wire.bytes = bytes;
  return call.post(wire);
}

}  // namespace

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) noexcept {
  Call call("cuMemAddressReserve", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (ptr == nullptr || size == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (alignment != 0 && !std::has_single_bit(alignment)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t wish = addr;
  // Addresses of this process's own memory count as taken.
  if (wish != 0) {
    const Guard guard = guardAddresses(wish, size);
    if (guard == Guard::kHeld) unguardAddresses(wish, size);
    if (guard == Guard::kOccupied) wish = 0;
  }
  uint64_t first = 0;
  for (int attempt = 0; attempt < kAddressAttempts; ++attempt) {
    uint64_t address = 0;
    if (const CUresult r = reserveAtWorker(call, size, alignment, wish, address); r != CUDA_SUCCESS) return r;
    const Guard guard = guardAddresses(address, size);
    if (guard != Guard::kOccupied) {
      VirtualMemory& vm = call.remote().virtualMemory;
      std::lock_guard lock(vm.mutex);
      vm.addReservation({address, size, guard == Guard::kHeld});
      *ptr = address;
      return CUDA_SUCCESS;
    }
    if (const CUresult r = unreserveAtWorker(call, address, size); r != CUDA_SUCCESS) return r;
    // An address that is free here is likely to be free there.
    const uint64_t below = first == 0 ? 0 : first - kAddressStep * static_cast<unsigned>(attempt);
    wish = guardAnywhere(size, std::max<uint64_t>(alignment, uint64_t{2} << 20), below);
    if (wish == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    unguardAddresses(wish, size);
    if (first == 0) first = wish;
  }
  log(LogLevel::Error, "no %zu bytes of addresses are free both in this process and in its worker", size);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) noexcept {
  Call call("cuMemAddressFree", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  VirtualMemory& vm = call.remote().virtualMemory;
  std::lock_guard lock(vm.mutex);
  const auto reservation = vm.takeReservation(ptr, size);
  if (!reservation) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = unreserveAtWorker(call, ptr, size);
  if (reservation->guarded) unguardAddresses(ptr, size);
  return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                     unsigned long long flags) noexcept {
  Call call("cuMemCreate", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (handle == nullptr || size == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = nullptr;
  if (const CUresult r = checkProperties(prop, context); r != CUDA_SUCCESS) return r;
  if (const CUresult r = sweepExports(call); r != CUDA_SUCCESS) return r;
  VirtualMemory& vm = call.remote().virtualMemory;
  cmd::VmCreate wire{};
  {
    std::lock_guard lock(vm.mutex);
    wire.memory = vm.nextWire();
  }
  wire.bytes = size;
  setProperties(wire, *prop, *context);
  call.useContext(context->wireContext());
  cmd::VmCreateReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  std::lock_guard lock(vm.mutex);
  *handle = vm.add({wire.memory, size, *prop, context->wireContext(), 0});
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) noexcept {
  Call call("cuMemRelease", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  VirtualMemory& vm = call.remote().virtualMemory;
  std::lock_guard lock(vm.mutex);
  std::vector<uint64_t> ended;
  if (!vm.release(handle, ended)) return CUDA_ERROR_INVALID_VALUE;
  vm.sweepExports(ended);
  return releaseAll(call, ended);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) noexcept {
  Call call("cuMemRetainAllocationHandle", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  VirtualMemory& vm = call.remote().virtualMemory;
  std::lock_guard lock(vm.mutex);
  const auto retained = vm.retain(reinterpret_cast<CUdeviceptr>(addr));
  if (!retained) return CUDA_ERROR_INVALID_VALUE;
  *handle = *retained;
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) noexcept {
  Call call("cuMemMap", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  VirtualMemory& vm = call.remote().virtualMemory;
  std::lock_guard lock(vm.mutex);
  VirtualMemory::Memory* const memory = vm.find(handle);
  if (flags != 0 || !memory || !vm.canMap(ptr, size, offset, *memory)) return CUDA_ERROR_INVALID_VALUE;
  cmd::VmMap wire{};
  wire.address = ptr;
  wire.bytes = size;
  wire.offset = offset;
  wire.memory = memory->wire;
  // The driver accepts whole allocations; for parts only the driver knows.
  const bool isWhole = offset == 0 && size == memory->bytes;
  CUresult result = call.post(wire);
  if (result == CUDA_SUCCESS && !isWhole) result = call.check();
  if (result != CUDA_SUCCESS) return result;
  vm.map(ptr, size, handle);
  call.remote().memory.add({ptr, size, MemoryKind::kDevice, memory->context, kMapped, 0});
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) noexcept {
  Call call("cuMemUnmap", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  VirtualMemory& vm = call.remote().virtualMemory;
  std::lock_guard lock(vm.mutex);
  VirtualMemory::Mappings::iterator first, last;
  if (!vm.find(ptr, size, first, last)) return CUDA_ERROR_INVALID_VALUE;
  for (auto each = first; each != last; ++each) call.remote().memory.take(each->first);
  std::vector<uint64_t> ended;
  vm.unmap(first, last, ended);
  cmd::VmUnmap wire{};
  wire.address = ptr;
  wire.bytes = size;
  const CUresult result = call.post(wire);
  const CUresult released = releaseAll(call, ended);
  return result != CUDA_SUCCESS ? result : released;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) noexcept {
  Call call("cuMemSetAccess", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  struct Access {
    int32_t device;
    int32_t flags;
  };
  constexpr size_t kMaxDevices = 64;
  if (desc == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (count > kMaxDevices) return CUDA_ERROR_NOT_SUPPORTED;
  VirtualMemory& vm = call.remote().virtualMemory;
  std::lock_guard lock(vm.mutex);
  VirtualMemory::Mappings::iterator first, last;
  if (!vm.find(ptr, size, first, last)) return CUDA_ERROR_INVALID_VALUE;
  std::array<Access, kMaxDevices> access;
  bool isOwn = true;
  for (size_t i = 0; i < count; ++i) {
    const CUmemAccess_flags flags = desc[i].flags;
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
    if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    int32_t device = 0;
    if (const CUresult r = call.device(desc[i].location.id, device); r != CUDA_SUCCESS) return r;
    access[i] = {device, static_cast<int32_t>(flags)};
    for (auto each = first; each != last; ++each)
      isOwn = isOwn && each->second.memory->prop.location.id == desc[i].location.id;
  }
  cmd::VmSetAccess wire{};
  wire.address = ptr;
  wire.size = size;
  CUresult result = call.post(wire, std::as_bytes(std::span(access.data(), count)));
  // Access between devices depends on how they are connected.
  if (result == CUDA_SUCCESS && !isOwn) result = call.check();
  if (result != CUDA_SUCCESS) return result;
  for (auto each = first; each != last; ++each)
    for (size_t i = 0; i < count; ++i) each->second.access[desc[i].location.id] = desc[i].flags;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) noexcept {
  Call call("cuMemGetAccess", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  int32_t device = 0;
  if (const CUresult r = call.device(location->id, device); r != CUDA_SUCCESS) return r;
  VirtualMemory& vm = call.remote().virtualMemory;
  std::lock_guard lock(vm.mutex);
  const VirtualMemory::Mapping* mapping = vm.mappingAt(ptr);
  if (!mapping) return CUDA_ERROR_INVALID_VALUE;
  const auto found = mapping->access.find(location->id);
  *flags = found == mapping->access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : found->second;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) noexcept {
  Call call("cuMemGetAllocationGranularity", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (granularity == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // NCCL fails if this is refused. It does without host memory of this kind only if such memory cannot be created.
  if (isHost(prop->location) && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED) {
    *granularity = kHostGranularity;
    return CUDA_SUCCESS;
  }
  const Context* context = nullptr;
  if (const CUresult r = checkProperties(prop, context); r != CUDA_SUCCESS) return r;
  cmd::VmGranularity wire{};
  setProperties(wire, *prop, *context);
  wire.option = static_cast<int32_t>(option);
  cmd::VmGranularityReply reply{};
  if (const CUresult r = call.waitCached(0, wire, reply); r != CUDA_SUCCESS) return r;
  *granularity = reply.bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) noexcept {
  Call call("cuMemGetAllocationPropertiesFromHandle", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  VirtualMemory& vm = call.remote().virtualMemory;
  std::lock_guard lock(vm.mutex);
  VirtualMemory::Memory* const memory = vm.find(handle);
  if (prop == nullptr || !memory) return CUDA_ERROR_INVALID_VALUE;
  *prop = memory->prop;
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) noexcept {
  Call call("cuMemExportToShareableHandle", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  VirtualMemory& vm = call.remote().virtualMemory;
  std::lock_guard lock(vm.mutex);
  VirtualMemory::Memory* const memory = vm.find(handle);
  if (shareableHandle == nullptr || flags != 0 || !memory) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (!(memory->prop.requestedHandleTypes & handleType)) return CUDA_ERROR_INVALID_VALUE;
  cmd::VmShare wire{};
  wire.memory = memory->wire;
  cmd::VmShareReply reply{};
  call.remote().work.share();
  const CUresult shared = call.wait(wire, reply);
  // If there are no other sessions, the file is valid in this process.
  if (shared != CUDA_SUCCESS && shared != CUDA_ERROR_NOT_SUPPORTED) return shared;
  const auto bytes = std::as_bytes(std::span(reply.handle));
  const int file = vm.exportFile(*memory, bytes.first(shared == CUDA_SUCCESS ? bytes.size() : 0));
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shareableHandle) = file;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) noexcept {
  Call call("cuMemImportFromShareableHandle", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  const auto file = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
  VirtualMemory& vm = call.remote().virtualMemory;
  call.remote().work.share();
  cmd::VmOpen wire{};
  {
    std::lock_guard lock(vm.mutex);
    if (VirtualMemory::Memory* memory = vm.imported(file)) {
      *handle = vm.addHandle(*memory);
      return CUDA_SUCCESS;
    }
    if (!ShareableFile::read(file, std::as_writable_bytes(std::span(wire.handle)))) return CUDA_ERROR_INVALID_VALUE;
    wire.memory = vm.nextWire();
  }
  cmd::VmOpenReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  const Context* context = contextOf(static_cast<uint16_t>(reply.device + 1));
  if (!context) {
    cmd::VmRelease end{};
    end.memory = wire.memory;
    call.post(end);
    return CUDA_ERROR_INVALID_DEVICE;  // which this process does not see
  }
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = context->device();
  std::lock_guard lock(vm.mutex);
  *handle = vm.add({wire.memory, reply.bytes, prop, context->wireContext(), 0});
  return CUDA_SUCCESS;
}

}  // namespace millpond::client::api
