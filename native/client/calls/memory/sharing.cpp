// SPDX-License-Identifier: Apache-2.0
// Memory and events of other sessions of the claim, by handles that programs exchange in any way.
#include <cstring>

#include "client/addresses/opened_memory.h"
#include "client/addresses/shareable_file.h"
#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"

namespace millpond::client::api {
namespace {

/// Opens a pool of another process. Its handle is the one that `wire` names, or the existing one if it is already open
/// here.
CUresult openPool(Call& call, const cmd::PoolOpen& wire, CUmemoryPool& pool) {
  pool = reinterpret_cast<CUmemoryPool>(wire.pool);
  HandleTable& handles = call.remote().handles;
  MemoryPools& books = call.remote().pools;
  const std::lock_guard lock(books.mutex);
  cmd::PoolOpenReply reply{};
  const CUresult r = call.wait(wire, reply);
  if (r != CUDA_SUCCESS || reply.pool != wire.pool) handles.recycle(handles.claim(HandleKind::kMemoryPool, pool));
  if (r != CUDA_SUCCESS) return r;
  pool = reinterpret_cast<CUmemoryPool>(reply.pool);
  if (MemoryPools::Pool* const known = books.find(pool)) {
    ++known->opens;
    return CUDA_SUCCESS;
  }
  const Context* context = contextOf(static_cast<uint16_t>(reply.device + 1));
  if (!context) {
    cmd::PoolDestroy end{};
    if (call.destroy(HandleKind::kMemoryPool, pool, end.pool) == CUDA_SUCCESS) call.post(end);
    return CUDA_ERROR_INVALID_DEVICE;  // which is not visible to this process
  }
  books.pools[pool] = {.device = context->device(), .opens = 1};
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) noexcept {
  Call call("cuIpcGetMemHandle", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const auto run = call.remote().memory.find(dptr);
  if (pHandle == nullptr || !run || !run->isShareable()) return CUDA_ERROR_INVALID_VALUE;
  call.useContext(run->context);
  cmd::ShareMemory wire{};
  wire.address = run->address;
  wire.bytes = run->bytes;
  cmd::ShareMemoryReply reply{};
  call.remote().work.share();
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  static_assert(sizeof *pHandle == sizeof reply.handle);
  std::memcpy(pHandle, reply.handle, sizeof *pHandle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) noexcept {
  Call call("cuIpcOpenMemHandle_v2", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (pdptr == nullptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  OpenedMemory& opened = call.remote().opened;
  const std::lock_guard lock(opened.mutex);
  if (OpenedMemory::Entry* known = opened.find(handle)) {
    // Each process opens memory in one context.
    if (known->context != call.context()) return CUDA_ERROR_INVALID_HANDLE;
    ++known->uses;
    *pdptr = known->address;
    return CUDA_SUCCESS;
  }
  cmd::OpenMemory wire{};
  std::memcpy(wire.handle, &handle, sizeof handle);
  cmd::OpenMemoryReply reply{};
  call.remote().work.share();
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  opened.add({handle, reply.address, call.context(), 1});
  call.remote().memory.add({reply.address, reply.bytes, MemoryKind::kDevice, call.context(), MemoryRun::kOpened, 0});
  *pdptr = reply.address;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) noexcept {
  Call call("cuIpcCloseMemHandle", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  OpenedMemory& opened = call.remote().opened;
  const std::lock_guard lock(opened.mutex);
  OpenedMemory::Entry* known = opened.find(dptr);
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  if (--known->uses > 0) return CUDA_SUCCESS;
  call.useContext(known->context);
  opened.remove(dptr);
  call.remote().memory.take(dptr);
  cmd::MemFree wire{};
  wire.address = dptr;
  return call.post(wire);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) noexcept {
  Call call("cuIpcGetEventHandle", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  cmd::ShareEvent wire{};
  if (const CUresult r = call.handle(HandleKind::kEvent, event, wire.event); r != CUDA_SUCCESS) return r;
  cmd::ShareEventReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  static_assert(sizeof *pHandle == sizeof reply.handle);
  std::memcpy(pHandle, reply.handle, sizeof *pHandle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) noexcept {
  Call call("cuIpcOpenEventHandle", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  cmd::OpenEvent wire{};
  std::memcpy(wire.handle, &handle, sizeof handle);
  void* event = nullptr;
  wire.event =
      call.create(HandleKind::kEvent, &event, HandleTraits{.flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING});
  cmd::OpenEventReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) {
    cmd::EventDestroyV2 end{};
    Call ending("cuIpcOpenEventHandle", Call::Teardown{call.context()});
    // The worker has registered the number, without an event behind it: a failure here does not matter.
    if (ending.destroy(HandleKind::kEvent, event, end.hEvent) == CUDA_SUCCESS) {
      ending.waitForResult();
      ending.post(end);
    }
    return r;
  }
  *phEvent = static_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
                                          unsigned long long flags) noexcept {
  Call call("cuMemPoolExportToShareableHandle", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  cmd::PoolShare wire{};
  {
    MemoryPools& books = call.remote().pools;
    const std::lock_guard lock(books.mutex);
    const MemoryPools::Pool* live = books.find(pool);
    const bool isOfKind = live && handleType != CU_MEM_HANDLE_TYPE_NONE && live->handleTypes == handleType;
    if (handle_out == nullptr || flags != 0 || !isOfKind) return CUDA_ERROR_INVALID_VALUE;
    wire.pool = reinterpret_cast<uint64_t>(pool);
  }
  cmd::PoolShareReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  auto file = ShareableFile::carrying(std::as_bytes(std::span(reply.handle)));
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle_out) = file->given.release();
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle, CUmemAllocationHandleType handleType,
                                            unsigned long long flags) noexcept {
  Call call("cuMemPoolImportFromShareableHandle", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (pool_out == nullptr || flags != 0 || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  cmd::PoolOpen wire{};
  const auto file = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  if (!ShareableFile::read(file, std::as_writable_bytes(std::span(wire.handle)))) return CUDA_ERROR_INVALID_VALUE;
  call.remote().work.share();
  // Pools belong to no context, and outlive contexts.
  wire.pool = call.remote().handles.create(HandleKind::kMemoryPool, 0);
  if (wire.pool == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUmemoryPool pool = nullptr;
  if (const CUresult r = openPool(call, wire, pool); r != CUDA_SUCCESS) return r;
  *pool_out = pool;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) noexcept {
  Call call("cuMemPoolExportPointer", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const auto run = call.remote().memory.find(ptr);
  if (shareData_out == nullptr || !run || run->address != ptr || run->pool == 0) return CUDA_ERROR_INVALID_VALUE;
  {
    MemoryPools& books = call.remote().pools;
    const std::lock_guard lock(books.mutex);
    const MemoryPools::Pool* live = books.find(reinterpret_cast<CUmemoryPool>(run->pool));
    if (!live || live->handleTypes == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  }
  cmd::PoolSharePointer wire{};
  wire.address = run->address;
  wire.bytes = run->bytes;
  cmd::PoolSharePointerReply reply{};
  call.remote().work.share();
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  static_assert(sizeof *shareData_out == sizeof reply.handle);
  std::memcpy(shareData_out, reply.handle, sizeof *shareData_out);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData* shareData) noexcept {
  Call call("cuMemPoolImportPointer", Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const Context* context = nullptr;
  {
    MemoryPools& books = call.remote().pools;
    const std::lock_guard lock(books.mutex);
    const MemoryPools::Pool* live = books.find(pool);
    if (ptr_out == nullptr || shareData == nullptr || !live || !live->isOpened()) return CUDA_ERROR_INVALID_VALUE;
    context = Client::instance().contexts().primary(live->device);
  }
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  cmd::PoolOpenPointer wire{};
  wire.pool = reinterpret_cast<uint64_t>(pool);
  std::memcpy(wire.handle, shareData, sizeof *shareData);
  cmd::PoolOpenPointerReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  MemoryRun run{reply.address, reply.bytes, MemoryKind::kDevice, context->wireContext(), 0, 0};
  run.pool = wire.pool;
  // Opened again, it is the same memory, and one free ends it.
  call.remote().memory.addApart(run);
  *ptr_out = reply.address;
  return CUDA_SUCCESS;
}

}  // namespace millpond::client::api
