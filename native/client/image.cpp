// SPDX-License-Identifier: Apache-2.0
#include "client/image.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace millpond::client {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kFatbinMagic = 0xba55ed50;
constexpr uint32_t kElfMagic = 0x464c457f;
/// Larger than any image that exists; a length above it is a misread header.
constexpr uint64_t kMaxImage = uint64_t{2} << 30;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
  const void* aux;
};

struct Fatbin {
  uint32_t magic;
  uint16_t version;
  uint16_t headerBytes;
  uint64_t bodyBytes;
};

template <typename T>
T read(const void* from, uint64_t offset = 0) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + offset, sizeof(T));
  return value;
}

uint64_t elfBytes(const void* image, uint64_t known) {
  if (known < sizeof(Elf64_Ehdr)) return 0;
  const auto header = read<Elf64_Ehdr>(image);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return 0;
  uint64_t end = sizeof(header);
  end = std::max(end, header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize);
  if (header.e_shoff == 0 || header.e_shentsize != sizeof(Elf64_Shdr)) return end;
  if (header.e_shoff > known || known - header.e_shoff < sizeof(Elf64_Shdr)) return 0;
  // With 65,280 sections or more, the first one tells how many.
  const auto first = read<Elf64_Shdr>(image, header.e_shoff);
  const uint64_t sections = header.e_shnum ? header.e_shnum : first.sh_size;
  if (sections > (uint64_t{1} << 20) || sections * sizeof(Elf64_Shdr) > known - header.e_shoff) return 0;
  end = std::max(end, header.e_shoff + sections * sizeof(Elf64_Shdr));
  for (uint64_t i = 0; i < sections; ++i) {
    const auto section = read<Elf64_Shdr>(image, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NOBITS) end = std::max(end, section.sh_offset + section.sh_size);
  }
  return end;
}

/// More than any program was ever linked from.
constexpr size_t kMaxFatbins = 4096;

CUresult oneImage(const void* image, size_t known, std::span<const std::byte>& bytes) {
  if (known < sizeof(uint32_t)) return CUDA_ERROR_INVALID_IMAGE;
  uint64_t size = 0;
  switch (read<uint32_t>(image)) {
    case kFatbinMagic:
      if (known >= sizeof(Fatbin)) {
        const auto fatbin = read<Fatbin>(image);
        if (fatbin.bodyBytes <= kMaxImage) size = fatbin.headerBytes + fatbin.bodyBytes;
      }
      break;
    case kElfMagic:
      size = elfBytes(image, known);
      break;
    default:
      size = ::strnlen(static_cast<const char*>(image), std::min<uint64_t>(known, kMaxImage)) + 1;
  }
  if (size == 0 || size > kMaxImage || size > known) return CUDA_ERROR_INVALID_IMAGE;
  bytes = {static_cast<const std::byte*>(image), size};
  return CUDA_SUCCESS;
}

}  // namespace

bool isWrapper(const void* image) noexcept {
  // The magic has no zero in it, so comparing stops at the end of a text that is shorter.
  return image && std::strncmp(static_cast<const char*>(image), "\xb1\x43\x62\x46", sizeof kWrapperMagic) == 0;
}

CUresult imageBytes(const void* image, size_t known, std::vector<std::span<const std::byte>>& parts) noexcept {
  parts.clear();
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto add = [&](const void* each, size_t certain) {
    std::span<const std::byte> bytes;
    const CUresult result = each ? oneImage(each, certain, bytes) : CUDA_ERROR_INVALID_IMAGE;
    if (result == CUDA_SUCCESS) parts.push_back(bytes);
    return result;
  };
  if (known != kUnknownBytes || !isWrapper(image)) return add(image, known);
  const auto wrapper = read<Wrapper>(image);
  if (const CUresult r = add(wrapper.data, kUnknownBytes); r != CUDA_SUCCESS) return r;
  if (wrapper.version != 2 || !wrapper.aux) return CUDA_SUCCESS;
  for (size_t i = 0;; ++i) {
    const auto* each = read<const void*>(wrapper.aux, i * sizeof(void*));
    if (!each) return CUDA_SUCCESS;
    if (parts.size() >= kMaxFatbins || read<uint32_t>(each) != kFatbinMagic) return CUDA_ERROR_INVALID_IMAGE;
    if (const CUresult r = add(each, kUnknownBytes); r != CUDA_SUCCESS) return r;
  }
}

}  // namespace millpond::client
