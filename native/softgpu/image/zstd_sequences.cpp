// SPDX-License-Identifier: Apache-2.0
#include "softgpu/image/zstd_sequences.h"

namespace millpond::softgpu::zstd {
namespace {

// A code stands for `base` plus a number of `bits` bits.
struct LengthCode {
  uint32_t base;
  uint8_t bits;
};

constexpr std::array<LengthCode, 36> kLiteralLengthCodes = {{
    {0, 0},   {1, 0},   {2, 0},     {3, 0},     {4, 0},     {5, 0},     {6, 0},      {7, 0},      {8, 0},
    {9, 0},   {10, 0},  {11, 0},    {12, 0},    {13, 0},    {14, 0},    {15, 0},     {16, 1},     {18, 1},
    {20, 1},  {22, 1},  {24, 2},    {28, 2},    {32, 3},    {40, 3},    {48, 4},     {64, 6},     {128, 7},
    {256, 8}, {512, 9}, {1024, 10}, {2048, 11}, {4096, 12}, {8192, 13}, {16384, 14}, {32768, 15}, {65536, 16},
}};

constexpr std::array<LengthCode, 53> kMatchLengthCodes = {{
    {3, 0},   {4, 0},     {5, 0},     {6, 0},     {7, 0},     {8, 0},      {9, 0},      {10, 0},     {11, 0},
    {12, 0},  {13, 0},    {14, 0},    {15, 0},    {16, 0},    {17, 0},     {18, 0},     {19, 0},     {20, 0},
    {21, 0},  {22, 0},    {23, 0},    {24, 0},    {25, 0},    {26, 0},     {27, 0},     {28, 0},     {29, 0},
    {30, 0},  {31, 0},    {32, 0},    {33, 0},    {34, 0},    {35, 1},     {37, 1},     {39, 1},     {41, 1},
    {43, 2},  {47, 2},    {51, 3},    {59, 3},    {67, 4},    {83, 4},     {99, 5},     {131, 7},    {259, 8},
    {515, 9}, {1027, 10}, {2051, 11}, {4099, 12}, {8195, 13}, {16387, 14}, {32771, 15}, {65539, 16},
}};

constexpr std::array<int16_t, 36> kLiteralLengthDefault = {4, 3, 2, 2, 2, 2, 2, 2, 2,  2,  2,  2,
                                                           2, 1, 1, 1, 2, 2, 2, 2, 2,  2,  2,  2,
                                                           2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
constexpr std::array<int16_t, 53> kMatchLengthDefault = {
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};
constexpr std::array<int16_t, 29> kOffsetDefault = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1,  1,  1,  1,  1, 1,
                                                    1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};

template <size_t N>
constexpr int statesOf(const std::array<int16_t, N>& probabilities) {
  int sum = 0;
  for (int16_t probability : probabilities) sum += probability < 0 ? 1 : probability;
  return sum;
}
static_assert(statesOf(kLiteralLengthDefault) == 64);
static_assert(statesOf(kMatchLengthDefault) == 64);
static_assert(statesOf(kOffsetDefault) == 32);

struct Alphabet {
  const char* name;
  unsigned maxSymbol;
  unsigned maxAccuracyLog;
  unsigned defaultAccuracyLog;
  std::span<const int16_t> defaultProbabilities;
};
constexpr Alphabet kLiteralLengthAlphabet = {"literal length", 35, 9, 6, kLiteralLengthDefault};
constexpr Alphabet kOffsetAlphabet = {"offset", 31, 8, 5, kOffsetDefault};
constexpr Alphabet kMatchLengthAlphabet = {"match length", 52, 9, 6, kMatchLengthDefault};

enum class TableMode : uint8_t { predefined = 0, singleSymbol = 1, described = 2, repeat = 3 };

Status readTable(ByteReader& in, TableMode mode, const Alphabet& alphabet, FseTable& table) {
  switch (mode) {
    case TableMode::predefined:
      table = buildFseTable(alphabet.defaultProbabilities, alphabet.defaultAccuracyLog);
      return Done{};
    case TableMode::singleSymbol: {
      std::optional<uint8_t> symbol = in.u8();
      if (!symbol || *symbol > alphabet.maxSymbol) {
        return Error{std::string("zstd: bad single symbol of the ") + alphabet.name + " table"};
      }
      table = singleSymbolFseTable(*symbol);
      return Done{};
    }
    case TableMode::described: {
      Result<FseTable> read = readFseTable(in, alphabet.maxSymbol, alphabet.maxAccuracyLog);
      if (!read) return read.error();
      table = std::move(*read);
      return Done{};
    }
    case TableMode::repeat:
      if (table.empty()) return Error{std::string("zstd: no earlier ") + alphabet.name + " table to repeat"};
      return Done{};
  }
  return Error{"zstd: unknown table mode"};
}

Result<uint32_t> readSequenceCount(ByteReader& in) {
  const Error truncated{"zstd: a sequences header is cut off"};
  std::optional<uint8_t> first = in.u8();
  if (!first) return truncated;
  if (*first < 128) return uint32_t{*first};
  if (*first < 255) {
    std::optional<uint8_t> second = in.u8();
    if (!second) return truncated;
    return ((uint32_t{*first} - 128) << 8) + *second;
  }
  std::optional<uint64_t> rest = in.number(2);
  if (!rest) return truncated;
  return static_cast<uint32_t>(*rest) + 0x7F00;
}

// An offset value of 1 to 3 names a recent offset; without literals the list shifts by one, and the last
// choice becomes the most recent offset minus one. Returns 0 for an offset that cannot be.
uint32_t resolveOffset(uint64_t value, uint32_t literalLength, std::array<uint32_t, 3>& recent) {
  uint32_t offset;
  if (value > 3) {
    offset = static_cast<uint32_t>(value - 3);
    recent = {offset, recent[0], recent[1]};
    return offset;
  }
  const size_t choice = static_cast<size_t>(value) - 1 + (literalLength == 0 ? 1 : 0);
  if (choice == 0) return recent[0];
  offset = choice == 3 ? recent[0] - 1 : recent[choice];
  recent = {offset, recent[0], choice == 1 ? recent[2] : recent[1]};
  return offset;
}

}  // namespace

Result<std::vector<Sequence>> readSequences(ByteReader& in, SequenceState& state) {
  Result<uint32_t> count = readSequenceCount(in);
  if (!count) return count.error();
  std::vector<Sequence> sequences;
  if (*count == 0) {
    if (in.remaining() != 0) return Error{"zstd: bytes after an empty sequences section"};
    return sequences;
  }

  std::optional<uint8_t> modes = in.u8();
  if (!modes) return Error{"zstd: a sequences header is cut off"};
  if (*modes & 3) return Error{"zstd: reserved bits set in a sequences header"};
  const auto modeAt = [&](int shift) { return static_cast<TableMode>((*modes >> shift) & 3); };
  Status status = readTable(in, modeAt(6), kLiteralLengthAlphabet, state.literalLengths);
  if (status) status = readTable(in, modeAt(4), kOffsetAlphabet, state.offsets);
  if (status) status = readTable(in, modeAt(2), kMatchLengthAlphabet, state.matchLengths);
  if (!status) return status.error();

  std::optional<BackwardBits> bits = BackwardBits::open(in.rest());
  if (!bits) return Error{"zstd: sequences without an end mark"};
  FseDecoder literalLengths(state.literalLengths, *bits);
  FseDecoder offsets(state.offsets, *bits);
  FseDecoder matchLengths(state.matchLengths, *bits);
  sequences.reserve(*count);
  for (uint32_t i = 0; i < *count; ++i) {
    const unsigned offsetBits = offsets.symbol();
    const uint64_t offsetValue = (uint64_t{1} << offsetBits) + bits->read(offsetBits);
    const LengthCode& matchCode = kMatchLengthCodes[matchLengths.symbol()];
    const auto matchLength = static_cast<uint32_t>(matchCode.base + bits->read(matchCode.bits));
    const LengthCode& literalCode = kLiteralLengthCodes[literalLengths.symbol()];
    const auto literalLength = static_cast<uint32_t>(literalCode.base + bits->read(literalCode.bits));
    const uint32_t offset = resolveOffset(offsetValue, literalLength, state.recentOffsets);
    if (offset == 0) return Error{"zstd: a sequence with offset 0"};
    sequences.push_back({literalLength, matchLength, offset});
    if (i + 1 < *count) {
      literalLengths.advance(*bits);
      matchLengths.advance(*bits);
      offsets.advance(*bits);
    }
    if (bits->remaining() < 0) return Error{"zstd: sequences are cut off"};
  }
  if (bits->remaining() != 0) return Error{"zstd: bits left over after the sequences"};
  return sequences;
}

}  // namespace millpond::softgpu::zstd
