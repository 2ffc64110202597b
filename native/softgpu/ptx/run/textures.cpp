// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/run/textures.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "softgpu/ptx/run/block.h"

namespace millpond::softgpu::ptx {
namespace {

uint64_t& laneOf(const Context& context, uint32_t operand, uint32_t lane) {
  std::byte* base = context.bases[operand >> 31] + (operand & ~kConstant);
  return reinterpret_cast<uint64_t*>(base)[lane];
}

/// A 16-bit float, widened.
float fromHalf(uint32_t bits) {
  const uint32_t exponent = bits >> 10 & 31;
  const uint32_t fraction = bits & 0x3ff;
  float value = 0;
  if (exponent == 31)
    value = std::bit_cast<float>(0x7f800000u | fraction << 13);
  else if (exponent == 0)
    value = std::ldexp(static_cast<float>(fraction), -24);
  else
    value = std::ldexp(static_cast<float>(fraction | 0x400), static_cast<int>(exponent) - 25);
  return bits & 0x8000 ? -value : value;
}

/// The four values of an element: bits of floats or integers, as the texture reads.
using Texel = std::array<uint32_t, 4>;

constexpr uint32_t kFaces = 6;

/// Where a direction meets the cube around the origin: the face, and the place on it from 0 to 1.
struct FacePlace {
  uint32_t face;
  float at[2];
};
FacePlace faceOf(const uint32_t* direction) {
  float axis[3];
  for (uint32_t k = 0; k < 3; ++k) axis[k] = std::bit_cast<float>(direction[k]);
  const float x = std::fabs(axis[0]), y = std::fabs(axis[1]), z = std::fabs(axis[2]);
  const uint32_t longest = z >= x && z >= y ? 2 : y >= x ? 1 : 0;
  const bool isBehind = std::signbit(axis[longest]);
  const float turn = isBehind ? -1.0f : 1.0f;
  const float across[3] = {-turn * axis[2], axis[0], turn * axis[0]};
  const float down[3] = {-axis[1], turn * axis[2], -axis[1]};
  const float length = std::fabs(axis[longest]);
  const auto place = [&](float along) { return (along / length + 1) / 2; };
  return {2 * longest + (isBehind ? 1 : 0), {place(across[longest]), place(down[longest])}};
}

/// One lane's access.
class Accessor {
 public:
  Accessor(Context& context, const TextureView& view, const TextureForm& form)
      : context_(context), view_(view), form_(form) {}

  bool isBad() const { return isBad_; }
  uint64_t badAddress() const { return badAddress_; }

  /// `level`: of detail, where the texture has several.
  Texel sample(const uint32_t* coordinates, float level) {
    if (!view_.levels) return sampleOne(coordinates);
    const float last = static_cast<float>(view_.levels->size() - 1);
    const float chosen =
        std::clamp(std::clamp(level, view_.leastLevel, std::max(view_.leastLevel, view_.mostLevel)), 0.0f, last);
    if (!view_.isFilteredBetween || !readsFloats()) return sampleAt(std::floor(chosen + 0.5f), coordinates);
    const float below = std::floor(chosen);
    // A card keeps 8 bits of the fraction here, too.
    const double share = std::floor((static_cast<double>(chosen) - static_cast<double>(below)) * 256) / 256;
    Texel out = sampleAt(below, coordinates);
    if (share == 0) return out;
    const Texel next = sampleAt(below + 1, coordinates);
    for (size_t c = 0; c < out.size(); ++c) {
      const double low = static_cast<double>(std::bit_cast<float>(out[c]));
      const double high = static_cast<double>(std::bit_cast<float>(next[c]));
      out[c] = std::bit_cast<uint32_t>(static_cast<float>(low + share * (high - low)));
    }
    return out;
  }

  /// The level at which neighbours of the screen are neighbours in the texture: `by` says how far they are apart.
  float levelOf(const float (&by)[2][2]) const {
    float longest = 0;
    for (const auto& step : by) {
      float square = 0;
      for (uint32_t d = 0; d < form_.dimensions && d < 2; ++d) {
        const float texels = step[d] * static_cast<float>(extent(d));
        square += texels * texels;
      }
      longest = std::max(longest, square);
    }
    // As far as a card knows it: roots of two are not left to rounding.
    return std::round(std::log2(longest) / 2 * 256) / 256;
  }

  Texel sampleOne(const uint32_t* coordinates) {
    const uint32_t* at = coordinates + (form_.isLayered ? 1 : 0);
    uint32_t onFace[2];
    if (form_.isLayered) layer_ = std::min(coordinates[0], view_.depth / (form_.isCube ? kFaces : 1) - 1);
    if (form_.isCube) {
      if (!view_.isCube) return {};
      const FacePlace place = faceOf(at);
      layer_ = layer_ * kFaces + place.face;
      for (uint32_t d = 0; d < 2; ++d) onFace[d] = std::bit_cast<uint32_t>(place.at[d]);
      at = onFace;
    }
    int64_t low[3] = {0, 0, 0};
    float share[3] = {0, 0, 0};  // of the next element
    const bool isFiltered = form_.op == TextureOp::kGather || (view_.isFiltered && !form_.hasIntegers);
    for (uint32_t d = 0; d < form_.dimensions; ++d) {
      if (form_.hasIntegers) {
        low[d] = static_cast<int32_t>(at[d]);
        continue;
      }
      float x = std::bit_cast<float>(at[d]);
      if (view_.isNormalized || form_.isCube) x *= static_cast<float>(extent(d));
      if (isFiltered) x -= 0.5f;
      // Far outside is as good as just outside.
      if (std::isnan(x)) x = 0;
      const float whole = std::clamp(std::floor(x), -1e9f, 1e9f);
      low[d] = static_cast<int64_t>(whole);
      // A card keeps 8 bits of the fraction.
      if (isFiltered) share[d] = std::round((std::clamp(x - whole, 0.0f, 1.0f)) * 256.0f) / 256.0f;
    }
    if (form_.op == TextureOp::kGather) return gather(low);
    if (!isFiltered || !readsFloats()) return fetch(low);
    std::array<double, 4> sum{};
    for (uint32_t corner = 0; corner < 1u << form_.dimensions; ++corner) {
      int64_t place[3] = {low[0], low[1], low[2]};
      double weight = 1;
      for (uint32_t d = 0; d < form_.dimensions; ++d) {
        const bool isNext = corner >> d & 1;
        place[d] += isNext ? 1 : 0;
        weight *= static_cast<double>(isNext ? share[d] : 1 - share[d]);
      }
      if (weight == 0) continue;
      const Texel texel = fetch(place);
      for (size_t c = 0; c < 4; ++c) sum[c] += weight * static_cast<double>(std::bit_cast<float>(texel[c]));
    }
    // To a card a line is the first row of a plane, at its edge.
    if (form_.dimensions == 1 && !form_.isLayered && view_.outside[1] == TextureView::Outside::kBorder) {
      for (size_t c = 0; c < 4; ++c) sum[c] = (sum[c] + static_cast<double>(view_.border[c])) / 2;
    }
    Texel out{};
    for (size_t c = 0; c < 4; ++c) out[c] = std::bit_cast<uint32_t>(mixed(sum[c]));
    return out;
  }

  /// Loads into `words`, or stores them: 128 bits, in registers of TextureForm::registerBits().
  void surface(const uint32_t* coordinates, uint64_t* words) {
    const uint32_t* at = coordinates + (form_.isLayered ? 1 : 0);
    const bool isStore = form_.op == TextureOp::kStore;
    const int64_t bytes = int64_t{form_.bits} / 8 * form_.count;
    const int64_t limits[3] = {int64_t{view_.width} * view_.elementBytes() - bytes, int64_t{view_.height} - 1,
                               int64_t{view_.depth} - 1};
    int64_t place[3] = {0, 0, 0};
    bool isOutside = limits[0] < 0;
    auto put = [&](uint32_t d, uint32_t coordinate) {
      place[d] = static_cast<int32_t>(coordinate);
      if (place[d] >= 0 && place[d] <= limits[d]) return;
      if (form_.boundary != Boundary::kClamp) isOutside = true;
      // Clamped to the last access that begins where an element does.
      place[d] = std::clamp<int64_t>(place[d], 0, std::max<int64_t>(limits[d], 0));
    };
    for (uint32_t d = 0; d < form_.dimensions; ++d) put(d, at[d]);
    if (form_.isLayered) put(2, coordinates[0]);
    if (!isStore) words[0] = words[1] = 0;
    if (isOutside) {
      if (form_.boundary == Boundary::kTrap || limits[0] < 0) isTrapped_ = true;
      return;
    }
    std::byte* memory = locate(place[0], place[1], place[2], static_cast<uint32_t>(bytes), isStore);
    if (!memory) return;
    const uint32_t perElement = form_.bits / 8u;
    const uint32_t perRegister = form_.registerBits() / 8;
    auto* registers = reinterpret_cast<std::byte*>(words);
    for (uint32_t k = 0; k < form_.count; ++k) {
      if (isStore)
        std::memcpy(memory + k * perElement, registers + k * perRegister, perElement);
      else
        std::memcpy(registers + k * perRegister, memory + k * perElement, perElement);
    }
  }
  bool isTrapped() const { return isTrapped_; }

 private:
  Texel sampleAt(float level, const uint32_t* coordinates) {
    TextureView view = view_;
    static_cast<TextureLevel&>(view) = (*view_.levels)[static_cast<size_t>(level)];
    view.levels = nullptr;
    Accessor accessor(context_, view, form_);
    const Texel out = accessor.sampleOne(coordinates);
    if (accessor.isBad_ && !isBad_) badAddress_ = accessor.badAddress_;
    isBad_ |= accessor.isBad_;
    return out;
  }

  uint32_t extent(uint32_t d) const { return d == 0 ? view_.width : d == 1 ? view_.height : view_.depth; }
  bool readsFloats() const { return view_.channel == TextureView::Channel::kFloat || view_.readsAsFloat; }

  /// The value of the sum of weighted elements.
  float mixed(double sum) const {
    const bool isByte =
        view_.readsAsFloat && view_.channelBits == 8 && view_.channel == TextureView::Channel::kUnsigned;
    if (!isByte) return static_cast<float>(sum);
    // A card mixes bytes to 16 bits, and rounds halves up; the elements' own rounding must not decide about a half.
    constexpr double kLargest = 65535;
    constexpr double kPart = 1 << 16;
    const double exact = std::round(sum * kLargest * kPart) / kPart;
    return static_cast<float>(std::floor(exact + 0.5) / kLargest);
  }

  /// False where the border stands for the element.
  bool inside(uint32_t d, int64_t& place) const {
    const int64_t count = extent(d);
    if (place >= 0 && place < count) return true;
    // Beyond the edge of a face lies nothing of it.
    TextureView::Outside outside = form_.isCube ? TextureView::Outside::kClamp : view_.outside[d];
    const bool repeats = outside == TextureView::Outside::kWrap || outside == TextureView::Outside::kMirror;
    if (repeats && !view_.isNormalized) outside = TextureView::Outside::kClamp;
    switch (outside) {
      case TextureView::Outside::kBorder: return false;
      case TextureView::Outside::kClamp: place = std::clamp<int64_t>(place, 0, count - 1); return true;
      case TextureView::Outside::kWrap: place = (place % count + count) % count; return true;
      case TextureView::Outside::kMirror:
        place = (place % (2 * count) + 2 * count) % (2 * count);
        if (place >= count) place = 2 * count - 1 - place;
        return true;
    }
    return false;
  }

  Texel border() const {
    Texel out{};
    for (size_t c = 0; c < 4; ++c)
      out[c] = readsFloats() ? std::bit_cast<uint32_t>(view_.border[c])
                             : static_cast<uint32_t>(static_cast<int64_t>(view_.border[c]));
    return out;
  }

  Texel fetch(const int64_t* from) {
    int64_t place[3] = {from[0], from[1], from[2]};
    for (uint32_t d = 0; d < form_.dimensions; ++d) {
      if (!inside(d, place[d])) return border();
    }
    const int64_t slice = form_.isLayered || form_.isCube ? int64_t{layer_} : place[2];
    const std::byte* memory = locate(place[0] * view_.elementBytes(), place[1], slice, view_.elementBytes(), false);
    Texel out{0, 0, 0, readsFloats() ? std::bit_cast<uint32_t>(1.0f) : 1u};
    if (!memory) return out;
    for (uint32_t c = 0; c < view_.channels; ++c) {
      uint32_t bits = 0;
      std::memcpy(&bits, memory + c * (view_.channelBits / 8u), view_.channelBits / 8u);
      out[c] = value(bits);
    }
    return out;
  }

  uint32_t value(uint32_t bits) const {
    const uint32_t unused = 32u - view_.channelBits;
    if (view_.channel == TextureView::Channel::kFloat)
      return view_.channelBits == 16 ? std::bit_cast<uint32_t>(fromHalf(bits)) : bits;
    if (view_.channel == TextureView::Channel::kUnsigned) {
      if (!view_.readsAsFloat) return bits;
      const double largest = UINT32_MAX >> unused;
      return std::bit_cast<uint32_t>(static_cast<float>(static_cast<double>(bits) / largest));
    }
    const int32_t number = static_cast<int32_t>(bits << unused) >> unused;
    if (!view_.readsAsFloat) return static_cast<uint32_t>(number);
    const double largest = INT32_MAX >> unused;
    return std::bit_cast<uint32_t>(static_cast<float>(std::max(static_cast<double>(number) / largest, -1.0)));
  }

  /// One channel of the four elements around, counter-clockwise from the lower left one.
  Texel gather(const int64_t* low) {
    static constexpr int64_t kCorners[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    Texel out{};
    for (size_t k = 0; k < 4; ++k) {
      const int64_t place[3] = {low[0] + kCorners[k][0], low[1] + kCorners[k][1], low[2]};
      out[k] = fetch(place)[form_.component];
    }
    return out;
  }

  std::byte* locate(int64_t x, int64_t y, int64_t z, uint32_t bytes, bool isWrite) {
    const uint64_t address = view_.base + static_cast<uint64_t>(z) * view_.sliceBytes +
                             static_cast<uint64_t>(y) * view_.rowBytes + static_cast<uint64_t>(x);
    if (findRange(context_, address, bytes, isWrite)) return reinterpret_cast<std::byte*>(address);
    if (!isBad_) badAddress_ = address;
    isBad_ = true;
    return nullptr;
  }

  Context& context_;
  const TextureView& view_;
  const TextureForm& form_;
  uint32_t layer_ = 0;
  bool isBad_ = false;
  bool isTrapped_ = false;
  uint64_t badAddress_ = 0;
};

}  // namespace

namespace {

/// The level of detail that a lane requests. Neighbours in a block are not neighbours on a screen: by default it is the
/// finest one.
float levelOf(const Instruction* at, const Context& context, uint32_t lane, const TextureView& view,
              const Accessor& accessor, const TextureForm& form) {
  if (form.detail == Detail::kLevel) {
    const auto level = static_cast<uint32_t>(laneOf(context, at->op[5], lane));
    const float chosen =
        form.hasIntegers ? static_cast<float>(static_cast<int32_t>(level)) : std::bit_cast<float>(level);
    return (std::isnan(chosen) ? 0 : chosen) + view.levelBias;
  }
  if (form.detail == Detail::kNone) return -HUGE_VALF;
  float by[2][2];
  for (uint32_t k = 0; k < 2; ++k) {
    const uint64_t step = laneOf(context, at->op[k], lane);
    by[k][0] = std::bit_cast<float>(static_cast<uint32_t>(step));
    by[k][1] = std::bit_cast<float>(static_cast<uint32_t>(step >> 32));
  }
  const float level = accessor.levelOf(by);
  return (std::isnan(level) ? 0 : level) + view.levelBias;
}

}  // namespace

const Instruction* accessTexture(const Instruction* at, Context& context) {
  const TextureForm form = TextureForm::unpack(at->immediate);
  const TextureMap* textures = context.block->grid().launch.textures;
  const bool isSurface = form.op == TextureOp::kLoad || form.op == TextureOp::kStore;
  TextureView view;
  uint64_t known = 0;
  bool isKnown = false;
  for (uint32_t rest = context.mask; rest; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const uint64_t object = laneOf(context, at->op[2], lane);
    if (!isKnown || object != known) {
      isKnown = textures && textures->find(object, view);
      known = object;
    }
    if (!isKnown) return raiseFault(at, context, FaultKind::kIllegalAddress, {lane, object, 1, false});
    if (view.levels && form.detail == Detail::kIgnored)
      return raiseFault(at, context, FaultKind::kIllegalInstruction, {lane, object, 0, false});
    uint32_t coordinates[4];
    for (uint32_t k = 0; k < 4; ++k)
      coordinates[k] = static_cast<uint32_t>(laneOf(context, at->op[3 + k / 2], lane) >> (k % 2 * 32));
    Accessor accessor(context, view, form);
    uint64_t words[2] = {0, 0};
    if (form.op == TextureOp::kStore) {
      for (uint32_t k = 0; k < 2; ++k) words[k] = laneOf(context, at->op[k], lane);
    }
    if (isSurface) {
      accessor.surface(coordinates, words);
    } else {
      const Texel texel =
          accessor.sample(coordinates, view.levels ? levelOf(at, context, lane, view, accessor, form) : 0);
      for (uint32_t k = 0; k < 2; ++k) words[k] = texel[2 * k] | uint64_t{texel[2 * k + 1]} << 32;
    }
    const bool isWrite = form.op == TextureOp::kStore;
    if (accessor.isBad())
      return raiseFault(at, context, FaultKind::kIllegalAddress, {lane, accessor.badAddress(), 1, isWrite});
    if (accessor.isTrapped()) return raiseFault(at, context, FaultKind::kTrap, {lane, view.base, 1, isWrite});
    if (isWrite) continue;
    for (uint32_t k = 0; k < 2; ++k) laneOf(context, at->op[k], lane) = words[k];
  }
  return at + 1;
}

}  // namespace millpond::softgpu::ptx
