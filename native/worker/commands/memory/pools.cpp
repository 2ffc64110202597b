// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/memory/pools.h"

namespace millpond::worker {

CUresult Pools::onPoolCreate(const cmd::Decoded<cmd::PoolCreate>& command) {
  CUdevice id = 0;
  if (!device(command.fixed.device, id)) return violation("no device of the session");
  if (!memory_.pools().create(command.fixed.pool, static_cast<size_t>(command.fixed.device), command.fixed.maxBytes))
    return violation("there is a pool of this number already");
  return CUDA_SUCCESS;
}

CUresult Pools::onPoolDestroy(const cmd::Decoded<cmd::PoolDestroy>& command) {
  if (memory_.opened().destroy(command.fixed.pool)) return CUDA_SUCCESS;
  if (sharing_) sharing_->remove(Sharing::Kind::kPool, command.fixed.pool);
  std::vector<MemoryPools::Block> released;
  const bool known = memory_.pools().destroy(command.fixed.pool, released);
  memory_.giveBack(released);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Pools::onPoolSetThreshold(const cmd::Decoded<cmd::PoolSetThreshold>& command) {
  return memory_.pools().setThreshold(command.fixed.pool, command.fixed.bytes) ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult Pools::onPoolResetHigh(const cmd::Decoded<cmd::PoolResetHigh>& command) {
  return memory_.pools().resetHigh(command.fixed.pool, command.fixed.ofReserved != 0) ? CUDA_SUCCESS
                                                                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult Pools::onPoolHigh(const cmd::Decoded<cmd::PoolHigh>& command) {
  const auto& high = command.fixed;
  return memory_.pools().raiseHigh(high.pool, high.reserved, high.used) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Pools::onPoolTrim(const cmd::Decoded<cmd::PoolTrim>& command) {
  frees_.progressBlocks();
  std::vector<MemoryPools::Block> released;
  const bool known = memory_.pools().trim(command.fixed.pool, command.fixed.bytes, released);
  memory_.giveBack(released);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Pools::onPoolUsage(const cmd::Decoded<cmd::PoolUsage>& command) {
  frees_.progressBlocks();
  frees_.progressEndings();
  const auto usage = memory_.pools().usage(command.fixed.pool);
  if (!usage) return CUDA_ERROR_INVALID_VALUE;
  reply(cmd::PoolUsageReply{usage->reserved, usage->reservedHigh, usage->used, usage->usedHigh});
  return CUDA_SUCCESS;
}

void Pools::freeBlock(CUdeviceptr address, MemoryPools::StreamKey stream, const std::vector<Mark>& place) {
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

}  // namespace millpond::worker
