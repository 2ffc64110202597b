// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: taken from the same arenas and the same limit as all other memory, so that an allocation is
// answered without waiting for the device, and a free waits for its stream only.
#include <algorithm>

#include "base/log.h"
#include "worker/session/executor.h"

namespace millpond::worker {
CUresult Executor::onPoolCreate(const cmd::Decoded<cmd::PoolCreate>& command) {
  CUdevice id = 0;
  if (!device(command.fixed.device, id)) return violation("no device of the session");
  if (!pools_.create(command.fixed.pool, static_cast<size_t>(command.fixed.device), command.fixed.maxBytes))
    return violation("there is a pool of this number already");
  return CUDA_SUCCESS;
}

CUresult Executor::onPoolDestroy(const cmd::Decoded<cmd::PoolDestroy>& command) {
  if (openedPools_.destroy(command.fixed.pool)) return CUDA_SUCCESS;
  if (sharing_) sharing_->remove(Sharing::Kind::kPool, command.fixed.pool);
  std::vector<MemoryPools::Block> released;
  const bool known = pools_.destroy(command.fixed.pool, released);
  giveBackBlocks(released);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Executor::onPoolSetThreshold(const cmd::Decoded<cmd::PoolSetThreshold>& command) {
  return pools_.setThreshold(command.fixed.pool, command.fixed.bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Executor::onPoolResetHigh(const cmd::Decoded<cmd::PoolResetHigh>& command) {
  return pools_.resetHigh(command.fixed.pool, command.fixed.ofReserved != 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Executor::onPoolHigh(const cmd::Decoded<cmd::PoolHigh>& command) {
  const auto& high = command.fixed;
  return pools_.raiseHigh(high.pool, high.reserved, high.used) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Executor::onPoolTrim(const cmd::Decoded<cmd::PoolTrim>& command) {
  progressPoolFrees();
  std::vector<MemoryPools::Block> released;
  const bool known = pools_.trim(command.fixed.pool, command.fixed.bytes, released);
  giveBackBlocks(released);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Executor::onPoolUsage(const cmd::Decoded<cmd::PoolUsage>& command) {
  progressPoolFrees();
  progressEndings();
  const auto usage = pools_.usage(command.fixed.pool);
  if (!usage) return CUDA_ERROR_INVALID_VALUE;
  reply(cmd::PoolUsageReply{usage->reserved, usage->reservedHigh, usage->used, usage->usedHigh});
  return CUDA_SUCCESS;
}

CUresult Executor::onPoolAlloc(const cmd::Decoded<cmd::PoolAlloc>& command) {
  const auto& wanted = command.fixed;
  const auto ordinal = pools_.device(wanted.pool);
  if (!ordinal) return CUDA_ERROR_INVALID_VALUE;
  Stream s;
  if (!stream(wanted.stream, s)) return violation("unknown stream");
  if (wanted.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (captureStatus(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE) return captureAlloc(s, *ordinal, wanted.bytes);
  if (CUresult rc = refuseCapture(s)) return rc;
  const uint64_t bytes = MemoryArena::roundedBytes(wanted.bytes);
  if (bytes < wanted.bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t counted = MemoryPools::countedBytes(wanted.bytes);
  if (const auto again = pools_.reuse(wanted.pool, bytes, {wanted.stream, s.context}, counted)) {
    sanitizer_.allocated(*again, wanted.bytes, "cuMemAllocAsync");
    reply(cmd::PoolAllocReply{*again, 0});
    return CUDA_SUCCESS;
  }
  const auto context = static_cast<uint16_t>(*ordinal + 1);
  const auto attempt = [this, pool = wanted.pool, wantedBytes = wanted.bytes, bytes, counted, context]() -> CUresult {
    if (!pools_.device(pool)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<MemoryPools::Block> released;
    const bool hasRoom = pools_.makeRoom(pool, bytes, released);
    giveBackBlocks(released);
    if (!hasRoom) return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr address = 0;
    if (CUresult rc = allocate(context, bytes, address)) return rc;
    pools_.add({address, bytes, pool}, counted);
    sanitizer_.allocated(address, wantedBytes, "cuMemAllocAsync");
    reply(cmd::PoolAllocReply{address, 0});
    return CUDA_SUCCESS;
  };
  const CUresult rc = attempt();
  return rc == CUDA_ERROR_OUT_OF_MEMORY ? afterFrees(attempt, Frees::kOfPoolsToo) : rc;
}

CUresult Executor::onPoolFree(const cmd::Decoded<cmd::PoolFree>& command) {
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  const CUdeviceptr address = AddressGate::key(command.fixed.address);
  const bool isOpened = openedPools_.isOpen(address);
  const bool isOfPool = isOpened || pools_.isUsed(address);
  if (captureStatus(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE && !isOfPool) return captureFree(s, address);
  if (CUresult rc = refuseCapture(s)) return rc;
  if (isGraphMemory(address)) return freeGraphMemory(address, &s);
  if (!isOfPool) {
    // Memory of no pool is freed as it always is.
    cmd::Decoded<cmd::MemFree> ordinary{};
    ordinary.fixed.address = address;
    return onMemFree(ordinary);
  }
  // After a sticky failure nothing can be recorded and nothing runs any more.
  std::vector<Mark> place(1);
  if (mark(s, place[0]) != CUDA_SUCCESS) place.clear();
  if (isOpened)
    closeOpened(address, std::move(place));
  else
    freeBlock(address, {command.fixed.stream, s.context}, place);
  return CUDA_SUCCESS;
}

void Executor::freeBlock(CUdeviceptr address, MemoryPools::StreamKey stream, const std::vector<Mark>& place) {
  const uint64_t number = ++lastRetired_;
  sanitizer_.freed(address, "cuMemFreeAsync");
  if (sharing_) sharing_->remove(Sharing::Kind::kPoolMemory, address);
  pools_.free(address, stream, number);
  if (!place.empty()) {
    poolFrees_.push_back({number, place[0]});
    return;
  }
  std::vector<MemoryPools::Block> released;
  pools_.happened(number, released);
  giveBackBlocks(released);
}

CUresult Executor::refuseCapture(const Stream& s) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!s.handle || !driver_.cuStreamIsCapturing || driver_.cuStreamIsCapturing(s.handle, &status)) return CUDA_SUCCESS;
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void Executor::synchronisePools() {
  std::vector<MemoryPools::Block> released;
  pools_.synchronise(lastRetired_, released);
  giveBackBlocks(released);
}

bool Executor::progressPoolFrees() {
  std::vector<MemoryPools::Block> released;
  bool some = false;
  for (auto each = poolFrees_.begin(); each != poolFrees_.end();) {
    if (state({each->mark}) == CUDA_ERROR_NOT_READY) {
      ++each;
      continue;
    }
    giveBack(each->mark);
    pools_.happened(each->number, released);
    each = poolFrees_.erase(each);
    some = true;
  }
  giveBackBlocks(released);
  return some;
}

void Executor::giveBackBlocks(const std::vector<MemoryPools::Block>& blocks) {
  const uint16_t before = boundContext_;
  for (const MemoryPools::Block& block : blocks)
    for (uint16_t c = 1; c <= arenas_.size(); ++c) {
      if (!arenas_[c - 1u]->owns(block.address) || !useContext(c)) continue;
      if (CUresult rc = arenas_[c - 1u]->free(block.address))
        log(LogLevel::Warn, "freeing the memory of a pool failed with %d", static_cast<int>(rc));
      updateMemoryCounter(c);
    }
  useContext(before);
}

}  // namespace millpond::worker
