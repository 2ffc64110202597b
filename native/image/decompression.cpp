// SPDX-License-Identifier: Apache-2.0
#include "image/decompression.h"

#include <lz4.h>
#include <zstd.h>

#include <climits>
#include <cstdint>
#include <memory>
#include <string>

#include "image/byte_reader.h"

namespace millpond::image {
namespace {

struct ContextFreed {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

Error zstdError(const char* what) { return Error{std::string("zstd: ") + what}; }

}  // namespace

Result<size_t> decompressLz4Block(std::span<const std::byte> in, std::span<std::byte> out) {
  if (in.size() > INT_MAX || out.size() > INT_MAX) return Error{"lz4: the block is larger than 2 GiB"};
  const int written = LZ4_decompress_safe(reinterpret_cast<const char*>(in.data()), reinterpret_cast<char*>(out.data()),
                                          static_cast<int>(in.size()), static_cast<int>(out.size()));
  if (written < 0) {
    return Error{"lz4: the block of " + std::to_string(in.size()) + " bytes is malformed, or does not fit into " +
                 std::to_string(out.size()) + " bytes"};
  }
  return static_cast<size_t>(written);
}

Result<size_t> decompressZstd(std::span<const std::byte> in, std::span<std::byte> out) {
  // The library may also accept formats older than 1.0, and it skips frames without data.
  if (loadLittleEndian<uint32_t>(in, 0) != ZSTD_MAGICNUMBER) return zstdError("wrong magic number");
  const size_t frameBytes = ZSTD_findFrameCompressedSize(in.data(), in.size());
  if (ZSTD_isError(frameBytes)) return zstdError(ZSTD_getErrorName(frameBytes));
  if (frameBytes != in.size()) {
    return zstdError(("there are " + std::to_string(in.size() - frameBytes) + " bytes after the frame").c_str());
  }
  const std::unique_ptr<ZSTD_DCtx, ContextFreed> context(ZSTD_createDCtx());
  if (!context) return zstdError("out of memory");
  const size_t written = ZSTD_decompressDCtx(context.get(), out.data(), out.size(), in.data(), in.size());
  if (ZSTD_isError(written)) return zstdError(ZSTD_getErrorName(written));
  return written;
}

}  // namespace millpond::image
