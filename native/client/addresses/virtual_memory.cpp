// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/virtual_memory.h"

#include <poll.h>
#include <sys/stat.h>

#include <iterator>

#include "client/addresses/shareable_file.h"

namespace millpond::client {

std::optional<VirtualMemory::Reservation> VirtualMemory::takeReservation(CUdeviceptr address, uint64_t bytes) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.bytes != bytes) return std::nullopt;
  const auto inside = mappings_.lower_bound(address);
  if (inside != mappings_.end() && inside->first - address < bytes) return std::nullopt;
  const Reservation taken = found->second;
  reservations_.erase(found);
  return taken;
}

std::optional<VirtualMemory::Reservation> VirtualMemory::reservationAt(CUdeviceptr address) const {
  auto next = reservations_.upper_bound(address);
  if (next == reservations_.begin()) return std::nullopt;
  const Reservation& before = std::prev(next)->second;
  if (address - before.address >= before.bytes) return std::nullopt;
  return before;
}

VirtualMemory::Handle VirtualMemory::add(const Memory& memory) {
  return addHandle(memories_.emplace(memory.wire, memory).first->second);
}

VirtualMemory::Handle VirtualMemory::addHandle(Memory& memory) {
  ++memory.holds;
  handles_.emplace(++lastHandle_, Uses{&memory});
  return lastHandle_;
}

VirtualMemory::Memory* VirtualMemory::find(Handle handle) const {
  const auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : found->second.memory;
}

void VirtualMemory::drop(Memory& memory, std::vector<uint64_t>& ended) {
  if (--memory.holds) return;
  ended.push_back(memory.wire);
  memories_.erase(ended.back());
}

bool VirtualMemory::release(Handle handle, std::vector<uint64_t>& ended) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return false;
  if (--found->second.count) return true;
  drop(*found->second.memory, ended);
  handles_.erase(found);
  return true;
}

std::optional<VirtualMemory::Handle> VirtualMemory::retain(CUdeviceptr address) {
  const Mapping* mapping = mappingAt(address);
  if (!mapping) return std::nullopt;
  const auto [uses, isNew] = handles_.try_emplace(mapping->handle, Uses{mapping->memory});
  if (isNew)
    ++mapping->memory->holds;
  else
    ++uses->second.count;
  return mapping->handle;
}

bool VirtualMemory::canMap(CUdeviceptr address, uint64_t bytes, uint64_t offset, const Memory& memory) const {
  if (bytes == 0 || bytes > memory.bytes || offset > memory.bytes - bytes) return false;
  const auto reservation = reservationAt(address);
  if (!reservation || bytes > reservation->address + reservation->bytes - address) return false;
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first - address < bytes) return false;
  return mappingAt(address) == nullptr;
}

void VirtualMemory::map(CUdeviceptr address, uint64_t bytes, Handle handle) {
  Memory* memory = find(handle);
  ++memory->holds;
  mappings_[address] = {bytes, handle, memory, {}};
}

bool VirtualMemory::find(CUdeviceptr address, uint64_t bytes, Mappings::iterator& first, Mappings::iterator& last) {
  if (bytes == 0 || bytes > UINT64_MAX - address) return false;
  first = last = mappings_.find(address);
  CUdeviceptr next = address;
  while (next < address + bytes) {
    if (last == mappings_.end() || last->first != next) return false;
    next += last->second.bytes;
    ++last;
  }
  return next == address + bytes;
}

void VirtualMemory::unmap(Mappings::iterator first, Mappings::iterator last, std::vector<uint64_t>& ended) {
  for (auto each = first; each != last; ++each) drop(*each->second.memory, ended);
  mappings_.erase(first, last);
}

const VirtualMemory::Mapping* VirtualMemory::mappingAt(CUdeviceptr address) const {
  const auto next = mappings_.upper_bound(address);
  if (next == mappings_.begin()) return nullptr;
  const auto before = std::prev(next);
  return address - before->first < before->second.bytes ? &before->second : nullptr;
}

int VirtualMemory::exportFile(Memory& memory, std::span<const std::byte> handle) {
  auto file = ShareableFile::carrying(handle);
  struct stat identity;
  if (!file || ::fstat(file->given.get(), &identity) != 0) return -1;
  ++memory.holds;
  exports_.push_back({std::move(file->kept), identity.st_dev, identity.st_ino, &memory});
  return file->given.release();
}

VirtualMemory::Memory* VirtualMemory::imported(int file) const {
  struct stat identity;
  if (::fstat(file, &identity) != 0) return nullptr;
  for (const Export& each : exports_)
    if (each.device == identity.st_dev && each.inode == identity.st_ino) return each.memory;
  return nullptr;
}

void VirtualMemory::sweepExports(std::vector<uint64_t>& ended) {
  std::erase_if(exports_, [&](const Export& each) {
    pollfd asked{each.kept.get(), 0, 0};
    if (::poll(&asked, 1, 0) != 1 || !(asked.revents & POLLHUP)) return false;
    drop(*each.memory, ended);
    return true;
  });
}

}  // namespace millpond::client
