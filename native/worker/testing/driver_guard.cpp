// SPDX-License-Identifier: Apache-2.0
#include "worker/testing/driver_guard.h"

#include <array>
#include <cstdio>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "worker/testing/gen/guarded_calls.h"

namespace millpond::worker {
namespace {

struct State {
  std::mutex mutex;
  Driver plain;
  std::map<uint64_t, uint64_t> registered;
  std::map<uint64_t, uint64_t> reserved;
  uint64_t canary = 0;
  uint64_t canaryBytes = 0;
  std::vector<std::string> violations;
};
State& state() {
  static State one;
  return one;
}

/// The rows of one end of a copy.
struct Rows {
  uint64_t pitch, height, x, y, z;
};

bool isIn(const std::map<uint64_t, uint64_t>& runs, uint64_t address) {
  const auto behind = runs.upper_bound(address);
  return behind != runs.begin() && address - std::prev(behind)->first < std::prev(behind)->second;
}

bool isCanary(uint64_t address) { return address - state().canary < state().canaryBytes; }

bool isDevice(uint64_t address) {
  CUmemorytype type{};
  unsigned isManaged = 0;
  std::array<CUpointer_attribute, 2> wanted{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED};
  std::array<void*, 2> told{&type, &isManaged};
  const CUresult rc = state().plain.cuPointerGetAttributes(wanted.size(), wanted.data(), told.data(), address);
  // A destroyed or failed context returns no result.
  return rc != CUDA_SUCCESS || type == CU_MEMORYTYPE_DEVICE || isManaged != 0;
}

void report(const char* symbol, const char* what, uint64_t address) {
  std::array<char, 200> text{};
  std::snprintf(text.data(), text.size(), "%s is given %s: 0x%llx", symbol, what,
                static_cast<unsigned long long>(address));
  state().violations.emplace_back(text.data());
}

CUresult guardRegister(void* memory, size_t bytes, unsigned flags) {
  std::lock_guard lock(state().mutex);
  const CUresult rc = state().plain.cuMemHostRegister_v2(memory, bytes, flags);
  if (rc == CUDA_SUCCESS) state().registered[reinterpret_cast<uint64_t>(memory)] = bytes;
  return rc;
}
CUresult guardUnregister(void* memory) {
  std::lock_guard lock(state().mutex);
  state().registered.erase(reinterpret_cast<uint64_t>(memory));
  return state().plain.cuMemHostUnregister(memory);
}
CUresult guardReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr hint,
                      unsigned long long flags) {
  std::lock_guard lock(state().mutex);
  const CUresult rc = state().plain.cuMemAddressReserve(address, bytes, alignment, hint, flags);
  if (rc == CUDA_SUCCESS) state().reserved[*address] = bytes;
  return rc;
}
CUresult guardUnreserve(CUdeviceptr address, size_t bytes) {
  std::lock_guard lock(state().mutex);
  state().reserved.erase(address);
  return state().plain.cuMemAddressFree(address, bytes);
}

}  // namespace

Driver DriverGuard::before(const Driver& plain) {
  state().plain = plain;
  Driver table = plain;
  guarded::guardAll(table);
  table.cuMemHostRegister_v2 = &guardRegister;
  table.cuMemHostUnregister = &guardUnregister;
  table.cuMemAddressReserve = &guardReserve;
  table.cuMemAddressFree = &guardUnreserve;
  return table;
}

const Driver& DriverGuard::plain() { return state().plain; }

std::vector<std::string> DriverGuard::takeViolations() {
  std::lock_guard lock(state().mutex);
  return std::exchange(state().violations, {});
}

void DriverGuard::setCanary(const void* begin, size_t bytes) {
  state().canary = reinterpret_cast<uint64_t>(begin);
  state().canaryBytes = bytes;
}

void DriverGuard::Call::see(CUdeviceptr address) {
  std::lock_guard lock(state().mutex);
  if (address == 0) return;
  if (isCanary(address)) return report(symbol_, "memory of the worker", address);
  if (!isIn(state().registered, address) && !isIn(state().reserved, address) && !isDevice(address))
    report(symbol_, "what is neither device memory nor registered", address);
}

void DriverGuard::Call::host(const void* address) {
  std::lock_guard lock(state().mutex);
  if (isCanary(reinterpret_cast<uint64_t>(address)))
    report(symbol_, "memory of the worker", reinterpret_cast<uint64_t>(address));
}

void DriverGuard::Call::see(const CUDA_MEMCPY3D* copy) {
  const auto end = [this, copy](CUmemorytype type, const void* host, CUdeviceptr device, const Rows& rows) {
    if (type == CU_MEMORYTYPE_ARRAY) return;
    if (type == CU_MEMORYTYPE_UNIFIED) {
      std::lock_guard lock(state().mutex);
      report(symbol_, "an address to find out about", device);
    }
    // For copies by the worker itself, all host memory is registered.
    const uint64_t base = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
    see(base);
    if (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0) return;
    const bool isOneRow = copy->Height == 1 && copy->Depth == 1 && rows.y == 0 && rows.z == 0;
    // Where none are given, rows and slices follow each other without gaps.
    const uint64_t pitch = rows.pitch || isOneRow ? rows.pitch : rows.x + copy->WidthInBytes;
    const uint64_t slice = pitch * (rows.height ? rows.height : rows.y + copy->Height);
    const uint64_t first = base + rows.z * slice + rows.y * pitch + rows.x;
    see(first);
    see(first + (copy->Depth - 1) * slice + (copy->Height - 1) * pitch + copy->WidthInBytes - 1);
  };
  end(copy->srcMemoryType, copy->srcHost, copy->srcDevice,
      {copy->srcPitch, copy->srcHeight, copy->srcXInBytes, copy->srcY, copy->srcZ});
  end(copy->dstMemoryType, copy->dstHost, copy->dstDevice,
      {copy->dstPitch, copy->dstHeight, copy->dstXInBytes, copy->dstY, copy->dstZ});
}

void DriverGuard::Call::see(const CUDA_RESOURCE_DESC* resource) {
  if (resource->resType == CU_RESOURCE_TYPE_LINEAR) see(resource->res.linear.devPtr);
  if (resource->resType == CU_RESOURCE_TYPE_PITCH2D) see(resource->res.pitch2D.devPtr);
}

void DriverGuard::Call::see(const CUstreamBatchMemOpParams* operations, unsigned count) {
  for (const auto& each : std::span(operations, count)) {
    if (each.operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES || each.operation == CU_STREAM_MEM_OP_BARRIER) continue;
    see(each.waitValue.address);
    see(each.waitValue.alias);
  }
}

void DriverGuard::Call::see(const CUgraphNodeParams* node) {
  switch (node->type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY: return see(&node->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: return see(node->memset.dst);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return see(node->memOp.paramArray, node->memOp.count);
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return see(node->free.dptr);
    default: return;
  }
}

void DriverGuard::Call::see(const CUlaunchConfig* config) {
  for (const CUlaunchAttribute& each : std::span(config->attrs, config->numAttrs)) see(&each.value, each.id);
}

void DriverGuard::Call::see(const CUlaunchAttributeValue* value, CUlaunchAttributeID id) {
  if (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) see(value->accessPolicyWindow.base_ptr);
}

}  // namespace millpond::worker
