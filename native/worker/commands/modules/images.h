// SPDX-License-Identifier: Apache-2.0
// Images in transfer: offered by their hash, or sent in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/sha256.h"
#include "worker/core/claim_counts.h"
#include "worker/core/host_charge.h"
#include "worker/core/session_part.h"
#include "worker/images/image_cache.h"

namespace millpond::worker {

/// An image in transfer.
struct Image {
  std::vector<std::byte> bytes;
  uint64_t total = 0;
  bool noRoom = false;  ///< this host does not have enough memory
  bool announced = false;
  Sha256 hash{};                      ///< as announced
  std::optional<StoredImage> stored;  ///< in place of the bytes
  HostCharge charge{};                ///< of the bytes, or of those in their place

  const std::byte* data() const { return stored ? stored->data() : bytes.data(); }
};

class Images : private SessionPart {
 public:
  Images(SessionCore& session, ClaimCounts& counts, ImageCache* cache)
      : SessionPart(session), counts_(counts), cache_(cache) {}

  bool empty() const { return images_.empty(); }

  static bool isWrapper(const Image& image);
  /// The complete image received for a handle.
  bool take(uint64_t handle, Image& image);
  /// Stores an image that was announced by its hash for the next session.
  void keep(Image image);
  /// Called when the session is idle.
  void rest() {
    if (written_.bytes() != 0 && !cache_->isStoring()) written_ = {};
  }

  CUresult onImageOffer(const cmd::Decoded<cmd::ImageOffer>& command);
  CUresult onImagePart(const cmd::Decoded<cmd::ImagePart>& command);

 private:
  /// Its bytes are no longer in transfer.
  void giveImage(const Image& image);
  /// Charges the bytes of an image, if necessary after a stored one has been written.
  bool charge(Image& image, uint64_t bytes);

  ClaimCounts& counts_;
  ImageCache* cache_;
  HostCharge written_;  ///< of the image that the cache may still write
  std::unordered_map<uint64_t, Image> images_;
};

}  // namespace millpond::worker
