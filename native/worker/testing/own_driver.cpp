// SPDX-License-Identifier: Apache-2.0
#include "worker/testing/own_driver.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "softgpu/driver/driver.h"
#include "testing/check.h"

namespace millpond::worker {
namespace {

/// Start of address ranges without a fixed address, in the order of requests: between the arenas of the first two
/// devices, where nothing else is.
constexpr uint64_t kFirstRange = 0x2020'0000'0000;
constexpr uint64_t kRangeStep = uint64_t{128} << 30;

/// Driver objects of the session that do not end with a context.
struct Left {
  std::mutex mutex;
  std::map<CUdeviceptr, size_t> reservations;
  std::map<CUdeviceptr, size_t> mappings;
  std::map<CUmemGenericAllocationHandle, unsigned> memory;
  std::map<void*, size_t> registered;
  uint64_t nextRange = kFirstRange;
};
Left& left() {
  static Left all;
  return all;
}

/// Where the devices are. Without a folder, that of this process.
struct Place {
  std::string state;
  int devices = 2;
} shared;

/// The tracked calls, as provided by the driver.
const Driver* plain = nullptr;

CUresult reserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
  std::lock_guard lock(left().mutex);
  if (hint == 0 && bytes <= kRangeStep) hint = std::exchange(left().nextRange, left().nextRange + kRangeStep);
  const CUresult rc = plain->cuMemAddressReserve(address, bytes, alignment, hint, flags);
  if (!rc) left().reservations[*address] = bytes;
  return rc;
}
CUresult unreserve(CUdeviceptr address, size_t bytes) {
  std::lock_guard lock(left().mutex);
  const CUresult rc = plain->cuMemAddressFree(address, bytes);
  if (!rc) left().reservations.erase(address);
  return rc;
}
CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle memory,
             unsigned long long flags) {
  std::lock_guard lock(left().mutex);
  const CUresult rc = plain->cuMemMap(address, bytes, offset, memory, flags);
  if (!rc) left().mappings[address] = bytes;
  return rc;
}
CUresult unmap(CUdeviceptr address, size_t bytes) {
  std::lock_guard lock(left().mutex);
  const CUresult rc = plain->cuMemUnmap(address, bytes);
  if (!rc) left().mappings.erase(left().mappings.lower_bound(address), left().mappings.lower_bound(address + bytes));
  return rc;
}
CUresult create(CUmemGenericAllocationHandle* memory, size_t bytes, const CUmemAllocationProp* prop,
                unsigned long long flags) {
  std::lock_guard lock(left().mutex);
  const CUresult rc = plain->cuMemCreate(memory, bytes, prop, flags);
  if (!rc) ++left().memory[*memory];
  return rc;
}
CUresult import(CUmemGenericAllocationHandle* memory, void* file, CUmemAllocationHandleType type) {
  std::lock_guard lock(left().mutex);
  const CUresult rc = plain->cuMemImportFromShareableHandle(memory, file, type);
  if (!rc) ++left().memory[*memory];
  return rc;
}
CUresult retain(CUmemGenericAllocationHandle* memory, void* address) {
  std::lock_guard lock(left().mutex);
  const CUresult rc = plain->cuMemRetainAllocationHandle(memory, address);
  if (!rc) ++left().memory[*memory];
  return rc;
}
CUresult release(CUmemGenericAllocationHandle memory) {
  std::lock_guard lock(left().mutex);
  const CUresult rc = plain->cuMemRelease(memory);
  if (!rc && --left().memory[memory] == 0) left().memory.erase(memory);
  return rc;
}
CUresult registerHost(void* memory, size_t bytes, unsigned flags) {
  std::lock_guard lock(left().mutex);
  const CUresult rc = plain->cuMemHostRegister_v2(memory, bytes, flags);
  if (!rc) left().registered[memory] = bytes;
  return rc;
}
CUresult unregisterHost(void* memory) {
  std::lock_guard lock(left().mutex);
  left().registered.erase(memory);
  return plain->cuMemHostUnregister(memory);
}

softgpu::Driver& softGpu() { return softgpu::Driver::instance(); }

template <typename Table>
void clear(Table& table) {
  table.removeIf([](const auto&) { return true; });
}

}  // namespace

OwnDriver::OwnDriver() {
  if (shared.state.empty()) {
    static std::array<char, 40> state{"/tmp/millpond-own-XXXXXX"};
    CHECK(::mkdtemp(state.data()) != nullptr);
    shared = {state.data(), 2};
    std::atexit([] {
      const std::string remove = std::string("rm -rf ") + state.data();
      if (std::system(remove.c_str()) != 0) std::fprintf(stderr, "cannot remove %s\n", state.data());
    });
  }
  // As small as possible.
  ::setenv("MILLPOND_SOFTGPU_STATE", shared.state.c_str(), 1);
  ::setenv("MILLPOND_SOFTGPU_DEVICES", std::to_string(shared.devices).c_str(), 1);
  ::setenv("MILLPOND_SOFTGPU_MEMORY", "64Mi", 1);
  // Its failures are expected.
  ::setenv("MILLPOND_LOG", "off", 1);
  table_.load(::dlopen(nullptr, RTLD_NOW));
  CHECK(table_.cuInit != nullptr && table_.cuInit(0) == CUDA_SUCCESS);
  static const Driver unchanged = table_;
  plain = &unchanged;
  table_.cuMemAddressReserve = &worker::reserve;
  table_.cuMemAddressFree = &worker::unreserve;
  table_.cuMemMap = &worker::map;
  table_.cuMemUnmap = &worker::unmap;
  table_.cuMemCreate = &worker::create;
  table_.cuMemImportFromShareableHandle = &worker::import;
  table_.cuMemRetainAllocationHandle = &worker::retain;
  table_.cuMemRelease = &worker::release;
  table_.cuMemHostRegister_v2 = &worker::registerHost;
  table_.cuMemHostUnregister = &worker::unregisterHost;
}

void OwnDriver::share(const std::string& state, int devices) { shared = {state, devices}; }

OwnDriver& OwnDriver::instance() {
  static OwnDriver driver;
  return driver;
}

std::vector<DeviceShare> OwnDriver::shares(const Driver& table) {
  std::vector<DeviceShare> all;
  int count = 0;
  CHECK_EQ(table.cuDeviceGetCount(&count), CUDA_SUCCESS);
  for (CUdevice device = 0; device < count; ++device) {
    CUuuid uuid{};
    CHECK_EQ(table.cuDeviceGetUuid_v2(&uuid, device), CUDA_SUCCESS);
    all.push_back({uuidText(uuid), kLimit, 50});
  }
  return all;
}

void OwnDriver::cancel() {
  for (const auto& context : softGpu().contexts().all())
    context->fail(CUDA_ERROR_LAUNCH_TIMEOUT, "the session is over");
}

void OwnDriver::quieten() {
  softgpu::Driver& gpu = softGpu();
  for (const auto& context : gpu.contexts().all())
    if (context->state() == softgpu::Context::State::alive) gpu.destroyContext(context);
  gpu.contexts().removeIf([](const auto& context) { return context.kind() == softgpu::Context::Kind::created; });
  for (int device = 0; device < gpu.deviceCount(); ++device) gpu.resetPrimary(*gpu.device(device));
}

void OwnDriver::reset(std::span<const void* const> others) {
  softgpu::Driver& gpu = softGpu();
  clear(gpu.streams());
  clear(gpu.events());
  clear(gpu.functions());
  clear(gpu.modules());
  clear(gpu.kernels());
  clear(gpu.libraries());
  clear(gpu.arrays());
  clear(gpu.mipmappedArrays());
  clear(gpu.graphExecs());
  clear(gpu.graphNodes());
  clear(gpu.graphs());
  clear(gpu.userObjects());
  clear(gpu.links());
  Left& all = left();
  std::lock_guard lock(all.mutex);
  for (const auto& [address, bytes] : all.mappings) CHECK_EQ(plain->cuMemUnmap(address, bytes), CUDA_SUCCESS);
  for (const auto& [memory, references] : all.memory)
    for (unsigned i = 0; i < references; ++i) CHECK_EQ(plain->cuMemRelease(memory), CUDA_SUCCESS);
  for (const auto& [address, bytes] : all.reservations) CHECK_EQ(plain->cuMemAddressFree(address, bytes), CUDA_SUCCESS);
  // Pinned memory that the session shared with its client, and its buffers.
  for (const void* const other : others) all.registered.erase(const_cast<void*>(other));
  for (const auto& [memory, bytes] : all.registered) CHECK_EQ(::munmap(memory, bytes), 0);
  all.mappings.clear();
  all.memory.clear();
  all.reservations.clear();
  all.registered.clear();
  all.nextRange = kFirstRange;
}

}  // namespace millpond::worker
