// SPDX-License-Identifier: Apache-2.0
#include "worker/images/image_variables.h"

#include <elf.h>

#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "testing/check.h"

namespace millpond::worker {
namespace {

constexpr unsigned kArchs[] = {75};

auto ofText(std::string_view text) { return imageVariables(std::as_bytes(std::span(text)), kArchs); }

TEST("variables of PTX that hold zeros at first are found with their size, wherever they are mentioned") {
  const auto found = ofText(R"(
.version 8.0
.target sm_75
// .global .u32 commented;
/* .global .u32 commented too; */
.visible .global .align 4 .u32 one;
.global .align 16 .v4 .f32 four[3][2];
.weak .global .b8 bytes[7];
.const .align 4 .u32 constant = 5;
.global .align 1 .b8 $str[3] = {72, 105, 0};
.global .align 1 .b8 __unnamed_1[] = {72, 0};
.visible .entry k(.param .u64 .ptr .global .align 4 p) {
  .reg .u32 %r<2>;
  ld.global.u32 %r1, [one];
  ret;
}
)");
  CHECK(found.has_value());
  CHECK_EQ(found->size(), 3u);
  const std::pair<const char*, size_t> wanted[] = {{"one", 4}, {"four", 96}, {"bytes", 7}};
  for (size_t i = 0; i < 3; ++i) {
    CHECK_EQ((*found)[i].name, std::string(wanted[i].first));
    CHECK((*found)[i].initial == std::vector<std::byte>(wanted[i].second));
  }
}

TEST("variables of PTX that hold whole numbers at first are found with these") {
  const auto found =
      ofText(".global .align 4 .b8 a[6] = {2, 0, 0xff, 255U};\n.visible .global .s32 b = -2;.global .u64 c[2]={1,};");
  CHECK(found && found->size() == 3);
  const auto bytes = [](std::initializer_list<int> all) {
    std::vector<std::byte> out;
    for (const int each : all) out.push_back(static_cast<std::byte>(each));
    return out;
  };
  CHECK((*found)[0].initial == bytes({2, 0, 255, 255, 0, 0}));
  CHECK((*found)[1].initial == bytes({254, 255, 255, 255}));
  CHECK((*found)[2].initial == bytes({1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST("variables whose first value cannot be told make an image that is not understood") {
  for (const char* text :
       {".global .u64 x = y;", ".global .u64 x[2] = {1, generic(y)};", ".global .f32 x = 0f3F800000;",
        ".global .f32 x = 1.5;", ".global .u32 x[2] = {1, 2, 3};", ".global .u32 x[2][2] = {{1, 2}, {3, 4}};",
        ".global .u32 x = 010;", ".global .u32 x[2] = {1", ".global .u32 x = 5, y;", ".extern .global .u32 x;",
        ".common .global .u32 x;", ".global .attribute(.managed) .u32 x;", ".global .u32 x, y;", ".global .texref t;",
        ".global .u32 x[];", ".global .b8 x[99999999999];", ".global", ".global .u32",
        ".global .u32 x[4294967296][4294967296];"})
    CHECK(!ofText(text).has_value());
}

/// A cubin with one section of variables.
struct TestCubin {
  std::vector<std::byte> bytes;

  TestCubin(const std::string& section, std::vector<std::pair<std::string, size_t>> symbols, bool hasBytes) {
    std::string names = std::string(1, '\0') + section + '\0';
    std::vector<Elf64_Sym> table(1);
    uint64_t size = 0;
    for (const auto& [name, n] : symbols) {
      Elf64_Sym symbol{};
      symbol.st_name = static_cast<Elf64_Word>(names.size());
      symbol.st_shndx = 1;
      symbol.st_value = size;
      symbol.st_size = n;
      table.push_back(symbol);
      names += name + '\0';
      size += n;
    }
    std::string data(size, '\0');
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i + 1);
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 4;
    header.e_shstrndx = 3;
    header.e_shoff = sizeof header;
    Elf64_Shdr sections[4] = {};
    uint64_t at = sizeof header + sizeof sections;
    const auto place = [&](Elf64_Shdr& s, uint64_t n) {
      s.sh_offset = at;
      s.sh_size = n;
      at += (n + 7) / 8 * 8;
    };
    sections[1].sh_name = 1;
    sections[1].sh_type = hasBytes ? SHT_PROGBITS : SHT_NOBITS;
    place(sections[1], size);
    sections[2].sh_type = SHT_SYMTAB;
    sections[2].sh_link = 3;
    place(sections[2], table.size() * sizeof(Elf64_Sym));
    place(sections[3], names.size());
    bytes.resize(at);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, sections, sizeof sections);
    std::memcpy(bytes.data() + sections[1].sh_offset, data.data(), data.size());
    std::memcpy(bytes.data() + sections[2].sh_offset, table.data(), sections[2].sh_size);
    std::memcpy(bytes.data() + sections[3].sh_offset, names.data(), names.size());
  }
};

TEST("variables of machine code are found with what they hold at first") {
  const TestCubin zeros(".nv.global", {{"a", 4}, {"b", 8}}, false);
  auto found = imageVariables(zeros.bytes, kArchs);
  CHECK(found && found->size() == 2);
  CHECK((*found)[1].name == "b" && (*found)[1].initial == std::vector<std::byte>(8));
  const TestCubin initialised(".nv.global.init", {{"a", 2}, {"$str", 3}, {"b", 1}}, true);
  found = imageVariables(initialised.bytes, kArchs);
  CHECK(found && found->size() == 2);
  CHECK((*found)[0].initial == (std::vector<std::byte>{std::byte{1}, std::byte{2}}));
  CHECK((*found)[1].initial == std::vector<std::byte>{std::byte{6}});
  const TestCubin constants(".nv.constant3", {{"a", 4}}, true);
  found = imageVariables(constants.bytes, kArchs);
  CHECK(found && found->empty());
}

TEST("machine code with variables that nothing names is not understood") {
  TestCubin nameless(".nv.global", {{"a", 4}}, false);
  Elf64_Shdr symbols;
  const size_t at = sizeof(Elf64_Ehdr) + 2 * sizeof symbols;
  std::memcpy(&symbols, nameless.bytes.data() + at, sizeof symbols);
  symbols.sh_type = SHT_NULL;
  std::memcpy(nameless.bytes.data() + at, &symbols, sizeof symbols);
  CHECK(!imageVariables(nameless.bytes, kArchs).has_value());
}

TEST("broken images are read within their bounds") {
  const TestCubin whole(".nv.global.init", {{"a", 4}, {"b", 8}}, true);
  std::minstd_rand random(3);
  for (int i = 0; i < 20'000; ++i) {
    auto broken = whole.bytes;
    for (int n = 0; n < 3; ++n) broken[random() % broken.size()] = static_cast<std::byte>(random());
    broken.resize(random() % 4 == 0 ? random() % broken.size() : broken.size());
    broken.shrink_to_fit();
    (void)imageVariables(broken, kArchs);
  }
}

}  // namespace
}  // namespace millpond::worker
