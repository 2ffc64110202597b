// SPDX-License-Identifier: Apache-2.0
// Memory and events that sessions of one claim share. What is opened counts against the limit of the session that opens
// it, too: together the processes of a device that is not shared would need no more.
#include <cstring>

#include "base/log.h"
#include "worker/executor.h"

namespace millpond::worker {
namespace {

Sharing::Handle handleIn(const uint8_t (&bytes)[64]) {
  Sharing::Handle handle;
  std::memcpy(handle.data(), bytes, handle.size());
  return handle;
}

template <typename R>
R replyWith(const Sharing::Handle& handle) {
  R reply{};
  std::memcpy(reply.handle, handle.data(), handle.size());
  return reply;
}

CUresult codeOf(Sharing::Refusal refusal) {
  return refusal == Sharing::Refusal::kOwn ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
}

/// Memory of the driver, for as long as this lives.
class HeldMemory {
 public:
  explicit HeldMemory(const Driver& driver) : driver_(driver) {}
  ~HeldMemory() {
    if (handle) driver_.cuMemRelease(handle);
  }
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;

  CUmemGenericAllocationHandle handle = 0;

 private:
  const Driver& driver_;
};

}  // namespace

bool Executor::canShare(int32_t ordinal) const {
  if (!sharing_ || !driver_.cuMemExportToShareableHandle || !driver_.cuMemImportFromShareableHandle ||
      !driver_.cuMemRetainAllocationHandle)
    return false;
  int can = 0;
  return driver_.cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                      devices_.all()[static_cast<size_t>(ordinal)].device) == CUDA_SUCCESS &&
         can;
}

CUresult Executor::exportFile(CUmemGenericAllocationHandle memory, UniqueFd& file) {
  int out = -1;
  if (CUresult rc = driver_.cuMemExportToShareableHandle(&out, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
    return rc;
  file.reset(out);
  return CUDA_SUCCESS;
}

bool Executor::ordinalOf(const std::array<std::byte, 16>& uuid, size_t& ordinal) const {
  CUuuid wanted{};
  std::memcpy(&wanted, uuid.data(), uuid.size());
  for (ordinal = 0; ordinal < devices_.all().size(); ++ordinal)
    if (devices_.all()[ordinal].share.uuid == uuidText(wanted)) return true;
  return false;
}

CUresult Executor::shareItem(Sharing::Kind kind, uint64_t object, size_t ordinal, Sharing::Item item, Sharing::Handle& handle) {
  CUuuid uuid{};
  if (CUresult rc = driver_.cuDeviceGetUuid_v2(&uuid, devices_.all()[ordinal].device)) return rc;
  std::memcpy(item.facts.uuid.data(), &uuid, item.facts.uuid.size());
  handle = sharing_->add(kind, object, std::move(item));
  return CUDA_SUCCESS;
}

CUresult Executor::importMemory(Sharing::Kind kind, const Sharing::Handle& handle, Sharing::Item& item, size_t& ordinal,
                                CUmemGenericAllocationHandle& memory) {
  if (const auto refusal = sharing_->open(kind, handle, item)) return codeOf(*refusal);
  if (!ordinalOf(item.facts.uuid, ordinal)) {
    log(LogLevel::Info, "memory of another session lies on a device that this one does not have");
    return CUDA_ERROR_INVALID_DEVICE;
  }
  void* file = reinterpret_cast<void*>(static_cast<intptr_t>(item.file.get()));
  return driver_.cuMemImportFromShareableHandle(&memory, file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

// Allocations

CUresult Executor::onShareMemory(const cmd::Decoded<cmd::ShareMemory>& command) {
  if (!sharing_) return CUDA_ERROR_NOT_SUPPORTED;
  const CUdeviceptr address = command.fixed.address;
  for (size_t ordinal = 0; ordinal < arenas_.size(); ++ordinal) {
    if (!arenas_[ordinal]->owns(address)) continue;
    if (!canShare(static_cast<int32_t>(ordinal))) return CUDA_ERROR_NOT_SUPPORTED;
    auto handle = sharing_->find(Sharing::Kind::kMemory, address);
    if (!handle) {
      const MemoryArena::Place place = arenas_[ordinal]->placeOf(address);
      HeldMemory held(driver_);
      if (CUresult rc = driver_.cuMemRetainAllocationHandle(&held.handle, reinterpret_cast<void*>(place.run))) return rc;
      Sharing::Item item;
      if (CUresult rc = exportFile(held.handle, item.file)) return rc;
      item.facts.offset = address - place.run;
      item.facts.fileBytes = place.runBytes;
      item.facts.bytes = command.fixed.bytes;
      if (item.facts.bytes > place.runBytes - item.facts.offset) return violation("more is shared than was allocated");
      if (CUresult rc = shareItem(Sharing::Kind::kMemory, address, ordinal, std::move(item), handle.emplace())) return rc;
    }
    reply(replyWith<cmd::ShareMemoryReply>(*handle));
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult Executor::onOpenMemory(const cmd::Decoded<cmd::OpenMemory>& command) {
  if (!sharing_) return CUDA_ERROR_NOT_SUPPORTED;
  const auto attempt = [this, handle = handleIn(command.fixed.handle)]() -> CUresult {
    Sharing::Item item;
    size_t ordinal = 0;
    HeldMemory held(driver_);
    if (CUresult rc = importMemory(Sharing::Kind::kMemory, handle, item, ordinal, held.handle)) return rc;
    CUdeviceptr address = 0;
    if (CUresult rc = arenas_[ordinal]->adopt(held.handle, item.facts.fileBytes, item.facts.offset, address)) return rc;
    sanitizer_.allocated(address, item.facts.bytes, "cuIpcOpenMemHandle");
    updateMemoryCounter(static_cast<uint16_t>(ordinal + 1));
    reply(cmd::OpenMemoryReply{address, item.facts.bytes, static_cast<int32_t>(ordinal)});
    return CUDA_SUCCESS;
  };
  const CUresult rc = attempt();
  // Memory that was freed may still be waiting for its streams.
  return rc == CUDA_ERROR_OUT_OF_MEMORY ? afterFrees(attempt, Frees::kOfPoolsToo) : rc;
}

// Memory without an address

CUresult Executor::onVmShare(const cmd::Decoded<cmd::VmShare>& command) {
  if (!sharing_) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t number = command.fixed.memory;
  const auto memory = virtualMemory_.find(number);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  if (!canShare(static_cast<int32_t>(memory->device))) return CUDA_ERROR_NOT_SUPPORTED;
  auto handle = sharing_->find(Sharing::Kind::kPages, number);
  if (!handle) {
    Sharing::Item item;
    if (CUresult rc = exportFile(memory->handle, item.file)) return rc;
    item.facts.bytes = item.facts.fileBytes = memory->bytes;
    if (CUresult rc = shareItem(Sharing::Kind::kPages, number, memory->device, std::move(item), handle.emplace())) return rc;
  }
  reply(replyWith<cmd::VmShareReply>(*handle));
  return CUDA_SUCCESS;
}

CUresult Executor::onVmOpen(const cmd::Decoded<cmd::VmOpen>& command) {
  if (!sharing_) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t number = command.fixed.memory;
  if (virtualMemory_.has(number)) return violation("there is memory of this number already");
  Sharing::Item item;
  size_t ordinal = 0;
  HeldMemory held(driver_);
  if (CUresult rc = importMemory(Sharing::Kind::kPages, handleIn(command.fixed.handle), item, ordinal, held.handle)) return rc;
  if (CUresult rc = virtualMemory_.adopt(number, ordinal, item.facts.bytes, held.handle)) return rc;
  held.handle = 0;
  updateMemoryCounter(static_cast<uint16_t>(ordinal + 1));
  reply(cmd::VmOpenReply{item.facts.bytes, static_cast<int32_t>(ordinal)});
  return CUDA_SUCCESS;
}

// Events

CUresult Executor::onShareEvent(const cmd::Decoded<cmd::ShareEvent>& command) {
  if (!sharing_ || !driver_.cuIpcGetEventHandle) return CUDA_ERROR_NOT_SUPPORTED;
  CUevent event = nullptr;
  if (!handle(HandleKind::kEvent, command.fixed.event, event)) return violation("unknown event");
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  auto handle = sharing_->find(Sharing::Kind::kEvent, command.fixed.event);
  if (!handle) {
    CUipcEventHandle own{};
    if (CUresult rc = driver_.cuIpcGetEventHandle(&own, event)) return rc;
    Sharing::Item item;
    static_assert(sizeof own == sizeof item.facts.event);
    std::memcpy(item.facts.event.data(), &own, sizeof own);
    const size_t ordinal = boundContext_ ? deviceOf(boundContext_) : 0;
    if (CUresult rc = shareItem(Sharing::Kind::kEvent, command.fixed.event, ordinal, std::move(item), handle.emplace())) return rc;
  }
  reply(replyWith<cmd::ShareEventReply>(*handle));
  return CUDA_SUCCESS;
}

CUresult Executor::onOpenEvent(const cmd::Decoded<cmd::OpenEvent>& command) {
  const uint64_t wire = command.fixed.event;
  CUevent event = nullptr;
  const CUresult rc = openEvent(handleIn(command.fixed.handle), event);
  // Under its number in any case, as with every object that the client invents a handle for.
  return adopt(HandleKind::kEvent, wire, event) ? rc : violation("event " + std::to_string(wire) + " is in use already");
}

CUresult Executor::openEvent(const Sharing::Handle& handle, CUevent& event) {
  if (!sharing_ || !driver_.cuIpcOpenEventHandle) return CUDA_ERROR_NOT_SUPPORTED;
  Sharing::Item item;
  if (const auto refusal = sharing_->open(Sharing::Kind::kEvent, handle, item))
    return *refusal == Sharing::Refusal::kOwn ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_MAP_FAILED;
  CUipcEventHandle own{};
  std::memcpy(&own, item.facts.event.data(), sizeof own);
  return driver_.cuIpcOpenEventHandle(&event, own);
}

}  // namespace millpond::worker
