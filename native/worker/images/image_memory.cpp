// SPDX-License-Identifier: Apache-2.0
#include "worker/images/image_memory.h"

#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "cuda/image_extent.h"
#include "image/fatbin.h"
#include "worker/images/ptx_words.h"

namespace millpond::worker {
namespace {

/// Textures, samplers and surfaces that PTX declares.
constexpr uint64_t kOpaqueBytes = 64;
/// Variables begin at multiples of the driver's smallest allocation.
constexpr uint64_t kLeastVariable = 256;

uint64_t plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/// Copies: the file may be at any address.
template <typename T>
bool readAt(std::span<const std::byte> file, uint64_t offset, T& out) {
  if (offset > file.size() || sizeof(T) > file.size() - offset) return false;
  std::memcpy(&out, file.data() + offset, sizeof(T));
  return true;
}

std::optional<uint64_t> cubinMemory(std::span<const std::byte> file) {
  Elf64_Ehdr header;
  if (!readAt(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr))
    return std::nullopt;
  Elf64_Shdr names;
  if (!readAt(file, plus(header.e_shoff, uint64_t{header.e_shstrndx} * sizeof(names)), names)) return std::nullopt;
  uint64_t bytes = 0;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!readAt(file, plus(header.e_shoff, i * sizeof(section)), section)) return std::nullopt;
    const uint64_t at = plus(names.sh_offset, section.sh_name);
    if (at >= file.size()) return std::nullopt;
    const char* start = reinterpret_cast<const char*>(file.data() + at);
    const std::string_view name(start, ::strnlen(start, file.size() - at));
    if (name.starts_with(".nv.global") || name.starts_with(".nv.constant")) bytes = plus(bytes, section.sh_size);
  }
  return bytes;
}

std::optional<uint64_t> number(std::string_view word) {
  if (word.ends_with("U")) word.remove_suffix(1);
  int base = 10;
  if (word.starts_with("0x") || word.starts_with("0X")) {
    word.remove_prefix(2);
    base = 16;
  } else if (word.size() > 1 && word[0] == '0') {
    base = 8;
  }
  uint64_t value = 0;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  if (word.empty() || problem != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

/// The text after ".global" or ".const" in declarations of variables, up to the semicolon.
std::optional<uint64_t> declaredBytes(PtxWords& words) {
  uint64_t element = 0, lanes = 1;
  std::string_view word = words.next();
  for (; word.starts_with("."); word = words.next()) {
    if (word == ".align")
      words.next();
    else if (word == ".attribute") {
      while (!word.empty() && word != ")") word = words.next();
    } else if (word == ".v2")
      lanes = 2;
    else if (word == ".v4")
      lanes = 4;
    else if (word == ".v8")
      lanes = 8;
    else if (word == ".texref" || word == ".samplerref" || word == ".surfref")
      element = kOpaqueBytes;
    else if (const size_t ofType = bytesOfType(word))
      element = ofType;
    else
      return std::nullopt;
  }
  if (element == 0 || word.empty()) return std::nullopt;
  uint64_t all = 0;
  for (;;) {  // `word` is a name
    uint64_t bytes = times(element, lanes), values = 0;
    bool isOpen = false;
    for (word = words.next(); word == "["; word = words.next()) {
      word = words.next();
      if (word == "]") {
        isOpen = true;
        continue;
      }
      const auto count = number(word);
      if (!count || words.next() != "]") return std::nullopt;
      bytes = times(bytes, *count);
    }
    if (word == "=") {
      // At most one more element than commas.
      values = 1;
      int depth = 0;
      for (word = words.next(); !word.empty() && word != ";" && (depth != 0 || word != ","); word = words.next()) {
        if (word == "{") ++depth;
        if (word == "}") --depth;
        if (word == ",") ++values;
      }
    }
    if (isOpen) bytes = times(bytes, values);
    all = plus(all, std::max(bytes, kLeastVariable));
    if (word == ";") return all;
    if (word != ",") return std::nullopt;
    words.next();
  }
}

std::optional<uint64_t> ptxMemory(std::string_view text) {
  PtxWords words(text.substr(0, text.find('\0')));
  std::string_view before;
  uint64_t all = 0;
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    // Parameters state that they point there, and in instructions the word is part of a longer one.
    if ((word == ".global" || word == ".const") && before != ".ptr") {
      const auto bytes = declaredBytes(words);
      if (!bytes) return std::nullopt;
      if (before != ".extern") all = plus(all, *bytes);
      word = ";";
    }
    before = word;
  }
  return all;
}

std::optional<uint64_t> fatbinMemory(std::span<const std::byte> image, std::span<const unsigned> archs) {
  const auto entries = image::readFatbin(image);
  if (!entries) return std::nullopt;
  uint64_t most = 0;
  for (const image::FatbinEntry& entry : *entries) {
    const bool isCode = entry.kind == image::FatbinKind::elf;
    if (!isCode && entry.kind != image::FatbinKind::ptx) continue;
    const bool isFor = std::any_of(archs.begin(), archs.end(), [&](unsigned arch) {
      return entry.arch <= arch && (!isCode || entry.arch / 10 == arch / 10);
    });
    if (!isFor) continue;
    const auto content = image::readFatbinEntry(entry);
    if (!content) return std::nullopt;
    const auto bytes = isCode ? cubinMemory(std::as_bytes(std::span(*content))) : ptxMemory(*content);
    if (!bytes) return std::nullopt;
    // A driver uses one of them.
    most = std::max(most, *bytes);
  }
  return most;
}

}  // namespace

std::optional<uint64_t> imageMemory(std::span<const std::byte> image, std::span<const unsigned> archs) {
  uint32_t magic = 0;
  if (image.size() >= sizeof(magic)) std::memcpy(&magic, image.data(), sizeof(magic));
  if (magic == kFatbinMagic) return fatbinMemory(image, archs);
  if (std::memcmp(&magic, ELFMAG, SELFMAG) == 0) return cubinMemory(image);
  return ptxMemory({reinterpret_cast<const char*>(image.data()), image.size()});
}

}  // namespace millpond::worker
