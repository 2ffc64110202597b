// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/modules/images.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "cuda/image_extent.h"

namespace millpond::worker {
namespace {

/// Limit of an image of a session, and of all images in transfer.
constexpr uint64_t kMaxImageBytes = uint64_t{2} << 30;
constexpr size_t kMaxImages = 256;

}  // namespace

CUresult Images::onImageOffer(const cmd::Decoded<cmd::ImageOffer>& command) {
  const auto& offer = command.fixed;
  if (offer.total == 0 || offer.total > kMaxImageBytes)
    return violation("an image of " + std::to_string(offer.total) + " bytes");
  if (images_.contains(offer.handle)) return violation("an image in transfer is offered again");
  if (images_.size() >= kMaxImages) return violation("too many images in transfer");
  Image& image = images_[offer.handle];
  image.announced = true;
  std::memcpy(image.hash.data(), offer.hash, image.hash.size());
  if (cache_ && charge(image, offer.total)) image.stored = cache_->find(image.hash, offer.total);
  if (image.stored)
    image.total = offer.total;
  else
    image.charge = {};
  reply(cmd::ImageOfferReply{.known = image.stored ? 1u : 0u});
  return CUDA_SUCCESS;
}

bool Images::charge(Image& image, uint64_t bytes) {
  image.charge = HostCharge(counts_);
  if (image.charge.set(bytes)) return true;
  if (written_.bytes() == 0) return false;
  cache_->settle();
  written_ = {};
  return image.charge.set(bytes);
}

CUresult Images::onImagePart(const cmd::Decoded<cmd::ImagePart>& command) {
  const auto& part = command.fixed;
  const auto data = command.tail[0];
  if (part.total == 0 || part.total > kMaxImageBytes)
    return violation("an image of " + std::to_string(part.total) + " bytes");
  if (images_.size() >= kMaxImages && !images_.contains(part.handle)) return violation("too many images in transfer");
  Image& image = images_[part.handle];
  if (image.total == 0) {
    image.total = part.total;
    image.noRoom = !counts_.take(Thing::kImageByte, part.total);
    if (!image.noRoom && !charge(image, part.total)) {
      giveImage(image);
      image.noRoom = true;
    }
    // Room for a terminating zero. Reserved memory costs nothing until the bytes arrive.
    try {
      if (!image.noRoom) image.bytes.reserve(part.total + 1);
    } catch (const std::bad_alloc&) {
      giveImage(image);
      image.charge = {};
      image.noRoom = true;
    }
  }
  if (image.stored) return violation("pieces of an image that is already complete");
  if (image.noRoom) return CUDA_SUCCESS;  // reported when it is loaded
  if (image.total != part.total || part.offset != image.bytes.size() || data.size() > part.total - part.offset)
    return violation("a piece of an image lies outside of it");
  // Copied out of the ring before it is parsed, because the client could still change the ring.
  image.bytes.insert(image.bytes.end(), data.begin(), data.end());
  return CUDA_SUCCESS;
}

// A wrapper holds addresses of another process: our clients never send one.
bool Images::isWrapper(const Image& image) {
  uint32_t magic = 0;
  if (image.total >= sizeof magic) std::memcpy(&magic, image.data(), sizeof magic);
  return magic == kWrapperMagic;
}

bool Images::take(uint64_t handle, Image& image) {
  const auto found = images_.find(handle);
  if (found == images_.end() || found->second.total == 0) return false;
  if (!found->second.noRoom && !found->second.stored && found->second.bytes.size() != found->second.total) return false;
  image = std::move(found->second);
  images_.erase(found);
  if (image.stored) return true;
  giveImage(image);
  // PTX is text that must be terminated.
  if (!image.noRoom) image.bytes.push_back(std::byte{0});
  return true;
}

void Images::giveImage(const Image& image) {
  if (!image.noRoom && !image.stored) counts_.give(Thing::kImageByte, image.total);
}

void Images::keep(Image image) {
  if (!cache_ || !image.announced || image.stored) return;
  image.bytes.pop_back();
  cache_->keep(image.hash, std::move(image.bytes));
  // The bytes of the previous image have been written.
  written_ = std::move(image.charge);
}

}  // namespace millpond::worker
