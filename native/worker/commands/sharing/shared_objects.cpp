// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/sharing/shared_objects.h"

#include <cstring>

#include "base/log.h"

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

/// Allocated by the driver, for the lifetime of this object.
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

CUresult SharedObjects::exportFile(CUmemGenericAllocationHandle memory, std::shared_ptr<const UniqueFd>& file) {
  int out = -1;
  if (CUresult rc = driver_.cuMemExportToShareableHandle(&out, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
    return rc;
  file = std::make_shared<const UniqueFd>(out);
  return CUDA_SUCCESS;
}

bool SharedObjects::ordinalOf(const std::array<std::byte, 16>& uuid, size_t& ordinal) const {
  CUuuid wanted{};
  std::memcpy(&wanted, uuid.data(), uuid.size());
  for (ordinal = 0; ordinal < devices_.all().size(); ++ordinal)
    if (devices_.all()[ordinal].share.uuid == uuidText(wanted)) return true;
  return false;
}

CUresult SharedObjects::shareItem(Sharing::Kind kind, uint64_t object, size_t ordinal, Sharing::Item item,
                                  Sharing::Handle& handle) {
  if (CUresult rc = uuidOf(ordinal, item.facts.uuid)) return rc;
  handle = sharing_->add(kind, object, std::move(item));
  return CUDA_SUCCESS;
}

CUresult SharedObjects::uuidOf(size_t ordinal, std::array<std::byte, 16>& uuid) const {
  CUuuid own{};
  if (CUresult rc = driver_.cuDeviceGetUuid_v2(&own, devices_.all()[ordinal].device)) return rc;
  std::memcpy(uuid.data(), &own, uuid.size());
  return CUDA_SUCCESS;
}

CUresult SharedObjects::openItem(Sharing::Kind kind, const Sharing::Handle& handle, Sharing::Item& item,
                                 size_t& ordinal) {
  if (const auto refusal = sharing_->open(kind, handle, item)) return codeOf(*refusal);
  if (ordinalOf(item.facts.uuid, ordinal)) return CUDA_SUCCESS;
  log(LogLevel::Info, "memory of another session lies on a device that this one does not have");
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult SharedObjects::importMemory(Sharing::Kind kind, const Sharing::Handle& handle, Sharing::Item& item,
                                     size_t& ordinal, CUmemGenericAllocationHandle& memory) {
  if (CUresult rc = openItem(kind, handle, item, ordinal)) return rc;
  return importFile(item, memory);
}

CUresult SharedObjects::importFile(const Sharing::Item& item, CUmemGenericAllocationHandle& memory) {
  if (!item.file) return CUDA_ERROR_INVALID_VALUE;
  void* file = reinterpret_cast<void*>(static_cast<intptr_t>(item.file->get()));
  return driver_.cuMemImportFromShareableHandle(&memory, file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUresult SharedObjects::shareAllocation(Sharing::Kind kind, size_t ordinal, CUdeviceptr address, uint64_t bytes,
                                        uint64_t pool, Sharing::Handle& handle) {
  if (!memory_.canShare(ordinal)) return CUDA_ERROR_NOT_SUPPORTED;
  if (const auto known = sharing_->find(kind, address)) {
    handle = *known;
    return CUDA_SUCCESS;
  }
  const MemoryArena::Place place = memory_.arena(ordinal).placeOf(address);
  const uint64_t offset = address - place.run;
  if (bytes > place.runBytes - offset) return violation("the shared range exceeds the allocation");
  Sharing::Item item;
  if (CUresult rc = uuidOf(ordinal, item.facts.uuid)) return rc;
  // Small allocations share physical memory, and therefore a single file.
  item.file = sharing_->fileOf(item.facts.uuid, place.number);
  if (!item.file) {
    HeldMemory held(driver_);
    if (CUresult rc = driver_.cuMemRetainAllocationHandle(&held.handle, reinterpret_cast<void*>(place.run))) return rc;
    if (CUresult rc = exportFile(held.handle, item.file)) return rc;
  }
  item.facts.bytes = bytes;
  item.facts.offset = offset;
  item.facts.fileBytes = place.runBytes;
  item.facts.run = place.number;
  item.facts.charge = memory_.arena(ordinal).share(address);
  item.facts.pool = pool;
  return shareItem(kind, address, ordinal, std::move(item), handle);
}

// Allocations

CUresult SharedObjects::onShareMemory(const cmd::Decoded<cmd::ShareMemory>& command) {
  if (!sharing_) return CUDA_ERROR_NOT_SUPPORTED;
  const CUdeviceptr address = AddressGate::key(command.fixed.address);
  const auto ordinal = memory_.deviceOf(address);
  if (!ordinal) return CUDA_ERROR_INVALID_VALUE;
  Sharing::Handle handle{};
  if (CUresult rc = shareAllocation(Sharing::Kind::kMemory, *ordinal, address, command.fixed.bytes, 0, handle))
    return rc;
  reply(replyWith<cmd::ShareMemoryReply>(handle));
  return CUDA_SUCCESS;
}

CUresult SharedObjects::onOpenMemory(const cmd::Decoded<cmd::OpenMemory>& command) {
  if (!sharing_) return CUDA_ERROR_NOT_SUPPORTED;
  const auto attempt = [this, handle = handleIn(command.fixed.handle)]() -> CUresult {
    Sharing::Item item;
    size_t ordinal = 0;
    HeldMemory held(driver_);
    if (CUresult rc = importMemory(Sharing::Kind::kMemory, handle, item, ordinal, held.handle)) return rc;
    CUdeviceptr address = 0;
    if (CUresult rc = memory_.arena(ordinal).adopt(held.handle, item.facts.charge, item.facts.fileBytes,
                                                   item.facts.offset, address))
      return rc;
    session_.sanitizer().allocated(address, item.facts.bytes, "cuIpcOpenMemHandle");
    budgets_.publish(ordinal);
    reply(cmd::OpenMemoryReply{address, item.facts.bytes, static_cast<int32_t>(ordinal)});
    return CUDA_SUCCESS;
  };
  const CUresult rc = attempt();
  // Memory that was freed may still be waiting for its streams.
  return rc == CUDA_ERROR_OUT_OF_MEMORY ? frees_.after(attempt, Frees::Which::kOfPoolsToo) : rc;
}

// Memory without an address

CUresult SharedObjects::onVmShare(const cmd::Decoded<cmd::VmShare>& command) {
  if (!sharing_) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t number = command.fixed.memory;
  const auto memory = virtualMemory_.find(number);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  if (!memory_.canShare(memory->device)) return CUDA_ERROR_NOT_SUPPORTED;
  auto handle = sharing_->find(Sharing::Kind::kPages, number);
  if (!handle) {
    Sharing::Item item;
    if (CUresult rc = exportFile(memory->handle, item.file)) return rc;
    item.facts.bytes = item.facts.fileBytes = memory->bytes;
    item.facts.charge = virtualMemory_.share(number);
    if (CUresult rc = shareItem(Sharing::Kind::kPages, number, memory->device, std::move(item), handle.emplace()))
      return rc;
  }
  reply(replyWith<cmd::VmShareReply>(*handle));
  return CUDA_SUCCESS;
}

CUresult SharedObjects::onVmOpen(const cmd::Decoded<cmd::VmOpen>& command) {
  if (!sharing_) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t number = command.fixed.memory;
  if (virtualMemory_.has(number)) return violation("there is memory of this number already");
  Sharing::Item item;
  size_t ordinal = 0;
  HeldMemory held(driver_);
  if (CUresult rc = importMemory(Sharing::Kind::kPages, handleIn(command.fixed.handle), item, ordinal, held.handle))
    return rc;
  if (CUresult rc = virtualMemory_.adopt(number, ordinal, item.facts.bytes, held.handle, item.facts.charge)) return rc;
  held.handle = 0;
  budgets_.publish(ordinal);
  reply(cmd::VmOpenReply{item.facts.bytes, static_cast<int32_t>(ordinal)});
  return CUDA_SUCCESS;
}

// Pools

CUresult SharedObjects::onPoolShare(const cmd::Decoded<cmd::PoolShare>& command) {
  if (!sharing_) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t pool = command.fixed.pool;
  const auto ordinal = memory_.pools().device(pool);
  if (!ordinal) return CUDA_ERROR_INVALID_VALUE;
  if (!memory_.canShare(*ordinal)) return CUDA_ERROR_NOT_SUPPORTED;
  auto handle = sharing_->find(Sharing::Kind::kPool, pool);
  if (!handle) {
    Sharing::Item item;
    item.facts.pool = pool;
    if (CUresult rc = shareItem(Sharing::Kind::kPool, pool, *ordinal, std::move(item), handle.emplace())) return rc;
  }
  reply(replyWith<cmd::PoolShareReply>(*handle));
  return CUDA_SUCCESS;
}

CUresult SharedObjects::onPoolOpen(const cmd::Decoded<cmd::PoolOpen>& command) {
  if (!sharing_) return CUDA_ERROR_NOT_SUPPORTED;
  Sharing::Item item;
  size_t ordinal = 0;
  if (CUresult rc = openItem(Sharing::Kind::kPool, handleIn(command.fixed.handle), item, ordinal)) return rc;
  const OpenedPools::Source source{item.worker, item.facts.pool};
  const uint64_t pool = memory_.opened().numberOf(source).value_or(command.fixed.pool);
  if (pool == command.fixed.pool && (memory_.pools().device(pool) || !memory_.opened().add(pool, source, ordinal)))
    return violation("there is a pool of this number already");
  reply(cmd::PoolOpenReply{pool, static_cast<int32_t>(ordinal)});
  return CUDA_SUCCESS;
}

CUresult SharedObjects::onPoolSharePointer(const cmd::Decoded<cmd::PoolSharePointer>& command) {
  if (!sharing_) return CUDA_ERROR_NOT_SUPPORTED;
  const CUdeviceptr address = AddressGate::key(command.fixed.address);
  const auto pool = memory_.pools().poolOf(address);
  const auto ordinal = pool ? memory_.pools().device(*pool) : std::nullopt;
  if (!ordinal || !sharing_->find(Sharing::Kind::kPool, *pool)) return CUDA_ERROR_INVALID_VALUE;
  Sharing::Handle handle{};
  if (CUresult rc = shareAllocation(Sharing::Kind::kPoolMemory, *ordinal, address, command.fixed.bytes, *pool, handle))
    return rc;
  reply(replyWith<cmd::PoolSharePointerReply>(handle));
  return CUDA_SUCCESS;
}

CUresult SharedObjects::onPoolOpenPointer(const cmd::Decoded<cmd::PoolOpenPointer>& command) {
  if (!sharing_) return CUDA_ERROR_NOT_SUPPORTED;
  const auto attempt = [this, pool = command.fixed.pool, handle = handleIn(command.fixed.handle)]() -> CUresult {
    cmd::PoolOpenPointerReply opened{};
    if (CUresult rc = openPooled(pool, handle, opened)) return rc;
    reply(opened);
    return CUDA_SUCCESS;
  };
  const CUresult rc = attempt();
  // Memory that was freed may still be waiting for its streams.
  return rc == CUDA_ERROR_OUT_OF_MEMORY ? frees_.after(attempt, Frees::Which::kOfPoolsToo) : rc;
}

CUresult SharedObjects::openPooled(uint64_t pool, const Sharing::Handle& handle, cmd::PoolOpenPointerReply& opened) {
  const auto view = memory_.opened().find(pool);
  if (!view) return CUDA_ERROR_INVALID_VALUE;
  Sharing::Item item;
  size_t ordinal = 0;
  if (CUresult rc = openItem(Sharing::Kind::kPoolMemory, handle, item, ordinal)) return rc;
  const Sharing::Item::Facts& facts = item.facts;
  const OpenedPools::Source source{item.worker, facts.pool};
  const bool isInside = facts.offset < facts.fileBytes && facts.bytes <= facts.fileBytes - facts.offset;
  if (view->source != source || view->device != ordinal || !isInside) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = memory_.opened().mapped(pool, facts.run);
  CUdeviceptr start = mapped.value_or(0);
  if (!mapped) {
    HeldMemory held(driver_);
    if (CUresult rc = importFile(item, held.handle)) return rc;
    if (CUresult rc = memory_.arena(ordinal).adopt(held.handle, facts.charge, facts.fileBytes, 0, start)) return rc;
    memory_.opened().map(pool, facts.run, start);
    budgets_.publish(ordinal);
  }
  const CUdeviceptr address = start + facts.offset;
  if (!memory_.opened().isOpen(address)) session_.sanitizer().allocated(address, facts.bytes, "cuMemPoolImportPointer");
  memory_.opened().open(start, address);
  opened = {address, facts.bytes};
  return CUDA_SUCCESS;
}

void SharedObjects::closeOpened(CUdeviceptr address, std::vector<Mark> place) {
  const auto start = memory_.opened().close(address);
  if (!start) return;
  session_.sanitizer().freed(address, "cuMemFreeAsync");
  const auto finish = [this, start = *start](uint16_t) {
    if (memory_.opened().leave(start)) memory_.giveBack({{.address = start}});
  };
  frees_.end({.finish = finish}, std::move(place));
}

// Events

CUresult SharedObjects::onShareEvent(const cmd::Decoded<cmd::ShareEvent>& command) {
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
    const size_t ordinal = contexts_.bound() ? contexts_.deviceOf(contexts_.bound()) : 0;
    if (CUresult rc = shareItem(Sharing::Kind::kEvent, command.fixed.event, ordinal, std::move(item), handle.emplace()))
      return rc;
  }
  reply(replyWith<cmd::ShareEventReply>(*handle));
  return CUDA_SUCCESS;
}

CUresult SharedObjects::onOpenEvent(const cmd::Decoded<cmd::OpenEvent>& command) {
  const uint64_t wire = command.fixed.event;
  CUevent event = nullptr;
  CUresult rc = objects_.admit(HandleKind::kEvent);
  if (!rc) rc = openEvent(handleIn(command.fixed.handle), event);
  // Always under its number, like every object whose handle the client chooses.
  return objects_.adopt(HandleKind::kEvent, wire, event)
             ? rc
             : violation("event " + std::to_string(wire) + " is in use already");
}

CUresult SharedObjects::openEvent(const Sharing::Handle& handle, CUevent& event) {
  if (!sharing_ || !driver_.cuIpcOpenEventHandle) return CUDA_ERROR_NOT_SUPPORTED;
  Sharing::Item item;
  if (const auto refusal = sharing_->open(Sharing::Kind::kEvent, handle, item))
    return *refusal == Sharing::Refusal::kOwn ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_MAP_FAILED;
  CUipcEventHandle own{};
  std::memcpy(&own, item.facts.event.data(), sizeof own);
  return driver_.cuIpcOpenEventHandle(&event, own);
}

}  // namespace millpond::worker
