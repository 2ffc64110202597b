// SPDX-License-Identifier: Apache-2.0
// Finite state entropy of RFC 8878, section 4.1: table descriptions and decoding tables.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "softgpu/image/byte_reader.h"
#include "softgpu/image/zstd_bits.h"

namespace millpond::softgpu::zstd {

struct FseState {
  uint16_t baseline;
  uint8_t symbol;
  uint8_t bits;
};

/// A decoding table: 2^accuracyLog states. Empty until it has been read or built.
struct FseTable {
  unsigned accuracyLog = 0;
  std::vector<FseState> states;

  bool empty() const { return states.empty(); }
};

/// One decoder walking through a table.
class FseDecoder {
 public:
  FseDecoder(const FseTable& table, BackwardBits& bits)
      : table_(table), state_(static_cast<size_t>(bits.read(table.accuracyLog))) {}

  uint8_t symbol() const { return table_.states[state_].symbol; }
  unsigned nextBits() const { return table_.states[state_].bits; }
  void advance(BackwardBits& bits) {
    const FseState& state = table_.states[state_];
    state_ = static_cast<size_t>(state.baseline + bits.read(state.bits));
  }

 private:
  const FseTable& table_;
  size_t state_;
};

/// Builds the table of a distribution: one probability for each symbol, -1 for "less than one". The
/// probabilities (with -1 counted as 1) must add up to 2^accuracyLog.
FseTable buildFseTable(std::span<const int16_t> probabilities, unsigned accuracyLog);

/// The table in which every state gives `symbol` and reads no bits.
FseTable singleSymbolFseTable(uint8_t symbol);

/// Reads a table description and takes its bytes from `in`. Symbols above maxSymbol are refused, as is an
/// accuracy above maxAccuracyLog.
Result<FseTable> readFseTable(ByteReader& in, unsigned maxSymbol, unsigned maxAccuracyLog);

}  // namespace millpond::softgpu::zstd
