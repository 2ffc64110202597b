// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/arrays/textures.h"

#include <cstring>
#include <type_traits>

#include "cuda/crossing.h"

namespace millpond::worker {

CUresult Textures::onTextureCreate(const cmd::Decoded<cmd::TextureCreate>& command) {
  const auto& wanted = command.fixed;
  using Resource = CUDA_RESOURCE_DESC;
  const auto sent = Crossing<Resource>::in(wanted.resource);
  Resource resource = sent.numbers();
  CUDA_TEXTURE_DESC texture;
  CUDA_RESOURCE_VIEW_DESC view;
  static_assert(sizeof resource == sizeof wanted.resource && sizeof texture == sizeof wanted.texture &&
                sizeof view == sizeof wanted.view);
  std::memcpy(&texture, wanted.texture, sizeof texture);
  std::memcpy(&view, wanted.view, sizeof view);
  // A client may have written any number there.
  std::underlying_type_t<CUresourcetype> type = 0;
  std::memcpy(&type, &resource.resType, sizeof type);
  switch (type) {
    case CU_RESOURCE_TYPE_ARRAY:
      if (!handle(HandleKind::kArray, wanted.handle, resource.res.array.hArray)) return violation("unknown array");
      if (!resource.res.array.hArray) return CUDA_ERROR_INVALID_HANDLE;
      break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      if (!handle(HandleKind::kMipmappedArray, wanted.handle, resource.res.mipmap.hMipmappedArray))
        return violation("unknown array");
      if (!resource.res.mipmap.hMipmappedArray) return CUDA_ERROR_INVALID_HANDLE;
      break;
    case CU_RESOURCE_TYPE_LINEAR: {
      SessionRange range;
      auto& linear = resource.res.linear;
      if (linear.sizeInBytes == 0) return CUDA_ERROR_INVALID_VALUE;
      if (CUresult rc =
              addresses_.reach(sent.address<offsetof(Resource, res.linear.devPtr)>(), linear.sizeInBytes, range))
        return rc;
      linear.devPtr = range.device();
      break;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      SessionRange range;
      auto& image = resource.res.pitch2D;
      // An element has at least one byte; the padding of the last row need not exist.
      if (CUresult rc = addresses_.reach(Box{.address = sent.address<offsetof(Resource, res.pitch2D.devPtr)>(),
                                             .pitch = image.pitchInBytes,
                                             .width = image.width,
                                             .height = image.height},
                                         range))
        return rc;
      image.devPtr = range.device();
      break;
    }
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult rc = CUDA_ERROR_NOT_SUPPORTED;
  unsigned long long object = 0;
  if (wanted.isSurface && driver_.cuSurfObjectCreate) rc = driver_.cuSurfObjectCreate(&object, &resource);
  if (!wanted.isSurface && driver_.cuTexObjectCreate)
    rc = driver_.cuTexObjectCreate(&object, &resource, &texture, wanted.hasView ? &view : nullptr);
  if (rc) return rc;
  textures_[object] = {contexts_.bound(), wanted.isSurface != 0};
  reply(cmd::TextureCreateReply{object});
  return CUDA_SUCCESS;
}

CUresult Textures::onTextureDestroy(const cmd::Decoded<cmd::TextureDestroy>& command) {
  const auto found = textures_.find(command.fixed.object);
  if (found == textures_.end()) return CUDA_ERROR_INVALID_HANDLE;
  const Texture texture = found->second;
  textures_.erase(found);
  const auto finish = [this, object = command.fixed.object, isSurface = texture.isSurface](uint16_t context) {
    const uint16_t before = contexts_.bound();
    if (context && contexts_.use(context)) {
      if (isSurface)
        driver_.cuSurfObjectDestroy(object);
      else
        driver_.cuTexObjectDestroy(object);
    }
    if (before) contexts_.use(before);
  };
  frees_.end({.finish = finish, .context = texture.context});
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
