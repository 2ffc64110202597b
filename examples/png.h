// SPDX-License-Identifier: Apache-2.0
// A PNG file of 8-bit RGB pixels, uncompressed: deflate allows "stored" blocks, so no compressor is needed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace png {

/// The CRC-32 of PNG, zip and Ethernet; `previous` continues an earlier one.
inline uint32_t crc32(const uint8_t* data, size_t size, uint32_t previous = 0) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) ? 0xedb88320u : 0);
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = ~previous;
  for (size_t i = 0; i < size; ++i) crc = table[(crc ^ data[i]) & 0xff] ^ (crc >> 8);
  return ~crc;
}

/// The checksum that ends a zlib stream.
inline uint32_t adler32(const std::vector<uint8_t>& data) {
  uint32_t a = 1, b = 0;
  for (uint8_t byte : data) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  return (b << 16) | a;
}

inline void append32(std::vector<uint8_t>& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(value >> shift));
}

inline void append_chunk(std::vector<uint8_t>& out, const char* type, const std::vector<uint8_t>& body) {
  append32(out, static_cast<uint32_t>(body.size()));
  const size_t start = out.size();
  out.insert(out.end(), type, type + 4);
  out.insert(out.end(), body.begin(), body.end());
  append32(out, crc32(out.data() + start, out.size() - start));
}

/// Encodes `rgb`, which holds width × height × 3 bytes, top row first.
inline std::vector<uint8_t> encode(const std::vector<uint8_t>& rgb, uint32_t width, uint32_t height) {
  std::vector<uint8_t> rows;
  rows.reserve(rgb.size() + height);
  const size_t stride = size_t{width} * 3;
  for (size_t y = 0; y < height; ++y) {
    rows.push_back(0);  // no filter
    rows.insert(rows.end(), rgb.begin() + static_cast<ptrdiff_t>(y * stride),
                rgb.begin() + static_cast<ptrdiff_t>((y + 1) * stride));
  }

  std::vector<uint8_t> stream = {0x78, 0x01};
  for (size_t at = 0; at < rows.size();) {
    const size_t size = std::min<size_t>(rows.size() - at, 65535);
    const bool last = at + size == rows.size();
    const uint8_t low = static_cast<uint8_t>(size), high = static_cast<uint8_t>(size >> 8);
    stream.insert(stream.end(), {static_cast<uint8_t>(last), low, high, static_cast<uint8_t>(~low),
                                 static_cast<uint8_t>(~high)});
    stream.insert(stream.end(), rows.begin() + static_cast<ptrdiff_t>(at),
                  rows.begin() + static_cast<ptrdiff_t>(at + size));
    at += size;
  }
  append32(stream, adler32(rows));

  std::vector<uint8_t> header;
  append32(header, width);
  append32(header, height);
  header.insert(header.end(), {8, 2, 0, 0, 0});  // 8 bits, RGB, deflate, standard filters, not interlaced

  std::vector<uint8_t> file = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  append_chunk(file, "IHDR", header);
  append_chunk(file, "IDAT", stream);
  append_chunk(file, "IEND", {});
  return file;
}

/// Writes the picture to a file; returns false when that fails (errno says why).
inline bool write(const std::string& path, const std::vector<uint8_t>& rgb, uint32_t width, uint32_t height) {
  const std::vector<uint8_t> bytes = encode(rgb, width, height);
  FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return false;
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  return std::fclose(file) == 0 && written;
}

}  // namespace png
