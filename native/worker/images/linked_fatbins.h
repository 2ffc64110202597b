// SPDX-License-Identifier: Apache-2.0
// Device code linked from several files (nvcc -rdc=true), in the driver's form: a wrapper that names its fatbins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "cuda/image_extent.h"

namespace millpond::worker {

class LinkedFatbins {
 public:
  /// `places`: the offset of each fatbin in the image (u64). Returns false if one is wrong. Without places there is no
  /// wrapper.
  bool read(std::span<const std::byte> places, const std::byte* image, uint64_t imageBytes) {
    if (places.size() % sizeof(uint64_t) || places.size() > kMaxFatbins * sizeof(uint64_t)) return false;
    std::vector<uint64_t> offsets(places.size() / sizeof(uint64_t));
    if (!offsets.empty()) std::memcpy(offsets.data(), places.data(), places.size());
    for (const uint64_t offset : offsets) {
      Header header;
      if (offset % 8 || offset > imageBytes || imageBytes - offset < sizeof header) return false;
      std::memcpy(&header, image + offset, sizeof header);
      if (header.magic != kFatbinMagic || header.headerBytes > imageBytes - offset ||
          header.bodyBytes > imageBytes - offset - header.headerBytes)
        return false;
      fatbins_.push_back(image + offset);
      parts_.emplace_back(image + offset, header.headerBytes + header.bodyBytes);
    }
    if (fatbins_.empty()) return true;
    fatbins_.push_back(nullptr);
    wrapper_ = {kWrapperMagic, 2, fatbins_.front(), fatbins_.data() + 1};
    return true;
  }
  /// The image for the driver; nullptr if the image needs no wrapper.
  const void* wrapper() const { return fatbins_.empty() ? nullptr : &wrapper_; }
  const std::vector<std::span<const std::byte>>& parts() const { return parts_; }

 private:
  static constexpr size_t kMaxFatbins = 4096;
  struct Header {
    uint32_t magic;
    uint16_t version;
    uint16_t headerBytes;
    uint64_t bodyBytes;
  };
  struct Wrapper {
    uint32_t magic;
    uint32_t version;
    const std::byte* linked;
    const std::byte* const* others;  ///< ended by a null pointer
  };

  std::vector<const std::byte*> fatbins_;
  std::vector<std::span<const std::byte>> parts_;
  Wrapper wrapper_{};
};

}  // namespace millpond::worker
