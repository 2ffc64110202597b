// SPDX-License-Identifier: Apache-2.0
// Images on their way: offered by their hash, or sent in pieces; and what is linked from several.
#include <algorithm>
#include <cstring>
#include <new>

#include "cuda/image_extent.h"
#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

/// The largest image that a session may load, and all images that it may have half sent.
constexpr uint64_t kMaxImageBytes = uint64_t{2} << 30;
constexpr size_t kMaxImages = 256;
constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxLinks = 256;

}  // namespace

CUresult Executor::onImageOffer(const cmd::Decoded<cmd::ImageOffer>& command) {
  const auto& offer = command.fixed;
  if (offer.total == 0 || offer.total > kMaxImageBytes)
    return violation("an image of " + std::to_string(offer.total) + " bytes");
  if (images_.contains(offer.handle)) return violation("an image that has begun to come is offered");
  if (images_.size() >= kMaxImages) return violation("too many images under way");
  Image& image = images_[offer.handle];
  image.announced = true;
  std::memcpy(image.hash.data(), offer.hash, image.hash.size());
  if (imageCache_) image.stored = imageCache_->find(image.hash, offer.total);
  if (image.stored) image.total = offer.total;
  reply(cmd::ImageOfferReply{.known = image.stored ? 1u : 0u});
  return CUDA_SUCCESS;
}

CUresult Executor::onImagePart(const cmd::Decoded<cmd::ImagePart>& command) {
  const auto& part = command.fixed;
  const auto data = command.tail[0];
  if (part.total == 0 || part.total > kMaxImageBytes) return violation("an image of " + std::to_string(part.total) + " bytes");
  if (images_.size() >= kMaxImages && !images_.contains(part.handle)) return violation("too many images under way");
  Image& image = images_[part.handle];
  if (image.total == 0) {
    image.total = part.total;
    image.noRoom = !counts_.take(Thing::kImageByte, part.total);
    // Room for a final zero. Memory that is only reserved costs nothing until the bytes come.
    try {
      if (!image.noRoom) image.bytes.reserve(part.total + 1);
    } catch (const std::bad_alloc&) {
      giveImage(image);
      image.noRoom = true;
    }
  }
  if (image.stored) return violation("pieces of an image that is here already");
  if (image.noRoom) return CUDA_SUCCESS;  // told when it is loaded
  if (image.total != part.total || part.offset != image.bytes.size() || data.size() > part.total - part.offset)
    return violation("a piece of an image lies outside of it");
  // Copied out of the ring before anything looks at it: the client could still change the ring.
  image.bytes.insert(image.bytes.end(), data.begin(), data.end());
  return CUDA_SUCCESS;
}

// A wrapper names its code by addresses, which are another process's: nobody sends one in good faith.
bool Executor::isWrapper(const Image& image) {
  uint32_t magic = 0;
  if (image.total >= sizeof magic) std::memcpy(&magic, image.data(), sizeof magic);
  return magic == kWrapperMagic;
}

bool Executor::takeImage(uint64_t handle, Image& image) {
  const auto found = images_.find(handle);
  if (found == images_.end() || found->second.total == 0) return false;
  if (!found->second.noRoom && !found->second.stored && found->second.bytes.size() != found->second.total) return false;
  image = std::move(found->second);
  images_.erase(found);
  if (image.stored) return true;
  giveImage(image);
  // PTX is text that must end.
  if (!image.noRoom) image.bytes.push_back(std::byte{0});
  return true;
}

void Executor::giveImage(const Image& image) {
  if (!image.noRoom && !image.stored) counts_.give(Thing::kImageByte, image.total);
}

void Executor::keepImage(Image image) {
  if (!imageCache_ || !image.announced || image.stored) return;
  image.bytes.pop_back();
  imageCache_->keep(image.hash, std::move(image.bytes));
}

// Links

CUresult Executor::onLinkCreate(const cmd::Decoded<cmd::LinkCreate>& command) {
  const uint64_t wire = command.fixed.handle;
  if (links_.size() >= kMaxLinks) return CUDA_ERROR_OUT_OF_MEMORY;
  auto link = std::make_unique<Link>();
  if (!link->options.read(command.tail[0])) return violation("options that the linker does not have");
  JitOptions& options = link->options;
  CUlinkState state = nullptr;
  if (CUresult rc = driver_.cuLinkCreate_v2(options.count(), options.ids(), options.values(), &state)) return rc;
  if (!adopt(HandleKind::kLinkState, wire, state)) return violation("the handle of a link is taken");
  links_[wire] = std::move(link);
  return CUDA_SUCCESS;
}

CUresult Executor::onLinkAdd(const cmd::Decoded<cmd::LinkAdd>& command) {
  const uint64_t wire = command.fixed.handle;
  CUlinkState state = nullptr;
  if (!handle(HandleKind::kLinkState, wire, state)) return violation("unknown link");
  Image image;
  if (!takeImage(wire, image)) return violation("an input of a link did not come");
  if (image.noRoom) return CUDA_ERROR_OUT_OF_MEMORY;
  if (isWrapper(image)) return violation("an image that names addresses");
  if (command.tail[0].size() > kMaxNameBytes) return violation("a long name");
  const std::string name(reinterpret_cast<const char*>(command.tail[0].data()), command.tail[0].size());
  JitOptions options;
  if (!options.read(command.tail[1])) return violation("options that the linker does not have");
  // The zero behind text belongs to it.
  const size_t bytes = image.total + (command.fixed.type == CU_JIT_INPUT_PTX ? 1 : 0);
  const CUresult rc =
      driver_.cuLinkAddData_v2(state, static_cast<CUjitInputType>(command.fixed.type), const_cast<std::byte*>(image.data()),
                               bytes, name.c_str(), options.count(), options.ids(), options.values());
  replyJit<cmd::LinkAddReply>(links_[wire]->options);
  keepImage(std::move(image));
  return rc;
}

CUresult Executor::onLinkComplete(const cmd::Decoded<cmd::LinkComplete>& command) {
  CUlinkState state = nullptr;
  if (!handle(HandleKind::kLinkState, command.fixed.handle, state)) return violation("unknown link");
  Link& link = *links_[command.fixed.handle];
  void* code = nullptr;
  size_t bytes = 0;
  const CUresult rc = driver_.cuLinkComplete(state, &code, &bytes);
  if (!rc) link.code = {static_cast<const std::byte*>(code), bytes};
  replyJit<cmd::LinkCompleteReply>(link.options);
  return rc;
}

CUresult Executor::onLinkRead(const cmd::Decoded<cmd::LinkRead>& command) {
  CUlinkState state = nullptr;
  if (!handle(HandleKind::kLinkState, command.fixed.handle, state)) return violation("unknown link");
  const auto code = links_[command.fixed.handle]->code;
  if (command.fixed.offset > code.size()) return violation("what was linked is not so long");
  const auto rest = code.subspan(command.fixed.offset);
  reply(cmd::LinkReadReply{.total = code.size()}, rest.first(std::min(rest.size(), wire::kChunkBytes)));
  return CUDA_SUCCESS;
}

CUresult Executor::onLinkDestroy(const cmd::Decoded<cmd::LinkDestroy>& command) {
  CUlinkState state = nullptr;
  if (!handle(HandleKind::kLinkState, command.fixed.handle, state)) return violation("unknown link");
  drop(HandleKind::kLinkState, command.fixed.handle);
  const CUresult rc = driver_.cuLinkDestroy(state);
  links_.erase(command.fixed.handle);  // the driver writes into its buffers until then
  return rc;
}

}  // namespace millpond::worker
