// SPDX-License-Identifier: Apache-2.0
#include "cuda/image_extent.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace millpond {
namespace {

constexpr uint32_t kElfMagic = 0x464c457f;
/// Larger than any image that exists; a length above it is a misread header.
constexpr uint64_t kMaxImage = uint64_t{2} << 30;

struct Fatbin {
  uint32_t magic;
  uint16_t version;
  uint16_t headerBytes;
  uint64_t bodyBytes;
};

template <typename T>
T readAt(const void* from, uint64_t offset = 0) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + offset, sizeof(T));
  return value;
}

/// The end of a part, or a value larger than any image.
uint64_t endOf(uint64_t offset, uint64_t bytes) {
  return offset > kMaxImage || bytes > kMaxImage ? kMaxImage + 1 : offset + bytes;
}

uint64_t elfExtent(const void* image, uint64_t known) {
  if (known < sizeof(Elf64_Ehdr)) return 0;
  const auto header = readAt<Elf64_Ehdr>(image);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return 0;
  uint64_t end = sizeof(header);
  end = std::max(end, endOf(header.e_phoff, uint64_t{header.e_phnum} * header.e_phentsize));
  if (header.e_shoff == 0 || header.e_shentsize != sizeof(Elf64_Shdr)) return end;
  if (header.e_shoff > known || known - header.e_shoff < sizeof(Elf64_Shdr)) return 0;
  // With 65,280 sections or more, the first one holds their number.
  const auto first = readAt<Elf64_Shdr>(image, header.e_shoff);
  const uint64_t sections = header.e_shnum ? header.e_shnum : first.sh_size;
  if (sections > (uint64_t{1} << 20) || sections * sizeof(Elf64_Shdr) > known - header.e_shoff) return 0;
  end = std::max(end, header.e_shoff + sections * sizeof(Elf64_Shdr));
  for (uint64_t i = 0; i < sections; ++i) {
    const auto section = readAt<Elf64_Shdr>(image, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NOBITS) end = std::max(end, endOf(section.sh_offset, section.sh_size));
  }
  return end;
}

}  // namespace

uint64_t imageExtent(const void* image, uint64_t known) noexcept {
  uint64_t bytes = 0;
  // A text may be shorter than a magic, and even empty.
  switch (known < sizeof(uint32_t) ? 0 : readAt<uint32_t>(image)) {
    case kFatbinMagic:
      if (known >= sizeof(Fatbin)) {
        const auto fatbin = readAt<Fatbin>(image);
        bytes = endOf(fatbin.headerBytes, fatbin.bodyBytes);
      }
      break;
    case kElfMagic: bytes = elfExtent(image, known); break;
    default: bytes = ::strnlen(static_cast<const char*>(image), std::min(known, kMaxImage)) + 1;
  }
  return bytes > kMaxImage || bytes > known ? 0 : bytes;
}

}  // namespace millpond
