// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: it shares the arenas and the limit of all other memory, so an allocation is answered without
// waiting for the device, and a free waits only for its stream.
#include <algorithm>

#include "base/log.h"
#include "worker/session/executor.h"

namespace millpond::worker {
CUresult Executor::onPoolCreate(const cmd::Decoded<cmd::PoolCreate>& command) {
  CUdevice id = 0;
  if (!device(command.fixed.device, id)) return violation("no device of the session");
  if (!memory_.pools().create(command.fixed.pool, static_cast<size_t>(command.fixed.device), command.fixed.maxBytes))
    return violation("there is a pool of this number already");
  return CUDA_SUCCESS;
}

CUresult Executor::onPoolDestroy(const cmd::Decoded<cmd::PoolDestroy>& command) {
  if (memory_.opened().destroy(command.fixed.pool)) return CUDA_SUCCESS;
  if (sharing_) sharing_->remove(Sharing::Kind::kPool, command.fixed.pool);
  std::vector<MemoryPools::Block> released;
  const bool known = memory_.pools().destroy(command.fixed.pool, released);
  memory_.giveBack(released);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Executor::onPoolSetThreshold(const cmd::Decoded<cmd::PoolSetThreshold>& command) {
  return memory_.pools().setThreshold(command.fixed.pool, command.fixed.bytes) ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult Executor::onPoolResetHigh(const cmd::Decoded<cmd::PoolResetHigh>& command) {
  return memory_.pools().resetHigh(command.fixed.pool, command.fixed.ofReserved != 0) ? CUDA_SUCCESS
                                                                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult Executor::onPoolHigh(const cmd::Decoded<cmd::PoolHigh>& command) {
  const auto& high = command.fixed;
  return memory_.pools().raiseHigh(high.pool, high.reserved, high.used) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Executor::onPoolTrim(const cmd::Decoded<cmd::PoolTrim>& command) {
  frees_.progressBlocks();
  std::vector<MemoryPools::Block> released;
  const bool known = memory_.pools().trim(command.fixed.pool, command.fixed.bytes, released);
  memory_.giveBack(released);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Executor::onPoolUsage(const cmd::Decoded<cmd::PoolUsage>& command) {
  frees_.progressBlocks();
  frees_.progressEndings();
  const auto usage = memory_.pools().usage(command.fixed.pool);
  if (!usage) return CUDA_ERROR_INVALID_VALUE;
  reply(cmd::PoolUsageReply{usage->reserved, usage->reservedHigh, usage->used, usage->usedHigh});
  return CUDA_SUCCESS;
}

CUresult Executor::onPoolAlloc(const cmd::Decoded<cmd::PoolAlloc>& command) {
  const auto& wanted = command.fixed;
  const auto ordinal = memory_.pools().device(wanted.pool);
  if (!ordinal) return CUDA_ERROR_INVALID_VALUE;
  Stream s;
  if (!stream(wanted.stream, s)) return violation("unknown stream");
  if (wanted.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (captures_.status(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE) return captureAlloc(s, *ordinal, wanted.bytes);
  if (CUresult rc = refuseCapture(s)) return rc;
  const uint64_t bytes = MemoryArena::roundedBytes(wanted.bytes);
  if (bytes < wanted.bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t counted = MemoryPools::countedBytes(wanted.bytes);
  if (const auto again = memory_.pools().reuse(wanted.pool, bytes, {wanted.stream, s.context}, counted)) {
    session_.sanitizer().allocated(*again, wanted.bytes, "cuMemAllocAsync");
    reply(cmd::PoolAllocReply{*again, 0});
    return CUDA_SUCCESS;
  }
  const auto attempt = [this, pool = wanted.pool, wantedBytes = wanted.bytes, bytes, counted,
                        device = *ordinal]() -> CUresult {
    if (!memory_.pools().device(pool)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<MemoryPools::Block> released;
    const bool hasRoom = memory_.pools().makeRoom(pool, bytes, released);
    memory_.giveBack(released);
    if (!hasRoom) return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr address = 0;
    if (CUresult rc = memory_.allocate(device, bytes, address)) return rc;
    memory_.pools().add({address, bytes, pool}, counted);
    session_.sanitizer().allocated(address, wantedBytes, "cuMemAllocAsync");
    reply(cmd::PoolAllocReply{address, 0});
    return CUDA_SUCCESS;
  };
  const CUresult rc = attempt();
  return rc == CUDA_ERROR_OUT_OF_MEMORY ? frees_.after(attempt, Frees::Which::kOfPoolsToo) : rc;
}

CUresult Executor::onPoolFree(const cmd::Decoded<cmd::PoolFree>& command) {
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  const CUdeviceptr address = AddressGate::key(command.fixed.address);
  const bool isOpened = memory_.opened().isOpen(address);
  const bool isOfPool = isOpened || memory_.pools().isUsed(address);
  if (captures_.status(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE && !isOfPool) return captureFree(s, address);
  if (CUresult rc = refuseCapture(s)) return rc;
  if (graphMemory_.contains(address)) return graphMemory_.free(address, &s);
  if (!isOfPool) {
    // Memory outside pools is freed as usual.
    cmd::Decoded<cmd::MemFree> ordinary{};
    ordinary.fixed.address = address;
    return onMemFree(ordinary);
  }
  // After a sticky failure nothing can be recorded and nothing runs any more.
  std::vector<Mark> place(1);
  if (marks_.mark(s, place[0]) != CUDA_SUCCESS) place.clear();
  if (isOpened)
    closeOpened(address, std::move(place));
  else
    freeBlock(address, {command.fixed.stream, s.context}, place);
  return CUDA_SUCCESS;
}

void Executor::freeBlock(CUdeviceptr address, MemoryPools::StreamKey stream, const std::vector<Mark>& place) {
  const uint64_t number = frees_.nextNumber();
  session_.sanitizer().freed(address, "cuMemFreeAsync");
  if (sharing_) sharing_->remove(Sharing::Kind::kPoolMemory, address);
  memory_.pools().free(address, stream, number);
  if (!place.empty()) {
    frees_.freeBlock(number, place[0]);
    return;
  }
  std::vector<MemoryPools::Block> released;
  memory_.pools().happened(number, released);
  memory_.giveBack(released);
}

CUresult Executor::refuseCapture(const Stream& s) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!s.handle || !driver_.cuStreamIsCapturing || driver_.cuStreamIsCapturing(s.handle, &status)) return CUDA_SUCCESS;
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace millpond::worker
