// SPDX-License-Identifier: Apache-2.0
#include "image/fatbin.h"

#include "image/decompression.h"

namespace millpond::image {
namespace {

constexpr uint64_t kFlagLz4 = 0x2000;
constexpr uint64_t kFlagZstd = 0x8000;
constexpr size_t kSmallestEntryHeader = 64;

// Offsets of the fields inside an entry's header.
constexpr size_t kEntryKind = 0;
constexpr size_t kEntryHeaderSize = 4;
constexpr size_t kEntryPayloadSize = 8;
constexpr size_t kEntryCompressedSize = 16;
constexpr size_t kEntryArch = 28;
constexpr size_t kEntryFlags = 40;
constexpr size_t kEntryUncompressedSize = 56;

}  // namespace

Result<std::vector<FatbinEntry>> readFatbin(Bytes fatbin) {
  ByteReader reader(fatbin);
  std::optional<uint64_t> magic = reader.number(4);
  std::optional<uint64_t> version = reader.number(2);
  std::optional<uint64_t> headerSize = reader.number(2);
  std::optional<uint64_t> bodySize = reader.number(8);
  if (!magic || !version || !headerSize || !bodySize) return Error{"fatbin: the header is cut off"};
  if (*magic != kFatbinMagic) return Error{"fatbin: wrong magic number"};
  if (*version != 1 || *headerSize < kFatbinHeaderSize) {
    return Error{"fatbin: version " + std::to_string(*version) + " is not known"};
  }
  if (!reader.take(*headerSize - kFatbinHeaderSize)) return Error{"fatbin: the header is cut off"};
  std::optional<Bytes> body = reader.take(*bodySize);
  if (!body) return Error{"fatbin: the body is cut off"};

  std::vector<FatbinEntry> entries;
  Bytes rest = *body;
  while (!rest.empty()) {
    if (rest.size() < kSmallestEntryHeader) return Error{"fatbin: an entry's header is cut off"};
    const auto kind = *loadLittleEndian<uint16_t>(rest, kEntryKind);
    const auto entryHeaderSize = *loadLittleEndian<uint32_t>(rest, kEntryHeaderSize);
    const auto payloadSize = *loadLittleEndian<uint64_t>(rest, kEntryPayloadSize);
    const auto compressedSize = *loadLittleEndian<uint32_t>(rest, kEntryCompressedSize);
    if (entryHeaderSize < kSmallestEntryHeader || entryHeaderSize > rest.size()) {
      return Error{"fatbin: an entry's header has an impossible size"};
    }
    if (payloadSize > rest.size() - entryHeaderSize) return Error{"fatbin: an entry's payload is cut off"};
    Bytes payload = rest.subspan(entryHeaderSize, static_cast<size_t>(payloadSize));
    if (compressedSize > payload.size()) return Error{"fatbin: an entry's payload is cut off"};
    if (compressedSize > 0) payload = payload.first(compressedSize);
    entries.push_back({static_cast<FatbinKind>(kind), *loadLittleEndian<uint32_t>(rest, kEntryArch),
                       *loadLittleEndian<uint64_t>(rest, kEntryFlags), payload,
                       compressedSize > 0 ? *loadLittleEndian<uint64_t>(rest, kEntryUncompressedSize) : 0});
    rest = rest.subspan(entryHeaderSize + static_cast<size_t>(payloadSize));
  }
  return entries;
}

Result<std::string> readFatbinEntry(const FatbinEntry& entry) {
  const bool isCompressed = entry.flags & (kFlagLz4 | kFlagZstd);
  const uint64_t size = isCompressed ? entry.uncompressedSize : entry.payload.size();
  if (size > kLargestPtx) {
    return Error{"fatbin: an entry of " + std::to_string(size) + " bytes is larger than the limit of " +
                 std::to_string(kLargestPtx)};
  }
  if (!isCompressed) return std::string(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size());

  std::string content(static_cast<size_t>(size), '\0');
  std::span<std::byte> out = std::as_writable_bytes(std::span(content));
  Result<size_t> written =
      entry.flags & kFlagZstd ? decompressZstd(entry.payload, out) : decompressLz4Block(entry.payload, out);
  if (!written) return written.error();
  if (*written != content.size()) {
    return Error{"fatbin: an entry decompresses to " + std::to_string(*written) + " bytes instead of " +
                 std::to_string(content.size())};
  }
  return content;
}

}  // namespace millpond::image
