// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects as kernels see them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace millpond::softgpu::ptx {

/// The elements of a texture or surface, at one level of detail.
struct TextureLevel {
  uint64_t base = 0;   // device memory, which the launch's memory map includes
  uint32_t width = 1;  // elements; like the others at least 1
  uint32_t height = 1;
  uint32_t depth = 1;  // slices, or layers
  uint64_t rowBytes = 0;
  uint64_t sliceBytes = 0;  // of a slice, or of a layer
};

/// How a texture reads the elements.
struct TextureView : TextureLevel {
  enum class Channel : uint8_t { kUnsigned, kSigned, kFloat };
  /// The replacement of elements outside. kWrap and kMirror need normalized coordinates, and otherwise are kClamp.
  enum class Outside : uint8_t { kWrap, kClamp, kMirror, kBorder };

  Channel channel = Channel::kFloat;
  uint8_t channelBits = 32;  // 8, 16 or 32; of kFloat 16 or 32
  uint8_t channels = 1;      // 1, 2 or 4
  bool isCube = false;       // `depth` counts faces, six to a layer

  // For textures only.
  std::array<Outside, 3> outside{Outside::kClamp, Outside::kClamp, Outside::kClamp};
  bool isFiltered = false;    // linearly; else the nearest element is read
  bool isNormalized = false;  // coordinates run from 0 to 1
  bool readsAsFloat = false;  // integers are read as fractions of their largest value
  std::array<float, 4> border{};
  // For mipmapped textures: the levels, of which the first is this view's own, and how one is selected.
  std::shared_ptr<const std::vector<TextureLevel>> levels;
  bool isFilteredBetween = false;  // linearly; else the nearest level is read
  float levelBias = 0;
  float leastLevel = 0;
  float mostLevel = 0;

  uint32_t elementBytes() const { return uint32_t{channelBits} / 8 * channels; }
};

/// The kind of a module variable without a value of its own: kernels pass its address in place of an object.
enum class Reference : uint8_t { kNone, kTexture, kSurface };

/// The objects that kernels name by 64-bit handles. Called concurrently from many threads.
class TextureMap {
 public:
  virtual ~TextureMap() = default;
  /// False if there is no such object.
  virtual bool find(uint64_t object, TextureView& view) const = 0;
};

}  // namespace millpond::softgpu::ptx
