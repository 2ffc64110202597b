// SPDX-License-Identifier: Apache-2.0
#include "client/images/retained_images.h"

#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "base/unique_fd.h"

namespace millpond::client {
namespace {

/// A run of a file.
struct FileRun {
  uintptr_t begin;
  uintptr_t end;
  const char* file = nullptr;
  uint64_t offset = 0;
};

/// Searches for the loaded object whose constant part contains the run.
int findObject(dl_phdr_info* object, size_t, void* wanted) {
  auto& place = *static_cast<FileRun*>(wanted);
  for (size_t i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    const uintptr_t start = object->dlpi_addr + part.p_vaddr;
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) || place.begin < start || place.end > start + part.p_filesz)
      continue;
    place.file = object->dlpi_name && *object->dlpi_name ? object->dlpi_name : "/proc/self/exe";
    place.offset = part.p_offset + (place.begin - start);
    return 1;
  }
  return 0;
}

}  // namespace

RetainedImages::Kept::~Kept() {
  if (mapped) ::munmap(mapped, mappedBytes);
}

bool RetainedImages::map(std::span<const std::byte> image, Kept& kept) {
  const auto begin = reinterpret_cast<uintptr_t>(image.data());
  FileRun place{begin, begin + image.size()};
  if (::dl_iterate_phdr(&findObject, &place) == 0) return false;
  const UniqueFd file(::open(place.file, O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t within = place.offset % page;
  void* mapped = ::mmap(nullptr, within + image.size(), PROT_READ, MAP_PRIVATE, file.get(),
                        static_cast<off_t>(place.offset - within));
  if (mapped == MAP_FAILED) return false;
  kept.mapped = mapped;
  kept.mappedBytes = within + image.size();
  kept.bytes = {static_cast<const std::byte*>(mapped) + within, image.size()};
  // The file of that name may have been replaced, or the program may have changed the mapped memory.
  return std::memcmp(kept.bytes.data(), image.data(), image.size()) == 0;
}

bool RetainedImages::keep(uint64_t handle, std::span<const std::byte> image) {
  Kept mapped;
  const bool isMapped = map(image, mapped);
  const std::lock_guard lock(mutex_);
  if (!isMapped && image.size() > kMostCopiedBytes - copied_) return false;
  Kept& kept = images_.try_emplace(handle).first->second;
  if (isMapped) {
    std::swap(kept.mapped, mapped.mapped);
    std::swap(kept.mappedBytes, mapped.mappedBytes);
    kept.bytes = mapped.bytes;
    return true;
  }
  kept.copy.reset(new (std::nothrow) std::byte[image.size()]);
  if (!kept.copy) {
    images_.erase(handle);
    return false;
  }
  std::memcpy(kept.copy.get(), image.data(), image.size());
  kept.bytes = {kept.copy.get(), image.size()};
  copied_ += image.size();
  return true;
}

void RetainedImages::drop(uint64_t handle) {
  const std::lock_guard lock(mutex_);
  const auto found = images_.find(handle);
  if (found == images_.end()) return;
  if (found->second.copy) copied_ -= found->second.bytes.size();
  images_.erase(found);
}

std::span<const std::byte> RetainedImages::find(uint64_t handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = images_.find(handle);
  return found == images_.end() ? std::span<const std::byte>{} : found->second.bytes;
}

size_t RetainedImages::copiedBytes() const {
  const std::lock_guard lock(mutex_);
  return copied_;
}

}  // namespace millpond::client
