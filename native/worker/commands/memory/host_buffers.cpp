// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/memory/host_buffers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "protocol/futex.h"

namespace millpond::worker {
namespace {

constexpr uint64_t kLeastBuffer = 4096;
/// Buffers larger than this are sized to a multiple of it instead of a power of two.
constexpr uint64_t kLargeBuffer = uint64_t{1} << 20;
/// Kernels that run longer may be waiting for a command of the program.
constexpr int64_t kPatienceNs = 2'000'000'000;

}  // namespace

bool HostBuffers::awaitStreams() {
  for (const int64_t end = monotonicNs() + kPatienceNs; !marks_.areStreamsDone(); ::usleep(50))
    if (functions_.expected() != 0 || !captures_.empty() || monotonicNs() > end) return false;
  return true;
}

bool HostBuffers::takeHost(uint64_t bytes) {
  if (counts_.take(Thing::kHostByte, bytes)) return true;
  if ((spare_.empty() && ended_.empty()) || !awaitStreams()) return false;
  shrink(0);
  return counts_.take(Thing::kHostByte, bytes);
}

CUresult HostBuffers::take(uint64_t wanted, std::shared_ptr<const HostBuffer>& out) {
  const uint64_t bytes = std::max(wanted, kLeastBuffer);
  const auto owned = [this](const HostBuffer& buffer) {
    return std::shared_ptr<const HostBuffer>(
        std::make_unique<HostBuffer>(buffer).release(), [this](const HostBuffer* gone) {
          const std::unique_ptr<const HostBuffer> end(gone);
          spare_.emplace(gone->bytes, HostBuffer{gone->memory, gone->bytes, ++lastSpare_});
          spareBytes_ += gone->bytes;
        });
  };
  const auto spare = spare_.lower_bound(bytes);
  if (spare != spare_.end() && spare->first / 2 <= bytes) {
    const HostBuffer buffer = spare->second;
    spareBytes_ -= buffer.bytes;
    spare_.erase(spare);
    out = owned(buffer);
    return CUDA_SUCCESS;
  }
  // A hostile client may request a size that cannot be rounded.
  if (bytes > UINT64_MAX - kLargeBuffer) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t size =
      bytes <= kLargeBuffer ? std::bit_ceil(bytes) : (bytes + kLargeBuffer - 1) / kLargeBuffer * kLargeBuffer;
  if (!takeHost(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  // Memory of this process, which a reset of the context does not take away.
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const CUresult rc =
      memory == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : pinned_.pin(memory, size, CU_MEMHOSTREGISTER_PORTABLE);
  if (rc) {
    if (memory != MAP_FAILED) ::munmap(memory, size);
    counts_.give(Thing::kHostByte, size);
    return rc;
  }
  out = owned({static_cast<std::byte*>(memory), size, 0});
  return CUDA_SUCCESS;
}

void HostBuffers::shrink(uint64_t spareBytes) {
  if ((spareBytes_ <= spareBytes && ended_.empty()) || !marks_.areStreamsDone()) return;
  while (spareBytes_ > spareBytes) {
    const auto oldest = std::min_element(spare_.begin(), spare_.end(),
                                         [](const auto& a, const auto& b) { return a.second.age < b.second.age; });
    const HostBuffer buffer = oldest->second;
    spare_.erase(oldest);
    pinned_.unpin(buffer.memory);
    ::munmap(buffer.memory, buffer.bytes);
    spareBytes_ -= buffer.bytes;
    counts_.give(Thing::kHostByte, buffer.bytes);
  }
  for (const ClientPages::View& view : ended_) {
    pinned_.unpin(view.memory);
    clientPages_.end(view);
    counts_.give(Thing::kHostByte, view.bytes);
  }
  ended_.clear();
}

CUresult HostBuffers::view(uint64_t address, uint64_t bytes, ClientPages::View& out) {
  const uint64_t size = ClientPages::sizeOf(address, bytes);
  if (!takeHost(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto view = clientPages_.view(address, bytes);
  if (!view) {
    counts_.give(Thing::kHostByte, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (CUresult rc = pinned_.pin(view->memory, view->bytes, CU_MEMHOSTREGISTER_PORTABLE)) {
    clientPages_.end(*view);
    counts_.give(Thing::kHostByte, size);
    return rc;
  }
  out = *view;
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
