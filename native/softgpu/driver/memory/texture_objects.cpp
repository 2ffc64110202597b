// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/memory/texture_objects.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "softgpu/driver/model/device.h"

namespace millpond::softgpu {
namespace {

using View = ptx::TextureView;

CUresult describeElements(CUarray_format format, unsigned channels, View* view) {
  const uint64_t bytes = elementBytes(format, channels);
  if (channels != 1 && channels != 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) return CUDA_ERROR_NOT_SUPPORTED;
  view->channels = static_cast<uint8_t>(channels);
  view->channelBits = static_cast<uint8_t>(bytes / channels * 8);
  switch (format) {
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_FLOAT: view->channel = View::Channel::kFloat; return CUDA_SUCCESS;
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT32: view->channel = View::Channel::kSigned; return CUDA_SUCCESS;
    default: view->channel = View::Channel::kUnsigned; return CUDA_SUCCESS;
  }
}

/// False for an invalid mode.
bool convert(CUaddress_mode mode, View::Outside* outside) {
  switch (mode) {
    case CU_TR_ADDRESS_MODE_WRAP: *outside = View::Outside::kWrap; return true;
    case CU_TR_ADDRESS_MODE_CLAMP: *outside = View::Outside::kClamp; return true;
    case CU_TR_ADDRESS_MODE_MIRROR: *outside = View::Outside::kMirror; return true;
    case CU_TR_ADDRESS_MODE_BORDER: *outside = View::Outside::kBorder; return true;
  }
  return false;
}

}  // namespace

unsigned long long TextureObjects::add(const TextureObject& object) {
  auto kept = std::make_shared<const TextureObject>(object);
  std::unique_lock lock(mutex_);
  objects_.emplace(++last_, std::move(kept));
  return last_;
}

std::shared_ptr<const TextureObject> TextureObjects::get(unsigned long long number, bool isSurface) const {
  std::shared_lock lock(mutex_);
  const auto found = objects_.find(number);
  return found != objects_.end() && found->second->isSurface == isSurface ? found->second : nullptr;
}

bool TextureObjects::remove(unsigned long long number, bool isSurface) {
  std::unique_lock lock(mutex_);
  const auto found = objects_.find(number);
  if (found == objects_.end() || found->second->isSurface != isSurface) return false;
  objects_.erase(found);
  return true;
}

void TextureObjects::removeOwnedBy(uint64_t context) {
  std::unique_lock lock(mutex_);
  std::erase_if(objects_, [context](const auto& entry) { return entry.second->context == context; });
}

bool TextureObjects::find(uint64_t number, View& view) const {
  std::shared_lock lock(mutex_);
  const auto found = objects_.find(number);
  if (found == objects_.end()) return false;
  view = found->second->view;
  return true;
}

CUresult viewOfArray(const Array& array, View* view) {
  const CUDA_ARRAY3D_DESCRIPTOR& descriptor = array.descriptor;
  view->base = array.base;
  view->width = static_cast<uint32_t>(descriptor.Width);
  view->height = static_cast<uint32_t>(array.rows());
  view->depth = static_cast<uint32_t>(array.slices());
  view->rowBytes = array.rowBytes();
  view->sliceBytes = array.rowBytes() * array.rows();
  view->isCube = (descriptor.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
  return describeElements(descriptor.Format, descriptor.NumChannels, view);
}

CUresult viewOfMemory(const CUDA_RESOURCE_DESC& resource, View* view) {
  constexpr uint64_t kMostElements = uint64_t{1} << 27;
  const bool isLine = resource.resType == CU_RESOURCE_TYPE_LINEAR;
  const auto& line = resource.res.linear;
  const auto& plane = resource.res.pitch2D;
  const CUresult result = isLine ? describeElements(line.format, line.numChannels, view)
                                 : describeElements(plane.format, plane.numChannels, view);
  if (result) return result;
  view->base = isLine ? line.devPtr : plane.devPtr;
  if (view->base % kTextureAlignment != 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t width = isLine ? line.sizeInBytes / view->elementBytes() : plane.width;
  const uint64_t height = isLine ? 1 : plane.height;
  if (width == 0 || height == 0 || width > kMostElements || height > kMostElements) return CUDA_ERROR_INVALID_VALUE;
  view->width = static_cast<uint32_t>(width);
  view->height = static_cast<uint32_t>(height);
  view->rowBytes = isLine ? width * view->elementBytes() : plane.pitchInBytes;
  if (!isLine &&
      (plane.pitchInBytes % kTexturePitchAlignment != 0 || plane.pitchInBytes < width * view->elementBytes()))
    return CUDA_ERROR_INVALID_VALUE;
  return __builtin_mul_overflow(view->rowBytes, height, &view->sliceBytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult viewOfLevels(const MipmappedArray& all, View* view) {
  if (CUresult result = viewOfArray(*all.levels.front(), view)) return result;
  std::vector<ptx::TextureLevel> levels;
  for (const auto& each : all.levels) {
    View level;
    if (CUresult result = viewOfArray(*each, &level)) return result;
    levels.push_back(level);
  }
  view->levels = std::make_shared<const std::vector<ptx::TextureLevel>>(std::move(levels));
  return CUDA_SUCCESS;
}

namespace {
/// A texture stores the colour of its border as one of its elements, so values that do not fit are clipped.
float borderOf(const View& view, float wanted) {
  if (!view.readsAsFloat) return wanted;
  const bool isSigned = view.channel == View::Channel::kSigned;
  const auto largest = static_cast<float>((1u << (view.channelBits - (isSigned ? 1u : 0u))) - 1);
  return std::trunc(std::clamp(wanted, isSigned ? -1.0f : 0.0f, 1.0f) * largest) / largest;
}

CUresult applyLevels(const CUDA_TEXTURE_DESC& texture, View* view) {
  if (!view->isNormalized) return CUDA_ERROR_INVALID_VALUE;
  if (texture.mipmapFilterMode != CU_TR_FILTER_MODE_POINT && texture.mipmapFilterMode != CU_TR_FILTER_MODE_LINEAR)
    return CUDA_ERROR_INVALID_VALUE;
  // Anisotropic filtering takes several samples for one, and selects mipmap levels by another rule.
  if (texture.maxAnisotropy > 1) return CUDA_ERROR_NOT_SUPPORTED;
  view->isFilteredBetween = texture.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
  view->levelBias = texture.mipmapLevelBias;
  view->leastLevel = texture.minMipmapLevelClamp;
  view->mostLevel = texture.maxMipmapLevelClamp;
  return CUDA_SUCCESS;
}
}  // namespace

CUresult applySampling(const CUDA_TEXTURE_DESC& texture, View* view) {
  constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                              CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP;
  if (texture.flags & ~kKnown) return CUDA_ERROR_INVALID_VALUE;
  if (texture.flags & CU_TRSF_SRGB) return CUDA_ERROR_NOT_SUPPORTED;
  for (size_t d = 0; d < 3; ++d)
    if (!convert(texture.addressMode[d], &view->outside[d])) return CUDA_ERROR_INVALID_VALUE;
  if (texture.filterMode != CU_TR_FILTER_MODE_POINT && texture.filterMode != CU_TR_FILTER_MODE_LINEAR)
    return CUDA_ERROR_INVALID_VALUE;
  const bool isFloat = view->channel == View::Channel::kFloat;
  view->isFiltered = texture.filterMode == CU_TR_FILTER_MODE_LINEAR;
  view->isNormalized = (texture.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  view->readsAsFloat = !isFloat && view->channelBits < 32 && !(texture.flags & CU_TRSF_READ_AS_INTEGER);
  // No value lies between two integers.
  if (view->isFiltered && !isFloat && !view->readsAsFloat) return CUDA_ERROR_INVALID_VALUE;
  if (view->levels) {
    if (CUresult result = applyLevels(texture, view)) return result;
  }
  for (size_t c = 0; c < view->border.size(); ++c) view->border[c] = borderOf(*view, texture.borderColor[c]);
  // Each face is filtered separately.
  if (view->isCube && view->isFiltered && (texture.flags & CU_TRSF_SEAMLESS_CUBEMAP)) return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

CUDA_TEXTURE_DESC samplingOfLine(const CUDA_TEXTURE_DESC& wanted) {
  CUDA_TEXTURE_DESC out{};
  std::fill(std::begin(out.addressMode), std::end(out.addressMode), CU_TR_ADDRESS_MODE_BORDER);
  out.flags = wanted.flags & ~static_cast<unsigned>(CU_TRSF_NORMALIZED_COORDINATES);
  return out;
}

bool isPlainView(const CUDA_RESOURCE_VIEW_DESC& wanted, const View& view) {
  // In the order of CUresourceViewFormat: unsigned and signed of 8, 16 and 32 bits, floats of 16 and 32, of 1, 2, 4 each.
  const unsigned bits = view.channelBits == 8 ? 0u : view.channelBits == 16 ? 1u : 2u;
  const unsigned family = view.channel == View::Channel::kFloat    ? 5 + bits
                          : view.channel == View::Channel::kSigned ? bits * 2 + 1
                                                                   : bits * 2;
  const unsigned format = 1 + family * 3 + view.channels / 2u;
  const bool hasSize = wanted.width == view.width && std::max<size_t>(wanted.height, 1) == view.height &&
                       std::max<size_t>(wanted.depth, 1) == view.depth;
  return static_cast<unsigned>(wanted.format) == format && hasSize && wanted.firstMipmapLevel == 0 &&
         (wanted.lastMipmapLevel == (view.levels ? view.levels->size() - 1 : 0)) && wanted.firstLayer == 0 &&
         (wanted.lastLayer == 0 || wanted.lastLayer == view.depth - 1);
}

}  // namespace millpond::softgpu
