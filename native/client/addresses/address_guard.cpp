// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/address_guard.h"

#include <algorithm>
#include <cerrno>

#include "client/addresses/map_flags.h"

namespace millpond::client {
namespace {

constexpr uint64_t kPage = 4096;

void* reserve(uint64_t address, uint64_t bytes, int how) {
  return ::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | how,
                -1, 0);
}

}  // namespace

Guard guardAddresses(uint64_t address, uint64_t bytes) noexcept {
  void* got = reserve(address, bytes, MAP_FIXED_NOREPLACE);
  if (got == MAP_FAILED) return errno == EEXIST ? Guard::kOccupied : Guard::kUnable;
  if (reinterpret_cast<uint64_t>(got) == address) return Guard::kHeld;
  // A kernel before 4.17 treats the address as a hint.
  ::munmap(got, bytes);
  return Guard::kOccupied;
}

uint64_t guardAnywhere(uint64_t bytes, uint64_t alignment, uint64_t below) noexcept {
  alignment = std::max(alignment, kPage);
  if (bytes > UINT64_MAX - alignment) return 0;
  const uint64_t all = bytes + alignment;
  void* got = reserve(below > all ? below - all : 0, all, 0);
  if (got == MAP_FAILED) return 0;
  const auto start = reinterpret_cast<uint64_t>(got);
  const uint64_t aligned = (start + alignment - 1) / alignment * alignment;
  if (aligned > start) ::munmap(got, aligned - start);
  if (aligned + bytes < start + all)
    ::munmap(reinterpret_cast<void*>(aligned + bytes), start + all - (aligned + bytes));
  return aligned;
}

bool isMapped(uint64_t address) noexcept {
  unsigned char isResident = 0;
  return ::mincore(reinterpret_cast<void*>(address / kPage * kPage), 1, &isResident) == 0;
}

void unguardAddresses(uint64_t address, uint64_t bytes) noexcept { ::munmap(reinterpret_cast<void*>(address), bytes); }

}  // namespace millpond::client
