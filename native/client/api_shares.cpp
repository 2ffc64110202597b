// SPDX-License-Identifier: Apache-2.0
// Memory and events of other sessions of the claim, by handles that programs pass on as they like.
#include <cstring>

#include "client/call.h"
#include "client/opened_memory.h"

namespace millpond::client::api {
CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) noexcept {
  Call call("cuIpcGetMemHandle", true);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const auto run = call.remote().memory.find(dptr);
  if (pHandle == nullptr || !run || !run->isShareable()) return CUDA_ERROR_INVALID_VALUE;
  call.useContext(run->context);
  cmd::ShareMemory wire{};
  wire.address = run->address;
  wire.bytes = run->bytes;
  cmd::ShareMemoryReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  static_assert(sizeof *pHandle == sizeof reply.handle);
  std::memcpy(pHandle, reply.handle, sizeof *pHandle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) noexcept {
  Call call("cuIpcOpenMemHandle_v2", true);
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
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  opened.add({handle, reply.address, call.context(), 1});
  call.remote().memory.add(
      {reply.address, reply.bytes, MemoryKind::kDevice, call.context(), MemoryRun::kOpened, 0});
  *pdptr = reply.address;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) noexcept {
  Call call("cuIpcCloseMemHandle", true);
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
  Call call("cuIpcGetEventHandle", true);
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
  Call call("cuIpcOpenEventHandle", true);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  cmd::OpenEvent wire{};
  std::memcpy(wire.handle, &handle, sizeof handle);
  void* event = nullptr;
  wire.event = call.create(HandleKind::kEvent, &event, HandleTraits{.flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING});
  cmd::OpenEventReply reply{};
  if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) {
    cmd::EventDestroyV2 end{};
    Call ending("cuIpcOpenEventHandle", Call::Teardown{call.context()});
    // The worker has taken the number, with no event behind it: that this fails is nobody's concern.
    if (ending.destroy(HandleKind::kEvent, event, end.hEvent) == CUDA_SUCCESS) {
      ending.waitForResult();
      ending.post(end);
    }
    return r;
  }
  *phEvent = static_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

}  // namespace millpond::client::api
