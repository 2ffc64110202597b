// SPDX-License-Identifier: Apache-2.0
// Images on their way: offered by their hash, or sent in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/sha256.h"
#include "worker/core/claim_counts.h"
#include "worker/core/session_part.h"
#include "worker/images/image_cache.h"

namespace millpond::worker {

/// An image on its way.
struct Image {
  std::vector<std::byte> bytes;
  uint64_t total = 0;
  bool noRoom = false;  ///< this host has not that much memory
  bool announced = false;
  Sha256 hash{};                      ///< as announced
  std::optional<StoredImage> stored;  ///< in place of the bytes

  const std::byte* data() const { return stored ? stored->data() : bytes.data(); }
};

class Images : private SessionPart {
 public:
  Images(SessionCore& session, ClaimCounts& counts, ImageCache* cache)
      : SessionPart(session), counts_(counts), cache_(cache) {}

  bool empty() const { return images_.empty(); }

  static bool isWrapper(const Image& image);
  /// The whole image that came for a handle.
  bool take(uint64_t handle, Image& image);
  /// Puts an image that was announced by its hash where the next session finds it.
  void keep(Image image);

  CUresult onImageOffer(const cmd::Decoded<cmd::ImageOffer>& command);
  CUresult onImagePart(const cmd::Decoded<cmd::ImagePart>& command);

 private:
  /// Its bytes are under way no more.
  void giveImage(const Image& image);

  ClaimCounts& counts_;
  ImageCache* cache_;
  std::unordered_map<uint64_t, Image> images_;
};

}  // namespace millpond::worker
