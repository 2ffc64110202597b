// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/memory/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "protocol/transport/socket.h"

namespace millpond::worker {
namespace {

constexpr uint64_t kPage = 4096;

/// Whether the file has that many bytes, and cannot be truncated under a thread that touches them.
bool holds(int file, uint64_t bytes) {
  struct stat is {};
  const int seals = ::fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) && ::fstat(file, &is) == 0 && static_cast<uint64_t>(is.st_size) >= bytes;
}

/// Whether pinned memory can be there: whole pages, at least one.
bool isHostRun(uint64_t address, uint64_t bytes) {
  return bytes != 0 && bytes % kPage == 0 && address != 0 && address % kPage == 0 && address + bytes >= address;
}

}  // namespace

CUresult HostMemory::onHostAlloc(const cmd::Decoded<cmd::HostAlloc>& command) {
  const uint64_t bytes = command.fixed.bytes;
  const uint64_t address = AddressGate::wish(command.fixed.address);
  const bool isPrivate = command.fixed.isPrivate != 0;
  if (link_.remote() && !isPrivate) return violation("pinned memory cannot be shared over TCP");
  if (!isHostRun(address, bytes))
    return violation("pinned memory of " + std::to_string(bytes) + " bytes at an odd place");
  UniqueFd file;
  if (!isPrivate) {
    file = UniqueFd(::memfd_create("millpond-pinned", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // If the address is taken, the client tries another one.
  if (CUresult rc = mapHostRun(address, bytes, file.get())) return rc;
  if (isPrivate) return CUDA_SUCCESS;
  if (auto sent = sendFile(link_.socket(), file.get()); !sent) {
    session_.end({sent.error().message, true});
  }
  return CUDA_SUCCESS;
}

CUresult HostMemory::mapHostRun(uint64_t address, uint64_t bytes, int file) {
  if (!counts_.take(Thing::kHostByte, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* here = reinterpret_cast<void*>(address);
  const HostRuns::Run run{.bytes = bytes, .isPrivate = file < 0};
  bool isMapped = false;
  if (run.isPrivate) {
    isMapped = clientPages_.viewInPlace(address, bytes).has_value();
  } else {
    void* place = ::mmap(here, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
    isMapped = place == here;
    if (!isMapped && place != MAP_FAILED) ::munmap(place, bytes);
  }
  if (!isMapped) {
    counts_.give(Thing::kHostByte, bytes);
    return CUDA_ERROR_ALREADY_MAPPED;
  }
  if (CUresult rc = pinned_.pin(here, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)) {
    unmapHostRun(address, run);
    return rc;
  }
  hostRuns_.add(address, run);
  return CUDA_SUCCESS;
}

void HostMemory::unmapHostRun(uint64_t address, const HostRuns::Run& run) {
  auto* memory = reinterpret_cast<std::byte*>(address);
  if (run.isPrivate)
    clientPages_.end({address, run.bytes, memory});
  else
    ::munmap(memory, run.bytes);
  counts_.give(Thing::kHostByte, run.bytes);
}

CUresult HostMemory::onHostKeep(const cmd::Decoded<cmd::HostKeep>& command) {
  const uint64_t bytes = command.fixed.bytes;
  const uint64_t address = AddressGate::wish(command.fixed.address);
  if (const HostRuns::Run* run = hostRuns_.at(address)) {
    if (run->isPrivate || run->bytes != bytes) return violation("unknown shared memory");
    hostRuns_.keep(address);
    return CUDA_SUCCESS;
  }
  if (link_.remote() || !session_.isResumed() || session_.isRestored()) return violation("unknown shared memory");
  if (!isHostRun(address, bytes))
    return violation("pinned memory of " + std::to_string(bytes) + " bytes at an odd place");
  // It was sent before the command.
  const auto file = receiveFile(link_.socket(), 0);
  if (!file || !holds(file->get(), bytes)) return violation("pinned memory without a file");
  if (CUresult rc = mapHostRun(address, bytes, file->get())) return rc;
  hostRuns_.keep(address);
  return CUDA_SUCCESS;
}

void HostMemory::releaseHostRun(uint64_t address, const HostRuns::Run& run) {
  pinned_.unpin(reinterpret_cast<void*>(address));
  unmapHostRun(address, run);
}

void HostMemory::releaseForgotten() {
  if (areThereGraphs_() || !captures_.empty()) return;
  hostRuns_.forgetGraphs();
  for (const auto& forgotten : hostRuns_.takeForgotten()) {
    // Not a structured binding, which clang 14 cannot capture.
    const auto address = forgotten.first;
    const auto run = forgotten.second;
    // Launches of destroyed graphs may still run.
    frees_.end({.finish = [this, address, run](uint16_t) {
      const auto release = [this, address, run]() -> CUresult {
        releaseHostRun(address, run);
        return CUDA_SUCCESS;
      };
      // Unpinning waits for the device, and so for functions of the client.
      if (order_.expected() == 0)
        release();
      else
        order_.runLater({0, contexts_.bound(), 0, 0}, release);
    }});
  }
  frees_.progressEndings();
}

CUresult HostMemory::onHostFree(const cmd::Decoded<cmd::HostFree>& command) {
  const uint64_t address = AddressGate::key(command.fixed.address);
  const HostRuns::Run* found = hostRuns_.at(address);
  if (!found) return violation("no pinned memory begins there");
  const HostRuns::Run run = *found;
  if (!hostRuns_.remove(address)) {
    // The memory would belong to another object when the graph reaches the node.
    releaseForgotten();
    return CUDA_SUCCESS;
  }
  std::vector<Mark> marks;
  const auto release = [this, address, run]() -> CUresult {
    releaseHostRun(address, run);
    return CUDA_SUCCESS;
  };
  if (marks_.fence(0, marks) != CUDA_SUCCESS || marks.empty()) return order_.run(release);
  return waits_.until(std::move(marks), [this, release](CUresult) { return order_.run(release); });
}

}  // namespace millpond::worker
