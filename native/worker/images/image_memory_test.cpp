// SPDX-License-Identifier: Apache-2.0
#include "worker/images/image_memory.h"

#include <elf.h>

#include <cstring>
#include <string>
#include <vector>

#include "testing/check.h"

namespace millpond::worker {
namespace {

constexpr unsigned kHopper[] = {90};
constexpr uint64_t kNotTold = 12345678901;

uint64_t ofPtx(const std::string& body) {
  const std::string text = ".version 7.0\n.target sm_70\n.address_size 64\n" + body;
  const auto memory = imageMemory(std::as_bytes(std::span(text)), kHopper);
  return memory ? memory->variables : kNotTold;
}

ImageMemory memoryOf(std::span<const std::byte> image) {
  const auto memory = imageMemory(image, kHopper);
  CHECK(memory.has_value());
  return *memory;
}

ImageMemory memoryOfPtx(const std::string& body) {
  const std::string text = ".version 7.0\n.target sm_70\n.address_size 64\n" + body;
  return memoryOf(std::as_bytes(std::span(text)));
}

TEST("variables and constants of PTX count with all their elements") {
  CHECK_EQ(ofPtx(".visible .global .align 8 .b8 g[1073741824];"), uint64_t{1} << 30);
  CHECK_EQ(ofPtx(".global .u32 x;"), 256u);
  CHECK_EQ(ofPtx(".global .align 16 .v4 .f32 g[0x100][2];"), 8192u);
  CHECK_EQ(ofPtx(".const .b64 c[512];\n.global .b8 g[2000];"), 4096u + 2000u);
  CHECK_EQ(ofPtx(".global .attribute(.managed) .align 4 .b8 m[4096];"), 4096u);
  CHECK_EQ(ofPtx(".global .b32 a[1000], b[2000];"), 12000u);
  CHECK_EQ(ofPtx(".global .b32 a[] = {1, 2, 3}, b[1000] = {1, {2}};"), 4256u);
  CHECK_EQ(ofPtx(".global .texref t;"), 256u);
}

TEST("what is declared elsewhere, commented out or no variable counts nothing") {
  CHECK_EQ(ofPtx(".extern .global .b8 g[1000000];"), 0u);
  CHECK_EQ(ofPtx("// .global .b8 g[1000000];\n/* .global .b8 h[1000000]; */"), 0u);
  CHECK_EQ(ofPtx(".entry k(.param .u64 .ptr .global .align 8 p) { ld.global.u32 r, [p]; ret; }"), 0u);
  CHECK_EQ(ofPtx(".extern .func f();\n.global .b8 g[1000];"), 1000u);
}

TEST("sizes that overflow are the most there is, and those that are no numbers are not told") {
  CHECK_EQ(ofPtx(".global .b64 g[4611686018427387904];"), UINT64_MAX);
  CHECK_EQ(ofPtx(".global .b8 g[18446744073709551615], h[18446744073709551615];"), UINT64_MAX);
  CHECK_EQ(ofPtx(".global .b8 g[1024*1024];"), kNotTold);
  CHECK_EQ(ofPtx(".global .b8 g[99999999999999999999999];"), kNotTold);
  CHECK_EQ(ofPtx(".global .b8 g["), kNotTold);
}

TEST("functions of the device's runtime that PTX calls are told, and not those in comments and texts") {
  const std::string prints = ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);";
  const std::string allocates = ".extern .func (.param .b64 r) malloc (.param .b64 n);";
  CHECK(memoryOfPtx(prints).prints);
  CHECK(!memoryOfPtx(prints).allocates);
  CHECK(memoryOfPtx(allocates).allocates);
  CHECK(!memoryOfPtx(allocates).prints);
  CHECK(memoryOfPtx(".extern .func free (.param .b64 p);").allocates);
  const ImageMemory none = memoryOfPtx("// vprintf\n/* malloc */ .file 1 \"malloc\" .global .u32 vprintf_count;");
  CHECK(!none.prints);
  CHECK(!none.allocates);
  ImageMemory both = memoryOfPtx(prints + ".global .b8 g[1000];");
  both.add(memoryOfPtx(allocates + ".global .b8 g[1000];"));
  CHECK(both.prints && both.allocates);
  CHECK_EQ(both.variables, 2000u);
}

TEST("functions of the device's runtime that a cubin calls are told by its symbols") {
  const std::string sectionNames("\0.symtab\0.strtab\0.shstrtab", 27);
  const std::string names("\0vprintf\0malloc\0kernel", 23);
  const auto cubin = [&](uint32_t name, uint16_t section, uint64_t symbolBytes) {
    Elf64_Sym symbols[2]{};
    symbols[1].st_name = name;
    symbols[1].st_shndx = section;
    Elf64_Shdr sections[4]{};
    const size_t content = sizeof(Elf64_Ehdr) + sizeof(sections);
    sections[1].sh_name = 1;
    sections[1].sh_type = SHT_SYMTAB;
    sections[1].sh_offset = content;
    sections[1].sh_size = symbolBytes;
    sections[1].sh_entsize = sizeof(Elf64_Sym);
    sections[1].sh_link = 2;
    sections[2].sh_name = 9;
    sections[2].sh_type = SHT_STRTAB;
    sections[2].sh_offset = content + sizeof(symbols);
    sections[2].sh_size = names.size();
    sections[3].sh_name = 17;
    sections[3].sh_offset = content + sizeof(symbols) + names.size();
    sections[3].sh_size = sectionNames.size();
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shoff = sizeof(Elf64_Ehdr);
    header.e_shnum = 4;
    header.e_shstrndx = 3;
    std::vector<std::byte> file(content + sizeof(symbols) + names.size() + sectionNames.size());
    std::memcpy(file.data(), &header, sizeof(header));
    std::memcpy(file.data() + sizeof(header), sections, sizeof(sections));
    std::memcpy(file.data() + content, symbols, sizeof(symbols));
    std::memcpy(file.data() + content + sizeof(symbols), names.data(), names.size());
    std::memcpy(file.data() + content + sizeof(symbols) + names.size(), sectionNames.data(), sectionNames.size());
    return file;
  };
  constexpr uint64_t kSymbols = 2 * sizeof(Elf64_Sym);
  const ImageMemory prints = memoryOf(cubin(1, SHN_UNDEF, kSymbols));
  CHECK(prints.prints && !prints.allocates);
  const ImageMemory allocates = memoryOf(cubin(9, SHN_UNDEF, kSymbols));
  CHECK(allocates.allocates && !allocates.prints);
  // The program's own function of that name.
  CHECK(!memoryOf(cubin(1, 1, kSymbols)).prints);
  CHECK(!memoryOf(cubin(16, SHN_UNDEF, kSymbols)).prints);
  // Tables that reach beyond the file, or claim to.
  CHECK(!imageMemory(cubin(1, SHN_UNDEF, UINT64_MAX), kHopper));
  CHECK(!imageMemory(cubin(1, SHN_UNDEF, 400), kHopper));
}

TEST("sections of a cubin count as its headers say") {
  const std::string names("\0.nv.global\0.nv.constant3\0.text.k", 34);
  std::vector<std::byte> file(sizeof(Elf64_Ehdr) + 5 * sizeof(Elf64_Shdr) + names.size());
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shoff = sizeof(Elf64_Ehdr);
  header.e_shnum = 5;
  header.e_shstrndx = 4;
  Elf64_Shdr sections[5]{};
  sections[1].sh_name = 1;
  sections[1].sh_type = SHT_NOBITS;
  sections[1].sh_size = uint64_t{40} << 30;
  sections[2].sh_name = 12;
  sections[2].sh_size = 1000;
  sections[3].sh_name = 26;
  sections[3].sh_size = 5000;
  sections[4].sh_offset = sizeof(header) + sizeof(sections);
  sections[4].sh_size = names.size();
  std::memcpy(file.data(), &header, sizeof(header));
  std::memcpy(file.data() + sizeof(header), sections, sizeof(sections));
  std::memcpy(file.data() + sections[4].sh_offset, names.data(), names.size());
  CHECK_EQ(memoryOf(file).variables, (uint64_t{40} << 30) + 1000);
  for (size_t end = 0; end < sections[4].sh_offset; ++end) {
    const std::vector<std::byte> cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(end));
    if (end >= 4) CHECK(!imageMemory(cut, kHopper));
  }
}

}  // namespace
}  // namespace millpond::worker
