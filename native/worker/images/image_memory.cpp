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

/// Textures, samplers and surfaces declared in PTX.
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

/// Functions of the device's runtime, for which a driver takes memory in each context.
void noteRuntime(std::string_view name, ImageMemory& memory) {
  memory.prints |= name == "vprintf";
  memory.allocates |= name == "malloc" || name == "free";
}

std::string_view textAt(std::span<const std::byte> file, uint64_t at) {
  if (at >= file.size()) return {};
  const char* start = reinterpret_cast<const char*>(file.data() + at);
  return {start, ::strnlen(start, file.size() - at)};
}

/// The names in a table of symbols. `left`: bytes of symbols that may still be read, so that overlapping tables cost no
/// more time than the length of the file.
bool noteSymbols(std::span<const std::byte> file, const Elf64_Shdr& symbols, const Elf64_Shdr& names, uint64_t& left,
                 ImageMemory& memory) {
  if (symbols.sh_entsize != sizeof(Elf64_Sym) || symbols.sh_size > left) return false;
  left -= symbols.sh_size;
  for (uint64_t at = 0; symbols.sh_size - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol;
    if (!readAt(file, plus(symbols.sh_offset, at), symbol)) return false;
    if (symbol.st_shndx == SHN_UNDEF) noteRuntime(textAt(file, plus(names.sh_offset, symbol.st_name)), memory);
  }
  return true;
}

std::optional<ImageMemory> cubinMemory(std::span<const std::byte> file) {
  Elf64_Ehdr header;
  if (!readAt(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr))
    return std::nullopt;
  Elf64_Shdr names;
  if (!readAt(file, plus(header.e_shoff, uint64_t{header.e_shstrndx} * sizeof(names)), names)) return std::nullopt;
  ImageMemory memory;
  uint64_t left = file.size();
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!readAt(file, plus(header.e_shoff, i * sizeof(section)), section)) return std::nullopt;
    const uint64_t at = plus(names.sh_offset, section.sh_name);
    if (at >= file.size()) return std::nullopt;
    const std::string_view name = textAt(file, at);
    if (name.starts_with(".nv.global") || name.starts_with(".nv.constant"))
      memory.variables = plus(memory.variables, section.sh_size);
    if (section.sh_type != SHT_SYMTAB || section.sh_size == 0) continue;
    Elf64_Shdr strings;
    if (section.sh_link >= header.e_shnum ||
        !readAt(file, plus(header.e_shoff, section.sh_link * sizeof(strings)), strings) ||
        !noteSymbols(file, section, strings, left, memory))
      return std::nullopt;
  }
  return memory;
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

std::optional<ImageMemory> ptxMemory(std::string_view text) {
  PtxWords words(text.substr(0, text.find('\0')));
  std::string_view before;
  ImageMemory all;
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    noteRuntime(word, all);
    // Parameters state that they point there, and in instructions the word is part of a longer one.
    if ((word == ".global" || word == ".const") && before != ".ptr") {
      const auto bytes = declaredBytes(words);
      if (!bytes) return std::nullopt;
      if (before != ".extern") all.variables = plus(all.variables, *bytes);
      word = ";";
    }
    before = word;
  }
  return all;
}

std::optional<ImageMemory> fatbinMemory(std::span<const std::byte> image, std::span<const unsigned> archs) {
  const auto entries = image::readFatbin(image);
  if (!entries) return std::nullopt;
  ImageMemory most;
  for (const image::FatbinEntry& entry : *entries) {
    const bool isCode = entry.kind == image::FatbinKind::elf;
    if (!isCode && entry.kind != image::FatbinKind::ptx) continue;
    const bool isFor = std::any_of(archs.begin(), archs.end(), [&](unsigned arch) {
      return entry.arch <= arch && (!isCode || entry.arch / 10 == arch / 10);
    });
    if (!isFor) continue;
    const auto content = image::readFatbinEntry(entry);
    if (!content) return std::nullopt;
    const auto memory = isCode ? cubinMemory(std::as_bytes(std::span(*content))) : ptxMemory(*content);
    if (!memory) return std::nullopt;
    // A driver uses one of the images, so the largest need counts.
    most.cover(*memory);
  }
  return most;
}

}  // namespace

void ImageMemory::add(const ImageMemory& other) {
  variables = plus(variables, other.variables);
  prints |= other.prints;
  allocates |= other.allocates;
}

void ImageMemory::cover(const ImageMemory& other) {
  variables = std::max(variables, other.variables);
  prints |= other.prints;
  allocates |= other.allocates;
}

std::optional<ImageMemory> imageMemory(std::span<const std::byte> image, std::span<const unsigned> archs) {
  uint32_t magic = 0;
  if (image.size() >= sizeof(magic)) std::memcpy(&magic, image.data(), sizeof(magic));
  if (magic == kFatbinMagic) return fatbinMemory(image, archs);
  if (std::memcmp(&magic, ELFMAG, SELFMAG) == 0) return cubinMemory(image);
  return ptxMemory({reinterpret_cast<const char*>(image.data()), image.size()});
}

}  // namespace millpond::worker
