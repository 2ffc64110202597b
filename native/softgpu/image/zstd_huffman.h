// SPDX-License-Identifier: Apache-2.0
// Huffman-coded literals of RFC 8878, section 4.2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "softgpu/image/byte_reader.h"

namespace millpond::softgpu::zstd {

/// A prefix code of at most 11 bits as a table indexed by the next maxBits bits. Empty until it has been
/// read.
struct HuffmanTable {
  struct Entry {
    uint8_t symbol;
    uint8_t bits;
  };
  unsigned maxBits = 0;
  std::vector<Entry> entries;

  bool empty() const { return entries.empty(); }
};

/// Reads a tree description and takes its bytes from `in`.
Result<HuffmanTable> readHuffmanTable(ByteReader& in);

/// Decodes one stream into the whole of `out`; the stream must hold exactly that many symbols.
Status decodeHuffmanStream(const HuffmanTable& table, Bytes stream, std::span<std::byte> out);

}  // namespace millpond::softgpu::zstd
