// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/host/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "softgpu/driver/host/log.h"

namespace millpond::softgpu {
namespace {

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

uint64_t map(uint64_t address, uint64_t bytes, Protection protection, int flags) {
  const int access = protection == Protection::none ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* mapped = ::mmap(pointer(address), bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  return mapped == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(mapped);
}

}  // namespace

uint64_t mapPages(uint64_t bytes, uint64_t alignment, Protection protection) {
  bytes = roundUp(bytes, kPageBytes);
  if (bytes == 0) return 0;
  if (alignment <= kPageBytes) return map(0, bytes, protection, 0);
  if (bytes > UINT64_MAX - alignment) return 0;
  const uint64_t wide = map(0, bytes + alignment, protection, 0);
  if (wide == 0) return 0;
  const uint64_t start = roundUp(wide, alignment);
  if (start > wide) unmapPages(wide, start - wide);
  unmapPages(start + bytes, wide + alignment - start);
  // Reduces page faults; has no effect if the system does not support it.
  if (protection != Protection::none) ::madvise(pointer(start), bytes, MADV_HUGEPAGE);
  return start;
}

bool mapPagesAt(uint64_t address, uint64_t bytes, Protection protection) {
  const uint64_t mapped = map(address, bytes, protection, MAP_FIXED_NOREPLACE);
  if (mapped == 0) return false;
  if (mapped == address) return true;
  // A kernel that does not know the flag takes the address as a hint.
  unmapPages(mapped, bytes);
  return false;
}

void unmapPages(uint64_t address, uint64_t bytes) {
  if (bytes == 0 || ::munmap(pointer(address), bytes) == 0) return;
  log(LogLevel::error, std::string("cannot unmap memory: ") + std::strerror(errno));
}

bool isMapped(uint64_t address, uint64_t bytes) {
  const uint64_t end = roundUp(address + bytes, kPageBytes);
  if (end <= address) return false;
  uint64_t page = address & ~(kPageBytes - 1);
  constexpr uint64_t kPagesAtOnce = 65536;
  std::vector<unsigned char> residency(kPagesAtOnce);
  while (page < end) {
    const uint64_t step = std::min(end - page, kPagesAtOnce * kPageBytes);
    if (::mincore(pointer(page), step, residency.data()) != 0) return false;
    page += step;
  }
  return true;
}

}  // namespace millpond::softgpu
