// SPDX-License-Identifier: Apache-2.0
// Sequences of RFC 8878, section 3.1.1.3.2: what to copy, as triples of literal length, match length and
// offset.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "softgpu/image/byte_reader.h"
#include "softgpu/image/zstd_fse.h"

namespace millpond::softgpu::zstd {

struct Sequence {
  uint32_t literalLength;
  uint32_t matchLength;
  uint32_t offset;  // in bytes, back from the current end of the output; never 0
};

/// What a block's sequences inherit from the blocks before it.
struct SequenceState {
  FseTable literalLengths;
  FseTable offsets;
  FseTable matchLengths;
  std::array<uint32_t, 3> recentOffsets = {1, 4, 8};
};

/// Reads the sequences section, which is the rest of its block.
Result<std::vector<Sequence>> readSequences(ByteReader& in, SequenceState& state);

}  // namespace millpond::softgpu::zstd
