// SPDX-License-Identifier: Apache-2.0
// Device memory.

#include <algorithm>

#include "base/log.h"
#include "cuda/program_calls_table.h"
#include "worker/session/executor.h"

namespace millpond::worker {
CUresult Executor::onMemAlloc(const cmd::Decoded<cmd::MemAlloc>& command) {
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

CUresult Executor::onMemFree(const cmd::Decoded<cmd::MemFree>& command) {
  const CUdeviceptr address = AddressGate::key(command.fixed.address);
  if (graphMemory_.contains(address))
    return order_.run([this, address] { return graphMemory_.free(address, nullptr); });
  const auto run = memory_.opened().close(address);
  if (!run && (memory_.pools().isKept(address) || memory_.opened().isMapped(address))) return CUDA_ERROR_INVALID_VALUE;
  const CUdeviceptr place = run.value_or(address);
  const auto ordinal = memory_.deviceOf(place);
  if (!ordinal || (!run && frees_.isFreed(*ordinal, address))) return CUDA_ERROR_INVALID_VALUE;
  const bool isPooled = memory_.pools().take(address).has_value();
  if (sharing_) sharing_->remove(isPooled ? Sharing::Kind::kPoolMemory : Sharing::Kind::kMemory, address);
  command.fixed.isLeft ? session_.sanitizer().left(address) : session_.sanitizer().freed(address, "cuMemFree");
  frees_.later(*ordinal, place);
  return CUDA_SUCCESS;
}

CUresult Executor::onMemGetInfo(const cmd::Decoded<cmd::MemGetInfo>&) {
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  // After a synchronisation the program sees memory that its pools have released as free.
  frees_.progressBlocks();
  return frees_.after([this, context = contexts_.bound()] { return memoryInfo(context); });
}

CUresult Executor::memoryInfo(uint16_t context) {
  const ClaimBudget& budget = budgets_.at(contexts_.deviceOf(context));
  size_t physicallyFree = 0, physical = 0;
  if (CUresult rc = driver_.cuMemGetInfo_v2(&physicallyFree, &physical)) return rc;
  reply(cmd::MemGetInfoReply{std::min<uint64_t>(budget.left(), physicallyFree), budget.limitBytes()});
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
