// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory. An allocation waits for the worker's reply, but not for the device; other calls wait only if
// they query usage.
#include <atomic>

#include "base/log.h"
#include "client/call/call.h"
#include "client/call/preconditions.h"
#include "client/calls/memory/copies.h"
#include "client/gen/api.h"
#include "client/process/client.h"

namespace millpond::client {
namespace {

/// Creates a pool of at most `maxBytes` (0: unlimited) at the worker and in the table, whose lock is held.
CUresult makePool(Call& call, const Context& context, size_t maxBytes, MemoryPools::Pool pool, CUmemoryPool& out) {
  // Pools belong to no context, and outlive contexts.
  const uint64_t wire = call.remote().handles.create(HandleKind::kMemoryPool, 0);
  if (wire == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  cmd::PoolCreate create{};
  create.pool = wire;
  create.device = context.sessionDevice();
  create.maxBytes = maxBytes;
  if (const CUresult r = call.post(create); r != CUDA_SUCCESS) return r;
  out = reinterpret_cast<CUmemoryPool>(wire);
  pool.device = context.device();
  call.remote().pools.pools[out] = pool;
  return CUDA_SUCCESS;
}

/// With the lock held.
CUresult defaultPool(Call& call, CUdevice device, CUmemoryPool& out) {
  const Context* context = Client::instance().contexts().primary(device);
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  MemoryPools& books = call.remote().pools;
  const auto found = books.defaults.find(device);
  if (found != books.defaults.end()) {
    out = found->second;
    return CUDA_SUCCESS;
  }
  const CUresult result = makePool(call, *context, 0, {.isDefault = true}, out);
  if (result == CUDA_SUCCESS) books.defaults[device] = out;
  return result;
}

/// With the lock held.
CUresult currentPool(Call& call, CUdevice device, CUmemoryPool& out) {
  MemoryPools& books = call.remote().pools;
  const auto found = books.current.find(device);
  if (found == books.current.end()) return defaultPool(call, device, out);
  out = found->second;
  return CUDA_SUCCESS;
}

CUresult allocate(Call& call, CUdeviceptr* dptr, size_t bytes, CUmemoryPool pool, CUdevice device, uint64_t stream) {
  if (const CUresult r = precondition::uncaptured(call, stream); r != CUDA_SUCCESS) return r;
  cmd::PoolAlloc wire{};
  wire.pool = reinterpret_cast<uint64_t>(pool);
  wire.bytes = bytes;
  wire.stream = stream;
  cmd::PoolAllocReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  const Context* context = Client::instance().contexts().primary(device);
  MemoryRun run{reply.address, bytes, MemoryKind::kDevice, context->wireContext(), 0, 0};
  if (reply.ofGraph)
    run.flags = MemoryRun::kBorrowed | MemoryRun::kOfGraph;
  else
    run.pool = wire.pool;
  call.remote().memory.add(run);
  *dptr = reply.address;
  return CUDA_SUCCESS;
}

/// Unlike cuMemAlloc, the stream-ordered calls accept zero bytes, and free the resulting address.
CUresult allocateNothing(CUdeviceptr* dptr) {
  *dptr = 0;
  return CUDA_SUCCESS;
}

CUresult checkLocation(const CUmemLocation* location, CUmemAllocationType type) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_SUCCESS;
  static std::atomic<bool> said{false};
  logOnce(said, LogLevel::Warn, "pools of host memory and of managed memory are not supported: use those of devices");
  return CUDA_ERROR_NOT_SUPPORTED;
}

bool isReuse(CUmemPool_attribute attr) {
  return attr >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
         attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

}  // namespace

CUresult takeTemporary(Call& call, size_t bytes, uint64_t stream, CUdeviceptr& address) {
  const Context* context = contextOf(call.context());
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  cmd::PoolAlloc wire{};
  {
    std::lock_guard lock(call.remote().pools.mutex);
    CUmemoryPool pool = nullptr;
    if (const CUresult r = defaultPool(call, context->device(), pool); r != CUDA_SUCCESS) return r;
    wire.pool = reinterpret_cast<uint64_t>(pool);
  }
  wire.bytes = bytes;
  wire.stream = stream;
  cmd::PoolAllocReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  call.remote().memory.reuse(reply.address, bytes);
  address = reply.address;
  return CUDA_SUCCESS;
}

CUresult giveTemporary(Call& call, CUdeviceptr address, uint64_t stream) {
  cmd::PoolFree wire{};
  wire.address = address;
  wire.stream = stream;
  return call.post(wire);
}

namespace api {

CUresult cuMemAllocAsync(Flavour flavour, CUdeviceptr* dptr, size_t bytesize, CUstream hStream) noexcept {
  Call call("cuMemAllocAsync", Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (bytesize == 0) return allocateNothing(dptr);
  uint16_t where = call.context();
  if (stream != 0)
    if (const HandleTable::Slot* slot = call.remote().handles.find(stream)) where = slot->context;
  const Context* context = contextOf(where);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  CUmemoryPool pool = nullptr;
  CUdevice device = context->device();
  {
    MemoryPools& books = call.remote().pools;
    std::lock_guard lock(books.mutex);
    if (const CUresult r = currentPool(call, device, pool); r != CUDA_SUCCESS) return r;
  }
  return allocate(call, dptr, bytesize, pool, device, stream);
}

CUresult cuMemAllocFromPoolAsync(Flavour flavour, CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) noexcept {
  Call call("cuMemAllocFromPoolAsync", Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdevice device = 0;
  {
    MemoryPools& books = call.remote().pools;
    std::lock_guard lock(books.mutex);
    const MemoryPools::Pool* live = books.find(pool);
    if (!live || live->isOpened()) return CUDA_ERROR_INVALID_VALUE;
    device = live->device;
  }
  if (bytesize == 0) return allocateNothing(dptr);
  return allocate(call, dptr, bytesize, pool, device, stream);
}

CUresult cuMemFreeAsync(Flavour flavour, CUdeviceptr dptr, CUstream hStream) noexcept {
  Call call("cuMemFreeAsync", Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  if (dptr == 0) return CUDA_SUCCESS;
  if (const CUresult r = precondition::uncaptured(call, stream); r != CUDA_SUCCESS) return r;
  const auto run = call.remote().memory.find(dptr);
  const bool isOfGraph = run && run->address == dptr && (run->flags & MemoryRun::kOfGraph);
  if (isOfGraph)
    call.waitForResult();
  else if (!run || !run->isFreedByAddress(dptr) || !call.remote().memory.take(dptr))
    return CUDA_ERROR_INVALID_VALUE;
  cmd::PoolFree wire{};
  wire.address = dptr;
  wire.stream = stream;
  return call.post(wire);
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) noexcept {
  Call call("cuMemPoolCreate", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (pool == nullptr || poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = checkLocation(&poolProps->location, poolProps->allocType); r != CUDA_SUCCESS) return r;
  // The device's attribute reports no other type.
  const CUmemAllocationHandleType types = poolProps->handleTypes;
  if (types != CU_MEM_HANDLE_TYPE_NONE && types != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  const Context* context = Client::instance().contexts().primary(poolProps->location.id);
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(call.remote().pools.mutex);
  return makePool(call, *context, poolProps->maxSize, {.handleTypes = types}, *pool);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) noexcept {
  Call call("cuMemPoolDestroy", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  MemoryPools& books = call.remote().pools;
  std::lock_guard lock(books.mutex);
  MemoryPools::Pool* const live = books.find(pool);
  if (!live || live->isDefault) return CUDA_ERROR_INVALID_VALUE;
  if (live->isOpened()) {
    if (call.remote().memory.hasOfPool(reinterpret_cast<uint64_t>(pool))) return CUDA_ERROR_INVALID_VALUE;
    if (--live->opens > 0) return CUDA_SUCCESS;
  }
  if (const auto current = books.current.find(live->device); current != books.current.end() && current->second == pool)
    books.current.erase(current);
  books.pools.erase(pool);
  cmd::PoolDestroy wire{};
  if (const CUresult r = call.destroy(HandleKind::kMemoryPool, pool, wire.pool); r != CUDA_SUCCESS) return r;
  return call.post(wire);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) noexcept {
  Call call("cuMemPoolTrimTo", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  std::lock_guard lock(call.remote().pools.mutex);
  const MemoryPools::Pool* live = call.remote().pools.find(pool);
  if (!live || live->isOpened()) return CUDA_ERROR_INVALID_VALUE;
  cmd::PoolTrim wire{};
  wire.pool = reinterpret_cast<uint64_t>(pool);
  wire.bytes = minBytesToKeep;
  return call.post(wire);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) noexcept {
  Call call("cuMemPoolSetAttribute", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  std::lock_guard lock(call.remote().pools.mutex);
  MemoryPools::Pool* live = call.remote().pools.find(pool);
  if (!live || live->isOpened() || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (isReuse(attr)) {
    live->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *static_cast<int*>(value) != 0;
    return CUDA_SUCCESS;
  }
  const uint64_t wanted = *static_cast<cuuint64_t*>(value);
  switch (attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: {
      live->threshold = wanted;
      cmd::PoolSetThreshold wire{};
      wire.pool = reinterpret_cast<uint64_t>(pool);
      wire.bytes = wanted;
      return call.post(wire);
    }
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: {
      if (wanted != 0) return CUDA_ERROR_INVALID_VALUE;
      cmd::PoolResetHigh wire{};
      wire.pool = reinterpret_cast<uint64_t>(pool);
      wire.ofReserved = attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
      return call.post(wire);
    }
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) noexcept {
  Call call("cuMemPoolGetAttribute", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  {
    std::lock_guard lock(call.remote().pools.mutex);
    const MemoryPools::Pool* live = call.remote().pools.find(pool);
    if (!live || live->isOpened() || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (isReuse(attr)) {
      *static_cast<int*>(value) = live->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
      return CUDA_SUCCESS;
    }
    if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
      *static_cast<cuuint64_t*>(value) = live->threshold;
      return CUDA_SUCCESS;
    }
  }
  if (attr < CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || attr > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    return CUDA_ERROR_INVALID_VALUE;
  cmd::PoolUsage wire{};
  wire.pool = reinterpret_cast<uint64_t>(pool);
  cmd::PoolUsageReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  const uint64_t answers[] = {reply.reserved, reply.reservedHigh, reply.used, reply.usedHigh};
  *static_cast<cuuint64_t*>(value) = answers[attr - CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT];
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) noexcept {
  Call call("cuMemPoolSetAccess", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  std::lock_guard lock(call.remote().pools.mutex);
  MemoryPools::Pool* live = call.remote().pools.find(pool);
  if (!live || (map == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    int32_t device = 0;
    if (const CUresult r = call.device(map[i].location.id, device); r != CUDA_SUCCESS) return r;
    // A pool's own device always has access, and no other can get it.
    const bool isOwn = map[i].location.id == live->device;
    if (isOwn && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_DEVICE;
    if (!isOwn && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool, CUmemLocation* location) noexcept {
  Call call("cuMemPoolGetAccess", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  std::lock_guard lock(call.remote().pools.mutex);
  const MemoryPools::Pool* live = call.remote().pools.find(memPool);
  if (!live || flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  int32_t device = 0;
  if (const CUresult r = call.device(location->id, device); r != CUDA_SUCCESS) return r;
  *flags = location->id == live->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) noexcept {
  Call call("cuDeviceGetDefaultMemPool", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(call.remote().pools.mutex);
  return defaultPool(call, dev, *pool_out);
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) noexcept {
  Call call("cuDeviceGetMemPool", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  int32_t device = 0;
  if (pool == nullptr || call.device(dev, device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(call.remote().pools.mutex);
  return currentPool(call, dev, *pool);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) noexcept {
  Call call("cuDeviceSetMemPool", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  int32_t device = 0;
  if (call.device(dev, device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  MemoryPools& books = call.remote().pools;
  std::lock_guard lock(books.mutex);
  const MemoryPools::Pool* live = books.find(pool);
  if (!live || live->device != dev || live->isOpened()) return CUDA_ERROR_INVALID_VALUE;
  books.current[dev] = pool;
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location, CUmemAllocationType type) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (const CUresult r = checkLocation(location, type); r != CUDA_SUCCESS) return r;
  return api::cuDeviceGetDefaultMemPool(pool_out, location->id);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (const CUresult r = checkLocation(location, type); r != CUDA_SUCCESS) return r;
  return api::cuDeviceGetMemPool(pool, location->id);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (const CUresult r = checkLocation(location, type); r != CUDA_SUCCESS) return r;
  return api::cuDeviceSetMemPool(location->id, pool);
}

}  // namespace api
}  // namespace millpond::client
