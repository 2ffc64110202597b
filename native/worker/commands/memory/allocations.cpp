// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/memory/allocations.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/program_calls_table.h"

namespace millpond::worker {

CUresult Allocations::onMemAlloc(const cmd::Decoded<cmd::MemAlloc>& command) {
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  const uint16_t context = contexts_.bound();
  const char* const call = command.fixed.flags == kManagedMemory ? kManagedCall : "cuMemAlloc";
  const auto attempt = [this, context, bytes = command.fixed.bytes, call]() -> CUresult {
    CUdeviceptr address = 0;
    if (CUresult rc = memory_.allocate(contexts_.deviceOf(context), bytes, address)) return rc;
    session_.sanitizer().allocated(address, bytes, call);
    reply(cmd::MemAllocReply{address});
    return CUDA_SUCCESS;
  };
  const CUresult rc = attempt();
  // Memory that was freed may still be waiting for its streams.
  return rc == CUDA_ERROR_OUT_OF_MEMORY ? frees_.after(attempt, Frees::Which::kOfPoolsToo) : rc;
}

CUresult Allocations::onMemFree(const cmd::Decoded<cmd::MemFree>& command) {
  return free(AddressGate::key(command.fixed.address), command.fixed.isLeft != 0);
}

CUresult Allocations::free(CUdeviceptr address, bool isLeft) {
  if (graphMemory_.contains(address))
    return order_.run([this, address] { return graphMemory_.free(address, nullptr); });
  const auto run = memory_.opened().close(address);
  if (!run && (memory_.pools().isKept(address) || memory_.opened().isMapped(address))) return CUDA_ERROR_INVALID_VALUE;
  const CUdeviceptr place = run.value_or(address);
  const auto ordinal = memory_.deviceOf(place);
  if (!ordinal || (!run && frees_.isFreed(*ordinal, address))) return CUDA_ERROR_INVALID_VALUE;
  const bool isPooled = memory_.pools().take(address).has_value();
  if (sharing_) sharing_->remove(isPooled ? Sharing::Kind::kPoolMemory : Sharing::Kind::kMemory, address);
  isLeft ? session_.sanitizer().left(address) : session_.sanitizer().freed(address, "cuMemFree");
  frees_.later(*ordinal, place);
  return CUDA_SUCCESS;
}

CUresult Allocations::onMemGetInfo(const cmd::Decoded<cmd::MemGetInfo>&) {
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  // After a synchronisation the program sees memory that its pools have released as free.
  frees_.progressBlocks();
  return frees_.after([this, context = contexts_.bound()] { return memoryInfo(context); });
}

CUresult Allocations::memoryInfo(uint16_t context) {
  const ClaimBudget& budget = budgets_.at(contexts_.deviceOf(context));
  size_t physicallyFree = 0, physical = 0;
  if (CUresult rc = driver_.cuMemGetInfo_v2(&physicallyFree, &physical)) return rc;
  reply(cmd::MemGetInfoReply{std::min<uint64_t>(budget.left(), physicallyFree), budget.limitBytes()});
  return CUDA_SUCCESS;
}

CUresult Allocations::onPoolAlloc(const cmd::Decoded<cmd::PoolAlloc>& command) {
  const auto& wanted = command.fixed;
  const auto ordinal = memory_.pools().device(wanted.pool);
  if (!ordinal) return CUDA_ERROR_INVALID_VALUE;
  Stream s;
  if (!stream(wanted.stream, s)) return violation("unknown stream");
  if (wanted.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (captures_.status(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return captureCommands_.addAllocation(s, *ordinal, wanted.bytes);
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

CUresult Allocations::onPoolFree(const cmd::Decoded<cmd::PoolFree>& command) {
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  const CUdeviceptr address = AddressGate::key(command.fixed.address);
  const bool isOpened = memory_.opened().isOpen(address);
  const bool isOfPool = isOpened || memory_.pools().isUsed(address);
  if (captures_.status(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE && !isOfPool) return captureCommands_.addFree(s, address);
  if (CUresult rc = refuseCapture(s)) return rc;
  if (graphMemory_.contains(address)) return graphMemory_.free(address, &s);
  // Memory outside pools is freed as usual.
  if (!isOfPool) return free(address, false);
  // After a sticky failure nothing can be recorded and nothing runs any more.
  std::vector<Mark> place(1);
  if (marks_.mark(s, place[0]) != CUDA_SUCCESS) place.clear();
  if (isOpened)
    sharedObjects_.closeOpened(address, std::move(place));
  else
    pools_.freeBlock(address, {command.fixed.stream, s.context}, place);
  return CUDA_SUCCESS;
}

CUresult Allocations::refuseCapture(const Stream& s) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!s.handle || !driver_.cuStreamIsCapturing || driver_.cuStreamIsCapturing(s.handle, &status)) return CUDA_SUCCESS;
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace millpond::worker
