// SPDX-License-Identifier: Apache-2.0
#include "softgpu/image/lz4.h"

#include <cstring>

#include "softgpu/image/byte_reader.h"

namespace millpond::softgpu {
namespace {

constexpr unsigned kLongLength = 15;
constexpr size_t kMinimumMatch = 4;

// A length of 15 in the token continues in further bytes, each added up, ending with one below 255.
std::optional<uint64_t> readLength(ByteReader& in, unsigned fromToken) {
  uint64_t length = fromToken;
  if (fromToken != kLongLength) return length;
  while (true) {
    std::optional<uint8_t> more = in.u8();
    if (!more) return std::nullopt;
    length += *more;
    if (*more != 255) return length;
  }
}

}  // namespace

Result<size_t> decompressLz4Block(std::span<const std::byte> in, std::span<std::byte> out) {
  ByteReader reader(in);
  size_t written = 0;
  while (true) {
    std::optional<uint8_t> token = reader.u8();
    if (!token) return Error{"LZ4 block: ends where a token should begin"};

    std::optional<uint64_t> literalLength = readLength(reader, *token >> 4);
    if (!literalLength) return Error{"LZ4 block: ends inside a literal length"};
    std::optional<Bytes> literals = reader.take(*literalLength);
    if (!literals) return Error{"LZ4 block: ends inside literals"};
    if (literals->size() > out.size() - written) return Error{"LZ4 block: larger than its declared size"};
    if (!literals->empty()) std::memcpy(out.data() + written, literals->data(), literals->size());
    written += literals->size();

    // Only the last sequence has no match.
    if (reader.remaining() == 0) return written;

    std::optional<uint64_t> offset = reader.number(2);
    if (!offset) return Error{"LZ4 block: ends inside an offset"};
    if (*offset == 0 || *offset > written) return Error{"LZ4 block: match before the start of the data"};
    std::optional<uint64_t> matchLength = readLength(reader, *token & 15);
    if (!matchLength) return Error{"LZ4 block: ends inside a match length"};
    uint64_t length = *matchLength + kMinimumMatch;
    if (length > out.size() - written) return Error{"LZ4 block: larger than its declared size"};
    // Byte by byte: a match may overlap what it produces.
    const std::byte* from = out.data() + (written - static_cast<size_t>(*offset));
    for (size_t i = 0; i < length; ++i) out[written + i] = from[i];
    written += static_cast<size_t>(length);
  }
}

}  // namespace millpond::softgpu
