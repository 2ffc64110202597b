// SPDX-License-Identifier: Apache-2.0
// The container in which compilers hand device code to the driver: entries of PTX and machine code for
// several architectures, each possibly compressed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "image/byte_reader.h"

namespace millpond::image {

constexpr uint32_t kFatbinMagic = 0xBA55ED50;
constexpr size_t kFatbinHeaderSize = 16;

/// Text larger than this is refused, however well it compresses. In bytes.
constexpr uint64_t kLargestPtx = uint64_t{256} << 20;

enum class FatbinKind : uint16_t { ptx = 1, elf = 2, ltoIr = 8 };

struct FatbinEntry {
  FatbinKind kind;
  uint32_t arch;  // 75 = compute capability 7.5
  uint64_t flags;
  Bytes payload;              // as stored, without padding
  uint64_t uncompressedSize;  // 0 for an entry that is not compressed
};

/// The entries of a fatbin, in order. Bytes after the fatbin's own size are ignored; unknown kinds are kept.
Result<std::vector<FatbinEntry>> readFatbin(Bytes fatbin);

/// The content of an entry, decompressed.
Result<std::string> readFatbinEntry(const FatbinEntry& entry);

}  // namespace millpond::image
