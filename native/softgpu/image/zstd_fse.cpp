// SPDX-License-Identifier: Apache-2.0
#include "softgpu/image/zstd_fse.h"

#include <bit>

namespace millpond::softgpu::zstd {

FseTable buildFseTable(std::span<const int16_t> probabilities, unsigned accuracyLog) {
  const size_t size = size_t{1} << accuracyLog;
  FseTable table{accuracyLog, std::vector<FseState>(size)};

  // Symbols of probability "less than one" take one state each, from the top downwards.
  size_t top = size;
  for (size_t symbol = 0; symbol < probabilities.size(); ++symbol) {
    if (probabilities[symbol] == -1) table.states[--top].symbol = static_cast<uint8_t>(symbol);
  }
  // The others are spread over the rest by a stride that visits each state once.
  const size_t stride = (size >> 1) + (size >> 3) + 3;
  size_t position = 0;
  for (size_t symbol = 0; symbol < probabilities.size(); ++symbol) {
    for (int16_t i = 0; i < probabilities[symbol]; ++i) {
      table.states[position].symbol = static_cast<uint8_t>(symbol);
      do {
        position = (position + stride) & (size - 1);
      } while (position >= top);
    }
  }

  std::vector<uint32_t> next(probabilities.size());
  for (size_t symbol = 0; symbol < probabilities.size(); ++symbol) {
    next[symbol] = probabilities[symbol] == -1 ? 1 : static_cast<uint32_t>(probabilities[symbol]);
  }
  for (FseState& state : table.states) {
    uint32_t share = next[state.symbol]++;
    unsigned bits = accuracyLog + 1 - static_cast<unsigned>(std::bit_width(share));
    state.bits = static_cast<uint8_t>(bits);
    state.baseline = static_cast<uint16_t>((share << bits) - size);
  }
  return table;
}

FseTable singleSymbolFseTable(uint8_t symbol) { return FseTable{0, {FseState{0, symbol, 0}}}; }

Result<FseTable> readFseTable(ByteReader& in, unsigned maxSymbol, unsigned maxAccuracyLog) {
  const Error truncated{"zstd: an FSE table description is cut off"};
  ForwardBits bits(in.rest());
  std::optional<uint32_t> logField = bits.read(4);
  if (!logField) return truncated;
  const unsigned accuracyLog = *logField + 5;
  if (accuracyLog > maxAccuracyLog) return Error{"zstd: FSE accuracy above what the format allows"};

  std::vector<int16_t> probabilities;
  int32_t remaining = int32_t{1} << accuracyLog;
  while (remaining > 0) {
    if (probabilities.size() > maxSymbol)
      return Error{"zstd: FSE table with more symbols than the alphabet has"};
    // Values 0 … remaining+1 are coded; the lower ones, as many as the field has to spare, in one bit less.
    const uint32_t highest = static_cast<uint32_t>(remaining) + 1;
    const unsigned width = static_cast<unsigned>(std::bit_width(highest));
    const uint32_t spare = (uint32_t{1} << width) - 1 - highest;
    std::optional<uint32_t> field = bits.read(width - 1);
    if (!field) return truncated;
    uint32_t value = *field;
    if (value >= spare) {
      std::optional<uint32_t> high = bits.read(1);
      if (!high) return truncated;
      if (*high) value += (uint32_t{1} << (width - 1)) - spare;
    }
    const int32_t probability = static_cast<int32_t>(value) - 1;
    remaining -= probability < 0 ? 1 : probability;
    probabilities.push_back(static_cast<int16_t>(probability));
    if (probability != 0) continue;
    // A zero is followed by runs of further zeros, two bits each, going on while the run is 3.
    while (true) {
      std::optional<uint32_t> run = bits.read(2);
      if (!run) return truncated;
      probabilities.insert(probabilities.end(), *run, int16_t{0});
      if (probabilities.size() > size_t{maxSymbol} + 1) {
        return Error{"zstd: FSE table with more symbols than the alphabet has"};
      }
      if (*run != 3) break;
    }
  }
  if (remaining < 0) return Error{"zstd: FSE probabilities add up to more than the table"};
  in.take(bits.bytesUsed());
  return buildFseTable(probabilities, accuracyLog);
}

}  // namespace millpond::softgpu::zstd
