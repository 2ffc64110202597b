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
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  const uint16_t context = contexts_.bound();
  const auto attempt = [this, context, bytes = command.fixed.bytes]() -> CUresult {
    CUdeviceptr address = 0;
    if (CUresult rc = memory_.allocate(contexts_.deviceOf(context), bytes, address)) return rc;
    session_.sanitizer().allocated(address, bytes, "cuMemAlloc");
    reply(cmd::MemAllocReply{address});
    return CUDA_SUCCESS;
  };
  const CUresult rc = attempt();
  // Memory that was freed may still be waiting for its streams.
  return rc == CUDA_ERROR_OUT_OF_MEMORY ? frees_.after(attempt, Frees::Which::kOfPoolsToo) : rc;
}

CUresult Executor::onMemFree(const cmd::Decoded<cmd::MemFree>& command) {
  const CUdeviceptr address = AddressGate::key(command.fixed.address);
  if (graphMemory_.contains(address)) return order_.run([this, address] { return graphMemory_.free(address, nullptr); });
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
  // A program that has synchronised finds free what its pools have given back then.
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
    session_.end({sent.error().message, true});
  }
  return CUDA_SUCCESS;
}

CUresult Executor::mapHostRun(uint64_t address, uint64_t bytes, int file) {
  if (!counts_.take(Thing::kHostByte, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* wanted = reinterpret_cast<void*>(address);
  const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* here = ::mmap(wanted, bytes, PROT_READ | PROT_WRITE, kind | MAP_FIXED_NOREPLACE, file, 0);
  if (here != wanted) {
    if (here != MAP_FAILED) ::munmap(here, bytes);
    counts_.give(Thing::kHostByte, bytes);
    return CUDA_ERROR_ALREADY_MAPPED;
  }
  if (CUresult rc = pinned_.pin(here, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)) {
    ::munmap(here, bytes);
    counts_.give(Thing::kHostByte, bytes);
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
  if (link_.remote() || !session_.isResumed() || restoredAt_) return violation("no such memory is shared");
  if (!isHostRun(address, bytes)) return violation("pinned memory of " + std::to_string(bytes) + " bytes at an odd place");
  // It was sent before the command was.
  const auto file = receiveFile(link_.socket(), 0);
  if (!file || !holds(file->get(), bytes)) return violation("pinned memory without its file");
  if (CUresult rc = mapHostRun(address, bytes, file->get())) return rc;
  hostRuns_.keep(address);
  return CUDA_SUCCESS;
}

void Executor::releaseHostRun(uint64_t address, uint64_t bytes) {
  pinned_.unpin(reinterpret_cast<void*>(address));
  ::munmap(reinterpret_cast<void*>(address), bytes);
  counts_.give(Thing::kHostByte, bytes);
}

void Executor::releaseForgottenRuns() {
  if (!graphs_.empty() || !execs_.empty() || !captures_.empty()) return;
  hostRuns_.forgetGraphs();
  for (const auto& [address, bytes] : hostRuns_.takeForgotten()) {
    // Launches of graphs that are gone may still run.
    frees_.end({.finish = [this, address, bytes](uint16_t) {
      const auto release = [this, address, bytes]() -> CUresult {
        releaseHostRun(address, bytes);
        return CUDA_SUCCESS;
      };
      // Unpinning waits for the device, and so for functions of the client.
      if (order_.expected() == 0) release();
      else order_.runLater({0, contexts_.bound(), 0, 0}, release);
    }});
  }
  frees_.progressEndings();
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
  if (marks_.fence(0, marks) != CUDA_SUCCESS || marks.empty()) return order_.run(release);
  return waits_.until(std::move(marks), [this, release](CUresult) { return order_.run(release); });
}

}  // namespace millpond::worker
