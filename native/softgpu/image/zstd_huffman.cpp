// SPDX-License-Identifier: Apache-2.0
#include "softgpu/image/zstd_huffman.h"

#include <bit>

#include "softgpu/image/zstd_fse.h"

namespace millpond::softgpu::zstd {
namespace {

constexpr unsigned kMaxBits = 11;
constexpr size_t kMaxWeights = 255;  // of 256 symbols; the last weight follows from the others
constexpr unsigned kMaxWeightAccuracyLog = 6;

// Two decoders take turns over one stream until it is used up; then each gives its last symbol.
Result<std::vector<uint8_t>> readCodedWeights(Bytes coded) {
  ByteReader reader(coded);
  Result<FseTable> table = readFseTable(reader, kMaxBits, kMaxWeightAccuracyLog);
  if (!table) return table.error();
  std::optional<BackwardBits> bits = BackwardBits::open(reader.rest());
  if (!bits) return Error{"zstd: Huffman weights without an end mark"};

  FseDecoder first(*table, *bits);
  FseDecoder second(*table, *bits);
  if (bits->remaining() < 0) return Error{"zstd: Huffman weights are cut off"};
  std::vector<uint8_t> weights;
  FseDecoder* turn = &first;
  FseDecoder* other = &second;
  while (true) {
    // A table whose states read no bits would go on for ever.
    if (weights.size() + 2 > kMaxWeights) return Error{"zstd: more Huffman weights than symbols"};
    weights.push_back(turn->symbol());
    if (static_cast<int64_t>(turn->nextBits()) > bits->remaining()) {
      weights.push_back(other->symbol());
      return weights;
    }
    turn->advance(*bits);
    std::swap(turn, other);
  }
}

Result<std::vector<uint8_t>> readWeights(ByteReader& in) {
  std::optional<uint8_t> header = in.u8();
  if (!header) return Error{"zstd: a Huffman tree description is cut off"};
  if (*header < 128) {
    std::optional<Bytes> coded = in.take(*header);
    if (!coded) return Error{"zstd: a Huffman tree description is cut off"};
    return readCodedWeights(*coded);
  }
  const size_t count = size_t{*header} - 127;
  std::optional<Bytes> packed = in.take((count + 1) / 2);
  if (!packed) return Error{"zstd: a Huffman tree description is cut off"};
  std::vector<uint8_t> weights(count);
  for (size_t i = 0; i < count; ++i) {
    auto pair = static_cast<uint8_t>((*packed)[i / 2]);
    weights[i] = i % 2 == 0 ? pair >> 4 : pair & 15;
  }
  return weights;
}

}  // namespace

Result<HuffmanTable> readHuffmanTable(ByteReader& in) {
  Result<std::vector<uint8_t>> read = readWeights(in);
  if (!read) return read.error();
  std::vector<uint8_t>& weights = *read;

  uint32_t sum = 0;
  for (uint8_t weight : weights) {
    if (weight > kMaxBits) return Error{"zstd: Huffman weight above 11"};
    if (weight > 0) sum += uint32_t{1} << (weight - 1);
  }
  if (sum == 0) return Error{"zstd: Huffman tree without symbols"};
  // The last weight makes the sum a power of two.
  const auto maxBits = static_cast<unsigned>(std::bit_width(sum));
  if (maxBits > kMaxBits) return Error{"zstd: Huffman code longer than 11 bits"};
  const uint32_t missing = (uint32_t{1} << maxBits) - sum;
  if (!std::has_single_bit(missing)) return Error{"zstd: Huffman weights do not add up"};
  weights.push_back(static_cast<uint8_t>(std::bit_width(missing)));

  HuffmanTable table{maxBits, {}};
  table.entries.reserve(size_t{1} << maxBits);
  for (unsigned weight = 1; weight <= maxBits; ++weight) {
    for (size_t symbol = 0; symbol < weights.size(); ++symbol) {
      if (weights[symbol] != weight) continue;
      HuffmanTable::Entry entry{static_cast<uint8_t>(symbol), static_cast<uint8_t>(maxBits + 1 - weight)};
      table.entries.insert(table.entries.end(), size_t{1} << (weight - 1), entry);
    }
  }
  return table;
}

Status decodeHuffmanStream(const HuffmanTable& table, Bytes stream, std::span<std::byte> out) {
  std::optional<BackwardBits> bits = BackwardBits::open(stream);
  if (!bits) return Error{"zstd: a Huffman stream without an end mark"};
  for (std::byte& symbol : out) {
    const HuffmanTable::Entry& entry = table.entries[static_cast<size_t>(bits->look(table.maxBits))];
    bits->skip(entry.bits);
    symbol = std::byte{entry.symbol};
  }
  if (bits->remaining() != 0) return Error{"zstd: a Huffman stream of the wrong length"};
  return Done{};
}

}  // namespace millpond::softgpu::zstd
