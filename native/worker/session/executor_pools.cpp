// SPDX-License-Identifier: Apache-2.0
// Allocations of pools, in streams that may be captured.
#include "worker/session/executor.h"

namespace millpond::worker {

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
    sharedObjects_.closeOpened(address, std::move(place));
  else
    pools_.freeBlock(address, {command.fixed.stream, s.context}, place);
  return CUDA_SUCCESS;
}

CUresult Executor::refuseCapture(const Stream& s) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!s.handle || !driver_.cuStreamIsCapturing || driver_.cuStreamIsCapturing(s.handle, &status)) return CUDA_SUCCESS;
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace millpond::worker
