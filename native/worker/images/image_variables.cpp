// SPDX-License-Identifier: Apache-2.0
#include "worker/images/image_variables.h"

#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "cuda/image_extent.h"
#include "image/fatbin.h"
#include "worker/images/ptx_words.h"

namespace millpond::worker {
namespace {

using Variables = std::vector<ImageVariable>;

/// Larger contents are not compared.
constexpr size_t kMostBytes = size_t{16} << 20;

/// "abc", __func__ and similar.
bool isLiteral(std::string_view name) {
  return name.starts_with("$str") || name.starts_with("__unnamed_") || name.starts_with(".str");
}

bool add(Variables& all, ImageVariable variable) {
  size_t bytes = variable.initial.size();
  for (const ImageVariable& each : all) bytes += each.initial.size();
  if (bytes > kMostBytes) return false;
  all.push_back(std::move(variable));
  return true;
}

// Machine code

template <typename T>
std::optional<std::span<const T>> table(std::span<const std::byte> file, uint64_t offset, uint64_t bytes) {
  if (offset > file.size() || bytes > file.size() - offset || bytes % sizeof(T) != 0 ||
      (reinterpret_cast<uintptr_t>(file.data()) + offset) % alignof(T) != 0)
    return std::nullopt;
  return std::span(reinterpret_cast<const T*>(file.data() + offset), bytes / sizeof(T));
}

std::optional<std::string_view> textAt(std::span<const std::byte> file, const Elf64_Shdr& strings, uint64_t at) {
  const auto all = table<char>(file, strings.sh_offset, strings.sh_size);
  if (!all || at >= all->size()) return std::nullopt;
  const std::string_view rest(all->data() + at, all->size() - at);
  const size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::nullopt : std::optional(rest.substr(0, end));
}

class Cubin {
 public:
  explicit Cubin(std::span<const std::byte> file) : file_(file) {}

  bool addTo(Variables& all) {
    const auto headers =
        table<Elf64_Ehdr>(file_.first(std::min(file_.size(), sizeof(Elf64_Ehdr))), 0, sizeof(Elf64_Ehdr));
    if (!headers) return false;
    const Elf64_Ehdr& header = headers->front();
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum)
      return false;
    const auto sections = table<Elf64_Shdr>(file_, header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr));
    if (!sections) return false;
    sections_ = *sections;
    for (size_t i = 0; i < sections_.size(); ++i) {
      const auto name = textAt(file_, sections_[header.e_shstrndx], sections_[i].sh_name);
      if (!name) return false;
      if (name->starts_with(".nv.global") && sections_[i].sh_size != 0 && !addSection(i, all)) return false;
    }
    return true;
  }

 private:
  /// Every byte of the section must belong to a variable, except for the gaps between them.
  bool addSection(size_t section, Variables& all) {
    size_t found = 0;
    for (const Elf64_Shdr& each : sections_) {
      if (each.sh_type != SHT_SYMTAB) continue;
      const auto symbols = table<Elf64_Sym>(file_, each.sh_offset, each.sh_size);
      if (!symbols || each.sh_link >= sections_.size()) return false;
      for (const Elf64_Sym& symbol : *symbols) {
        if (symbol.st_shndx != section || symbol.st_size == 0) continue;
        const auto name = textAt(file_, sections_[each.sh_link], symbol.st_name);
        if (!name || !addSymbol(sections_[section], symbol, *name, all)) return false;
        ++found;
      }
    }
    return found != 0;
  }

  bool addSymbol(const Elf64_Shdr& section, const Elf64_Sym& symbol, std::string_view name, Variables& all) {
    if (isLiteral(name)) return true;
    if (symbol.st_value > section.sh_size || symbol.st_size > section.sh_size - symbol.st_value ||
        symbol.st_size > kMostBytes)
      return false;
    ImageVariable variable{std::string(name), std::vector<std::byte>(symbol.st_size)};
    if (section.sh_type != SHT_NOBITS) {
      const auto bytes = table<std::byte>(file_, section.sh_offset, section.sh_size);
      if (!bytes) return false;
      std::memcpy(variable.initial.data(), bytes->data() + symbol.st_value, symbol.st_size);
    }
    return add(all, std::move(variable));
  }

  std::span<const std::byte> file_;
  std::span<const Elf64_Shdr> sections_;
};

// PTX

/// An integer, in the lowest bytes of `to`. False for everything else: it may be an address.
bool readNumber(PtxWords& words, std::string_view word, std::span<std::byte> to) {
  const bool isNegative = word == "-";
  if (isNegative) word = words.next();
  if (word.ends_with("U")) word.remove_suffix(1);
  const bool isHex = word.starts_with("0x");
  if (isHex) word.remove_prefix(2);
  // Other digits that begin with 0 are octal numbers, or floating-point numbers given by their bits.
  if (!isHex && word.size() > 1 && word[0] == '0') return false;
  uint64_t value = 0;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value, isHex ? 16 : 10);
  if (problem != std::errc() || end != word.data() + word.size()) return false;
  if (isNegative) value = 0 - value;
  std::memcpy(to.data(), &value, std::min(to.size(), sizeof(value)));
  return true;
}

/// The text after "=", with elements of that many bytes; missing elements are 0.
bool readInitial(PtxWords& words, size_t bytes, std::vector<std::byte>& initial) {
  std::string_view word = words.next();
  const bool isList = word == "{";
  if (isList) word = words.next();
  for (size_t at = 0; word != "}"; at += bytes) {
    if (at + bytes > initial.size() || !readNumber(words, word, std::span(initial).subspan(at, bytes))) return false;
    word = words.next();
    if (!isList) return word == ";";
    if (word == ",")
      word = words.next();
    else if (word != "}")
      return false;
  }
  return isList && words.next() == ";";
}

/// Reads the text after ".global" of a variable's declaration. False: its contents are unknown.
bool addDeclared(PtxWords& words, bool isExtern, Variables& all) {
  size_t bytes = 0, lanes = 1;
  std::string_view word = words.next();
  for (; word.starts_with("."); word = words.next()) {
    if (word == ".align")
      words.next();
    else if (word == ".v2")
      lanes = 2;
    else if (word == ".v4")
      lanes = 4;
    else if (const size_t ofType = bytesOfType(word))
      bytes = ofType;
    else
      return false;  // managed memory, or unknown
  }
  const std::string name(word);
  if (name.empty() || bytes == 0) return false;
  size_t count = lanes;
  for (word = words.next(); word == "["; word = words.next()) {
    const std::string_view dimension = words.next();
    size_t n = 0;
    const auto [end, problem] = std::from_chars(dimension.data(), dimension.data() + dimension.size(), n);
    if (problem != std::errc() || end != dimension.data() + dimension.size() || words.next() != "]")
      return isLiteral(name);
    if (n > kMostBytes || (count *= n) > kMostBytes) return false;
  }
  if (isLiteral(name)) return true;
  ImageVariable variable{name, std::vector<std::byte>(count * bytes)};
  if (isExtern || (word == "=" ? !readInitial(words, bytes, variable.initial) : word != ";")) return false;
  return add(all, std::move(variable));
}

bool addPtx(std::string_view text, Variables& all) {
  PtxWords words(text.substr(0, text.find('\0')));
  std::string_view before;
  bool isExtern = false;
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (word == ".extern" || word == ".common") isExtern = true;
    if (word == ";") isExtern = false;
    // Parameters state that they point there.
    if (word == ".global" && before != ".ptr" && !addDeclared(words, isExtern, all)) return false;
    before = word;
  }
  return true;
}

// Both

bool addFatbin(std::span<const std::byte> image, std::span<const unsigned> archs, Variables& all) {
  const auto entries = image::readFatbin(image);
  if (!entries) return false;
  const auto suits = [archs](const image::FatbinEntry& entry, bool sameMajor) {
    return std::any_of(archs.begin(), archs.end(), [&](unsigned arch) {
      return entry.arch <= arch && (!sameMajor || entry.arch / 10 == arch / 10);
    });
  };
  for (const image::FatbinEntry& entry : *entries) {
    const bool isCode = entry.kind == image::FatbinKind::elf;
    if (!isCode && entry.kind != image::FatbinKind::ptx) return false;
    if (!suits(entry, isCode)) continue;
    const auto content = image::readFatbinEntry(entry);
    if (!content) return false;
    if (isCode ? !Cubin(std::as_bytes(std::span(*content))).addTo(all) : !addPtx(*content, all)) return false;
  }
  return true;
}

}  // namespace

std::optional<std::vector<ImageVariable>> imageVariables(std::span<const std::byte> image,
                                                         std::span<const unsigned> archs) {
  uint32_t magic = 0;
  if (image.size() >= sizeof(magic)) std::memcpy(&magic, image.data(), sizeof(magic));
  Variables all;
  bool isUnderstood = false;
  if (magic == kFatbinMagic)
    isUnderstood = addFatbin(image, archs, all);
  else if (std::memcmp(&magic, ELFMAG, SELFMAG) == 0)
    isUnderstood = Cubin(image).addTo(all);
  else
    isUnderstood = addPtx({reinterpret_cast<const char*>(image.data()), image.size()}, all);
  if (!isUnderstood) return std::nullopt;
  return all;
}

}  // namespace millpond::worker
