// SPDX-License-Identifier: Apache-2.0
#include "softgpu/image/zstd.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "softgpu/image/xxhash64.h"
#include "softgpu/image/zstd_huffman.h"
#include "softgpu/image/zstd_sequences.h"

namespace millpond::softgpu {
namespace zstd {
namespace {

constexpr uint32_t kFrameMagic = 0xFD2FB528;
constexpr uint64_t kLargestBlock = 128 * 1024;

struct FrameHeader {
  uint64_t windowSize = 0;
  std::optional<uint64_t> contentSize;
  bool hasChecksum = false;
};

Result<FrameHeader> readFrameHeader(ByteReader& in) {
  const Error truncated{"zstd: the frame header is cut off"};
  std::optional<uint64_t> magic = in.number(4);
  if (!magic) return truncated;
  if (*magic != kFrameMagic) return Error{"zstd: not a frame"};
  std::optional<uint8_t> descriptor = in.u8();
  if (!descriptor) return truncated;
  if (*descriptor & 0x08) return Error{"zstd: reserved bit set in the frame header"};
  const bool singleSegment = *descriptor & 0x20;
  FrameHeader header;
  header.hasChecksum = *descriptor & 0x04;

  if (!singleSegment) {
    std::optional<uint8_t> window = in.u8();
    if (!window) return truncated;
    const uint64_t base = uint64_t{1} << (10 + (*window >> 3));
    header.windowSize = base + base / 8 * (*window & 7);
  }
  constexpr std::array<size_t, 4> dictionaryIdSizes = {0, 1, 2, 4};
  std::optional<uint64_t> dictionaryId = in.number(dictionaryIdSizes[*descriptor & 3]);
  if (!dictionaryId) return truncated;
  if (*dictionaryId != 0) return Error{"zstd: the frame needs a dictionary"};

  const std::array<size_t, 4> contentSizeSizes = {singleSegment ? size_t{1} : size_t{0}, 2, 4, 8};
  const size_t contentSizeSize = contentSizeSizes[*descriptor >> 6];
  std::optional<uint64_t> contentSize = in.number(contentSizeSize);
  if (!contentSize) return truncated;
  if (contentSizeSize == 2) *contentSize += 256;
  if (contentSizeSize > 0) header.contentSize = *contentSize;
  if (singleSegment) header.windowSize = *contentSize;
  return header;
}

/// Decodes the blocks of one frame into a fixed output.
class FrameDecoder {
 public:
  FrameDecoder(const FrameHeader& header, std::span<std::byte> out)
      : windowSize_(header.windowSize), blockLimit_(std::min(header.windowSize, kLargestBlock)), out_(out) {}

  size_t written() const { return written_; }

  Status decodeBlocks(ByteReader& in) {
    bool last = false;
    while (!last) {
      std::optional<uint64_t> header = in.number(3);
      if (!header) return Error{"zstd: a block header is cut off"};
      last = *header & 1;
      Status status = decodeBlock(in, (*header >> 1) & 3, *header >> 3);
      if (!status) return status;
    }
    return Done{};
  }

 private:
  Status decodeBlock(ByteReader& in, uint64_t type, uint64_t size) {
    if (size > blockLimit_) return Error{"zstd: block larger than the format allows"};
    if (type == 1) {
      std::optional<uint8_t> value = in.u8();
      if (!value) return Error{"zstd: a run-length block is cut off"};
      if (size > out_.size() - written_) return tooLarge();
      std::fill_n(out_.begin() + static_cast<ptrdiff_t>(written_), size, std::byte{*value});
      written_ += static_cast<size_t>(size);
      return Done{};
    }
    std::optional<Bytes> body = in.take(size);
    if (!body) return Error{"zstd: a block is cut off"};
    if (type == 0) return append(*body);
    if (type == 2) return decodeCompressedBlock(ByteReader(*body));
    return Error{"zstd: reserved block type"};
  }

  Status decodeCompressedBlock(ByteReader in) {
    Status literals = readLiterals(in);
    if (!literals) return literals;
    Result<std::vector<Sequence>> sequences = readSequences(in, sequenceState_);
    if (!sequences) return sequences.error();

    const size_t blockStart = written_;
    Bytes rest(literals_);
    for (const Sequence& sequence : *sequences) {
      if (sequence.literalLength > rest.size())
        return Error{"zstd: a sequence takes more literals than there are"};
      Status status = append(rest.first(sequence.literalLength));
      if (status) status = copyMatch(sequence);
      if (!status) return status;
      if (written_ - blockStart > blockLimit_) return Error{"zstd: block larger than the format allows"};
      rest = rest.subspan(sequence.literalLength);
    }
    Status status = append(rest);
    if (status && written_ - blockStart > blockLimit_)
      return Error{"zstd: block larger than the format allows"};
    return status;
  }

  Status copyMatch(const Sequence& sequence) {
    if (sequence.offset > written_ || sequence.offset > windowSize_) {
      return Error{"zstd: match before the start of the window"};
    }
    if (sequence.matchLength > out_.size() - written_) return tooLarge();
    // Byte by byte: a match may overlap what it produces.
    const size_t from = written_ - sequence.offset;
    for (size_t i = 0; i < sequence.matchLength; ++i) out_[written_ + i] = out_[from + i];
    written_ += sequence.matchLength;
    return Done{};
  }

  Status append(Bytes bytes) {
    if (bytes.size() > out_.size() - written_) return tooLarge();
    if (!bytes.empty()) std::memcpy(out_.data() + written_, bytes.data(), bytes.size());
    written_ += bytes.size();
    return Done{};
  }

  Status readLiterals(ByteReader& in) {
    const Error truncated{"zstd: a literals section is cut off"};
    if (in.remaining() == 0) return truncated;
    const auto first = static_cast<uint8_t>(in.rest().front());
    const unsigned type = first & 3;
    const unsigned format = (first >> 2) & 3;
    if (type < 2) return readPlainLiterals(in, type == 1, format);

    constexpr std::array<size_t, 4> headerSizes = {3, 3, 4, 5};
    constexpr std::array<unsigned, 4> fieldBits = {10, 10, 14, 18};
    std::optional<uint64_t> header = in.number(headerSizes[format]);
    if (!header) return truncated;
    const uint64_t mask = (uint64_t{1} << fieldBits[format]) - 1;
    const uint64_t regenerated = (*header >> 4) & mask;
    const uint64_t compressed = (*header >> (4 + fieldBits[format])) & mask;
    if (regenerated > blockLimit_) return Error{"zstd: more literals than a block may hold"};
    std::optional<Bytes> body = in.take(compressed);
    if (!body) return truncated;
    ByteReader streams(*body);
    if (type == 2) {
      Result<HuffmanTable> table = readHuffmanTable(streams);
      if (!table) return table.error();
      huffman_ = std::move(*table);
    } else if (huffman_.empty()) {
      return Error{"zstd: no earlier Huffman tree to use again"};
    }
    literals_.resize(static_cast<size_t>(regenerated));
    return format == 0 ? decodeHuffmanStream(huffman_, streams.rest(), literals_) : readFourStreams(streams);
  }

  Status readPlainLiterals(ByteReader& in, bool repeated, unsigned format) {
    const Error truncated{"zstd: a literals section is cut off"};
    // Formats 0 and 2 differ only in the lowest bit of the size, which begins one bit earlier.
    const size_t headerSize = format == 3 ? 3 : format == 1 ? 2 : 1;
    std::optional<uint64_t> header = in.number(headerSize);
    if (!header) return truncated;
    const uint64_t size = *header >> (headerSize == 1 ? 3 : 4);
    if (size > blockLimit_) return Error{"zstd: more literals than a block may hold"};
    if (repeated) {
      std::optional<uint8_t> value = in.u8();
      if (!value) return truncated;
      literals_.assign(static_cast<size_t>(size), std::byte{*value});
      return Done{};
    }
    std::optional<Bytes> body = in.take(size);
    if (!body) return truncated;
    literals_.assign(body->begin(), body->end());
    return Done{};
  }

  Status readFourStreams(ByteReader& in) {
    std::array<uint64_t, 3> sizes{};
    for (uint64_t& size : sizes) {
      std::optional<uint64_t> read = in.number(2);
      if (!read) return Error{"zstd: a jump table is cut off"};
      size = *read;
    }
    const size_t share = (literals_.size() + 3) / 4;
    if (share * 3 > literals_.size()) return Error{"zstd: too few literals for four streams"};
    std::span<std::byte> rest(literals_);
    for (uint64_t size : sizes) {
      std::optional<Bytes> stream = in.take(size);
      if (!stream) return Error{"zstd: a Huffman stream is cut off"};
      Status status = decodeHuffmanStream(huffman_, *stream, rest.first(share));
      if (!status) return status;
      rest = rest.subspan(share);
    }
    return decodeHuffmanStream(huffman_, in.rest(), rest);
  }

  static Error tooLarge() { return Error{"zstd: content larger than its declared size"}; }

  const uint64_t windowSize_;
  const uint64_t blockLimit_;
  std::span<std::byte> out_;
  size_t written_ = 0;
  HuffmanTable huffman_;
  SequenceState sequenceState_;
  std::vector<std::byte> literals_;
};

}  // namespace
}  // namespace zstd

Result<size_t> decompressZstd(std::span<const std::byte> in, std::span<std::byte> out) {
  ByteReader reader(in);
  Result<zstd::FrameHeader> header = zstd::readFrameHeader(reader);
  if (!header) return header.error();
  if (header->contentSize && *header->contentSize > out.size()) {
    return Error{"zstd: content larger than its declared size"};
  }
  zstd::FrameDecoder decoder(*header, out);
  Status status = decoder.decodeBlocks(reader);
  if (!status) return status.error();
  const size_t written = decoder.written();
  if (header->contentSize && *header->contentSize != written) {
    return Error{"zstd: content of another size than the frame says"};
  }
  if (header->hasChecksum) {
    std::optional<uint64_t> checksum = reader.number(4);
    if (!checksum) return Error{"zstd: the checksum is cut off"};
    if (*checksum != (xxhash64(out.first(written), 0) & 0xFFFFFFFF)) return Error{"zstd: wrong checksum"};
  }
  if (reader.remaining() != 0) return Error{"zstd: bytes after the frame"};
  return written;
}

}  // namespace millpond::softgpu
