// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/memory/mirrored_memory.h"

#include <cstring>

namespace millpond::worker {

CUresult MirroredMemory::onHostMirror(const cmd::Decoded<cmd::HostMirror>& command) {
  const uint64_t address = AddressGate::echo(command.fixed.address);
  const uint64_t bytes = command.fixed.bytes;
  if (bytes == 0 || address > UINT64_MAX - bytes || !hostRuns_.isPrivate(address, bytes))
    return violation("only memory that the worker has mapped can be mirrored");
  switch (command.fixed.state) {
    case 0: bytes_.end(address, bytes); return CUDA_SUCCESS;
    case 1:
      if (bytes_.ranges() >= MirroredBytes::kMaxRanges) return CUDA_ERROR_OUT_OF_MEMORY;
      bytes_.begin(address, bytes);
      landings_.placeReached(address, bytes);
      return landings_.keepLaunches() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    case 2: bytes_.fill(address, bytes); return CUDA_SUCCESS;
    default: return violation("mirrored memory of unknown state");
  }
}

CUresult MirroredMemory::onHostContents(const cmd::Decoded<cmd::HostContents>& command) {
  const uint64_t address = AddressGate::echo(command.fixed.address);
  const auto data = command.tail[0];
  if (data.empty()) return CUDA_SUCCESS;
  if (address > UINT64_MAX - data.size() || !hostRuns_.isPrivate(address, data.size()))
    return violation("contents of memory that is not mirrored");
  bytes_.eachUnwritten(address, data.size(), [&](uint64_t begin, uint64_t end) {
    std::memcpy(reinterpret_cast<void*>(begin), data.data() + (begin - address), end - begin);
  });
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
