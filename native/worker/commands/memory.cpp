// SPDX-License-Identifier: Apache-2.0
// Device memory, pinned host memory, and frees that wait until no stream can still use the memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "protocol/transport/socket.h"
#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

constexpr size_t kFreesPerFence = 64;
constexpr uint64_t kPage = 4096;

/// Whether the file has so many bytes, and none that can be taken away under whoever touches them.
bool holds(int file, uint64_t bytes) {
  struct stat is{};
  const int seals = ::fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) && ::fstat(file, &is) == 0 && static_cast<uint64_t>(is.st_size) >= bytes;
}

/// Whether pinned memory can lie there: whole pages, and some.
bool isHostRun(uint64_t address, uint64_t bytes) {
  return bytes != 0 && bytes % kPage == 0 && address != 0 && address % kPage == 0 && address + bytes >= address;
}

}  // namespace

CUresult Executor::onMemAlloc(const cmd::Decoded<cmd::MemAlloc>& command) {
  if (!boundContext_) return CUDA_ERROR_INVALID_CONTEXT;
  const uint16_t context = boundContext_;
  const auto attempt = [this, context, bytes = command.fixed.bytes]() -> CUresult {
    CUdeviceptr address = 0;
    if (CUresult rc = allocate(context, bytes, address)) return rc;
    sanitizer_.allocated(address, bytes, "cuMemAlloc");
    reply(cmd::MemAllocReply{address});
    return CUDA_SUCCESS;
  };
  const CUresult rc = attempt();
  // Memory that was freed may still be waiting for its streams.
  return rc == CUDA_ERROR_OUT_OF_MEMORY ? afterFrees(attempt, Frees::kOfPoolsToo) : rc;
}

CUresult Executor::allocate(uint16_t context, uint64_t bytes, CUdeviceptr& address) {
  MemoryArena& arena = arenaOf(context);
  if (bytes > UINT64_MAX - sanitizer_.redzone()) return CUDA_ERROR_OUT_OF_MEMORY;
  bytes += sanitizer_.redzone();
  CUresult rc = arena.allocate(bytes, address);
  if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
    std::vector<MemoryPools::Block> kept;
    pools_.trimDevice(deviceOf(context), kept);
    if (kept.empty()) return rc;
    giveBackBlocks(kept);
    rc = arena.allocate(bytes, address);
  }
  updateMemoryCounter(context);
  return rc;
}

CUresult Executor::onMemFree(const cmd::Decoded<cmd::MemFree>& command) {
  const CUdeviceptr address = AddressGate::key(command.fixed.address);
  if (isGraphMemory(address)) return withoutCallbacks([this, address] { return freeGraphMemory(address, nullptr); });
  const auto run = openedPools_.close(address);
  if (!run && (pools_.isKept(address) || openedPools_.isMapped(address))) return CUDA_ERROR_INVALID_VALUE;
  const CUdeviceptr place = run.value_or(address);
  for (uint16_t c = 1; c <= arenas_.size(); ++c) {
    if (!arenas_[c - 1u]->owns(place)) continue;
    if (!run && isFreed(c, address)) return CUDA_ERROR_INVALID_VALUE;
    const bool isPooled = pools_.take(address).has_value();
    if (sharing_) sharing_->remove(isPooled ? Sharing::Kind::kPoolMemory : Sharing::Kind::kMemory, address);
    command.fixed.isLeft ? sanitizer_.left(address) : sanitizer_.freed(address, "cuMemFree");
    freeLater(c, place);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

bool Executor::isFreed(uint16_t context, CUdeviceptr address) const {
  const auto has = [address](const std::vector<CUdeviceptr>& addresses) {
    return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
  };
  return has(freed_[context - 1u]) ||
         std::any_of(retired_.begin(), retired_.end(), [&](const Retired& batch) { return has(batch.addresses); });
}

void Executor::freeLater(uint16_t context, CUdeviceptr address) {
  auto& freed = freed_[context - 1u];
  freed.push_back(address);
  if (freed.size() >= kFreesPerFence) retire(context);
}

CUresult Executor::onMemGetInfo(const cmd::Decoded<cmd::MemGetInfo>&) {
  if (!boundContext_) return CUDA_ERROR_INVALID_CONTEXT;
  // A program that has synchronised finds free what its pools have given back then.
  progressPoolFrees();
  return afterFrees([this, context = boundContext_] { return memoryInfo(context); });
}

CUresult Executor::memoryInfo(uint16_t context) {
  const ClaimBudget& budget = budgets_[deviceOf(context)];
  size_t physicallyFree = 0, physical = 0;
  if (CUresult rc = driver_.cuMemGetInfo_v2(&physicallyFree, &physical)) return rc;
  reply(cmd::MemGetInfoReply{std::min<uint64_t>(budget.left(), physicallyFree), budget.limitBytes()});
  return CUDA_SUCCESS;
}

void Executor::retire(uint16_t context) {
  auto& freed = freed_[context - 1u];
  // Fences would disturb a capture.
  if (!captures_.empty() || freed.empty() || !useContext(context)) return;
  Retired batch{++lastRetired_, context, std::move(freed), {}};
  freed.clear();
  // After a sticky failure nothing can be recorded and nothing runs any more.
  if (fence(0, batch.fence) != CUDA_SUCCESS) batch.fence.clear();
  retired_.push_back(std::move(batch));
}

bool Executor::progressRetired() {
  bool some = false;
  for (auto r = retired_.begin(); r != retired_.end();) {
    if (state(r->fence) == CUDA_ERROR_NOT_READY) {
      ++r;
      continue;
    }
    const Retired batch = std::move(*r);
    r = retired_.erase(r);
    giveBack(batch.fence);
    some = true;
    if (!useContext(batch.context)) continue;
    for (const CUdeviceptr address : batch.addresses) {
      if (openedPools_.isMapped(address) && !openedPools_.leave(address)) continue;
      if (CUresult rc = arenas_[batch.context - 1u]->free(address))
        log(LogLevel::Warn, "freeing device memory failed with %d", static_cast<int>(rc));
    }
    updateMemoryCounter(batch.context);
  }
  return some;
}

bool Executor::freesPending(uint16_t context, uint64_t number, Frees frees) const {
  if (frees == Frees::kOfPoolsToo && !poolFrees_.empty() && poolFrees_.front().number <= number) return true;
  // Endings are done in their order.
  return (!endings_.empty() && endings_.front().number <= number) ||
         std::any_of(retired_.begin(), retired_.end(),
                     [&](const Retired& r) { return r.context == context && r.number <= number; });
}

CUresult Executor::afterFrees(std::function<CUresult()> command, Frees frees) {
  const uint16_t context = current_.context;
  if (context == 0) return command();  // which waits for the frees of none
  retire(primaryOf(context));
  progressRetired();
  progressEndings();
  useContext(context);
  if (!freesPending(primaryOf(context), lastRetired_, frees)) return command();
  afterFrees_.push_back({current_, lastRetired_, frees, std::move(command)});
  return kDeferred;
}

bool Executor::progressAfterFrees() {
  bool some = false;
  for (auto a = afterFrees_.begin(); a != afterFrees_.end() && !ended_;) {
    if (freesPending(primaryOf(a->request.context), a->number, a->frees)) {
      ++a;
      continue;
    }
    const AfterFrees due = std::move(*a);
    a = afterFrees_.erase(a);
    some = true;
    replyBody_.clear();
    useContext(due.request.context);
    answer(due.request, due.run());
  }
  return some;
}

void Executor::updateMemoryCounter(uint16_t context) {
  counters_.memoryUsed[deviceOf(context)].store(budgets_[deviceOf(context)].ownBytes(), std::memory_order_relaxed);
}

void Executor::updateMemoryCounters() {
  for (uint16_t c = 1; c <= budgets_.size(); ++c) updateMemoryCounter(c);
}

// Pinned host memory, shared with a client on the same host, or this worker's own where the client mirrors it

CUresult Executor::onHostAlloc(const cmd::Decoded<cmd::HostAlloc>& command) {
  const uint64_t bytes = command.fixed.bytes;
  const uint64_t address = AddressGate::wish(command.fixed.address);
  const bool isPrivate = command.fixed.isPrivate != 0;
  if (link_.remote() && !isPrivate) return violation("pinned memory cannot be shared over TCP");
  if (!isHostRun(address, bytes)) return violation("pinned memory of " + std::to_string(bytes) + " bytes at an odd place");
  UniqueFd file;
  if (!isPrivate) {
    file = UniqueFd(::memfd_create("millpond-pinned", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // Where something lies there, the client tries another address.
  if (CUresult rc = mapHostRun(address, bytes, file.get())) return rc;
  if (isPrivate) return CUDA_SUCCESS;
  if (auto sent = sendFile(link_.socket(), file.get()); !sent) {
    ended_ = true;
    end_ = {sent.error().message, true};
  }
  return CUDA_SUCCESS;
}

CUresult Executor::mapHostRun(uint64_t address, uint64_t bytes, int file) {
  if (!takeHost(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* wanted = reinterpret_cast<void*>(address);
  const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* here = ::mmap(wanted, bytes, PROT_READ | PROT_WRITE, kind | MAP_FIXED_NOREPLACE, file, 0);
  if (here != wanted) {
    if (here != MAP_FAILED) ::munmap(here, bytes);
    giveHost(bytes);
    return CUDA_ERROR_ALREADY_MAPPED;
  }
  if (CUresult rc = pin(here, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)) {
    ::munmap(here, bytes);
    giveHost(bytes);
    return rc;
  }
  hostRuns_.add(address, {.bytes = bytes, .isPrivate = file < 0});
  return CUDA_SUCCESS;
}

CUresult Executor::onHostKeep(const cmd::Decoded<cmd::HostKeep>& command) {
  const uint64_t bytes = command.fixed.bytes;
  const uint64_t address = AddressGate::wish(command.fixed.address);
  if (const HostRuns::Run* run = hostRuns_.at(address)) {
    if (run->isPrivate || run->bytes != bytes) return violation("no such memory is shared");
    hostRuns_.keep(address);
    return CUDA_SUCCESS;
  }
  if (link_.remote() || !parking_.isResumed || restoredAt_) return violation("no such memory is shared");
  if (!isHostRun(address, bytes)) return violation("pinned memory of " + std::to_string(bytes) + " bytes at an odd place");
  // It was sent before the command was.
  const auto file = receiveFile(link_.socket(), 0);
  if (!file || !holds(file->get(), bytes)) return violation("pinned memory without its file");
  if (CUresult rc = mapHostRun(address, bytes, file->get())) return rc;
  hostRuns_.keep(address);
  return CUDA_SUCCESS;
}

void Executor::releaseHostRun(uint64_t address, uint64_t bytes) {
  unpin(reinterpret_cast<void*>(address));
  ::munmap(reinterpret_cast<void*>(address), bytes);
  giveHost(bytes);
}

void Executor::releaseForgottenRuns() {
  if (!graphs_.empty() || !execs_.empty() || !captures_.empty()) return;
  hostRuns_.forgetGraphs();
  for (const auto& [address, bytes] : hostRuns_.takeForgotten()) {
    // Launches of graphs that are gone may still run.
    Ending ending{++lastRetired_, address, bytes, Ending::Kind::kHostRun, {}, {}};
    if (fence(0, ending.fence) != CUDA_SUCCESS) ending.fence.clear();
    endings_.push_back(std::move(ending));
  }
  progressEndings();
}

CUresult Executor::onHostFree(const cmd::Decoded<cmd::HostFree>& command) {
  const uint64_t address = AddressGate::key(command.fixed.address);
  const HostRuns::Run* run = hostRuns_.at(address);
  if (!run) return violation("no pinned memory begins there");
  const uint64_t bytes = run->bytes;
  if (!hostRuns_.remove(address)) {
    // What was there would be something else's when the graph comes to it.
    releaseForgottenRuns();
    return CUDA_SUCCESS;
  }
  std::vector<Mark> marks;
  const auto release = [this, address, bytes]() -> CUresult {
    releaseHostRun(address, bytes);
    return CUDA_SUCCESS;
  };
  if (fence(0, marks) != CUDA_SUCCESS || marks.empty()) return withoutCallbacks(release);
  pending_.push_back({current_, std::move(marks), nullptr,
                      [this, release](CUresult) { return withoutCallbacks(release); }});
  return kDeferred;
}

}  // namespace millpond::worker
