// SPDX-License-Identifier: Apache-2.0
#include "image/image.h"

#include <elf.h>

#include <algorithm>

#include "image/fatbin.h"

namespace millpond::image {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243B1;
constexpr uint32_t kElfMagic = 0x464C457F;
constexpr uint32_t kAncientFatbinMagic = 0x1EE55A01;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* fatbin;
  const void* auxiliary;  // version 2: a list of further fatbins that ends with null
};
static_assert(sizeof(Wrapper) == 24);

ImageError malformed(std::string message) { return {ImageFault::malformed, std::move(message)}; }
ImageError noPtx(std::string message) { return {ImageFault::noPtx, std::move(message)}; }

std::string untilNul(std::string text) {
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

std::string describe(const std::vector<FatbinEntry>& entries) {
  std::string list;
  for (const FatbinEntry& entry : entries) {
    const char* kind = entry.kind == FatbinKind::ptx     ? "PTX"
                       : entry.kind == FatbinKind::elf   ? "machine code"
                       : entry.kind == FatbinKind::ltoIr ? "LTO-IR"
                                                         : "an unknown kind";
    list += (list.empty() ? "" : ", ") + std::string(kind) + " for " + std::to_string(entry.arch);
  }
  return list.empty() ? "nothing" : list;
}

PtxResult findPtxInFatbin(Bytes image, unsigned arch) {
  Result<std::vector<FatbinEntry>> entries = readFatbin(image);
  if (!entries) return malformed(entries.error().message);
  const FatbinEntry* best = nullptr;
  for (const FatbinEntry& entry : *entries) {
    if (entry.kind != FatbinKind::ptx || entry.arch > arch) continue;
    if (!best || entry.arch > best->arch) best = &entry;
  }
  if (!best) {
    return noPtx("the image has no PTX for compute capability " + std::to_string(arch / 10) + "." +
                 std::to_string(arch % 10) + " or lower, only " + describe(*entries) +
                 "; compile with -gencode arch=compute_" + std::to_string(arch) + ",code=compute_" +
                 std::to_string(arch));
  }
  Result<std::string> text = readFatbinEntry(*best);
  if (!text) return malformed(text.error().message);
  return untilNul(std::move(*text));
}

template <typename T>
const T* at(const void* base, uint64_t offset) {
  return reinterpret_cast<const T*>(static_cast<const char*>(base) + offset);
}

size_t elfSize(const void* image) {
  const auto* header = static_cast<const Elf64_Ehdr*>(image);
  uint64_t end = sizeof(Elf64_Ehdr);
  end = std::max<uint64_t>(end, header->e_phoff + uint64_t{header->e_phnum} * header->e_phentsize);
  uint64_t sections = header->e_shnum;
  // A section count that does not fit is stored in the first section's size field.
  if (header->e_shoff != 0 && sections == 0) sections = at<Elf64_Shdr>(image, header->e_shoff)->sh_size;
  end = std::max<uint64_t>(end, header->e_shoff + sections * header->e_shentsize);
  for (uint64_t i = 0; i < sections; ++i) {
    const auto* section = at<Elf64_Shdr>(image, header->e_shoff + i * header->e_shentsize);
    if (section->sh_type != SHT_NOBITS) end = std::max<uint64_t>(end, section->sh_offset + section->sh_size);
  }
  return static_cast<size_t>(end);
}

Bytes bytesOf(const void* image) {
  const auto* start = static_cast<const std::byte*>(image);
  // Text may be shorter than four bytes, so it is read byte by byte up to its end.
  const auto* text = static_cast<const char*>(image);
  const size_t readable = strnlen(text, sizeof(uint32_t));
  uint32_t magic = 0;
  if (readable == sizeof(uint32_t)) std::memcpy(&magic, image, sizeof(magic));
  if (magic == kFatbinMagic) {
    uint16_t headerSize;
    uint64_t bodySize;
    std::memcpy(&headerSize, start + 6, sizeof(headerSize));
    std::memcpy(&bodySize, start + 8, sizeof(bodySize));
    return {start, headerSize + static_cast<size_t>(bodySize)};
  }
  if (magic == kElfMagic) return {start, elfSize(image)};
  return {start, std::strlen(text)};
}

}  // namespace

PtxResult findPtx(Bytes image, unsigned arch) {
  const std::optional<uint32_t> magic = loadLittleEndian<uint32_t>(image, 0);
  if (image.empty()) return malformed("the image is empty");
  if (magic == kFatbinMagic) return findPtxInFatbin(image, arch);
  if (magic == kElfMagic) return noPtx("the image is machine code without PTX, which the software device cannot run");
  if (magic == kWrapperMagic) return malformed("the image is a fatbin wrapper, which has no meaning as plain bytes");
  if (magic == kAncientFatbinMagic) return malformed("the image is a fatbin of before CUDA 4, which is not supported");
  return untilNul(std::string(reinterpret_cast<const char*>(image.data()), image.size()));
}

bool isWrapper(const void* image) {
  // The magic contains no NUL, so the comparison stops at the end of a shorter text.
  return std::strncmp(static_cast<const char*>(image), "\xB1\x43\x62\x46", 4) == 0;
}

Result<std::vector<Bytes>> locateImages(const void* image) {
  if (!image) return Error{"the image is null"};
  std::vector<Bytes> images;
  if (!isWrapper(image)) {
    images.push_back(bytesOf(image));
    return images;
  }
  const auto* wrapper = static_cast<const Wrapper*>(image);
  if (wrapper->version != 1 && wrapper->version != 2) {
    return Error{"a fatbin wrapper of version " + std::to_string(wrapper->version) + " is not known"};
  }
  if (wrapper->fatbin) images.push_back(bytesOf(wrapper->fatbin));
  if (wrapper->version == 2 && wrapper->auxiliary) {
    for (auto list = static_cast<const void* const*>(wrapper->auxiliary); *list; ++list) {
      images.push_back(bytesOf(*list));
    }
  }
  if (images.empty()) return Error{"the fatbin wrapper is empty"};
  return images;
}

}  // namespace millpond::image
