// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstdio>

#include "softgpu/ptx/tests/fixture.h"

namespace millpond::softgpu::ptx::testing {
namespace {

using Outside = TextureView::Outside;
constexpr uint64_t kObject = 77;

class OneTexture final : public TextureMap {
 public:
  explicit OneTexture(const TextureView& view) : view_(view) {}
  bool find(uint64_t object, TextureView& view) const override {
    view = view_;
    return object == kObject;
  }

 private:
  TextureView view_;
};

/// Runs `body` in one thread, with %rd1 the object; results are stored at %out.
LaunchResult tryRun(Device& device, const TextureView& view, uint64_t out, uint64_t object = kObject) {
  const OneTexture textures(view);
  const Parameters parameters(out, object, uint64_t{0});
  Launch launch;
  launch.parameters = parameters.bytes();
  launch.textures = &textures;
  launch.memory = &device.memory;
  return executor().run(*device.module().kernel("k"), launch);
}

template <typename T>
TextureView viewOf(const Array<T>& array, uint32_t width, uint32_t height, uint32_t depth) {
  TextureView view;
  view.base = array.address();
  view.width = width;
  view.height = height;
  view.depth = depth;
  view.rowBytes = width * sizeof(T);
  view.sliceBytes = view.rowBytes * height;
  return view;
}

std::string hex(float value) {
  char text[16];
  std::snprintf(text, sizeof(text), "0f%08X", std::bit_cast<uint32_t>(value));
  return text;
}

/// The first channel that `tex.2d` reads at a place of a 4 by 4 texture of 0 to 15.
float at(float x, float y, TextureView settings) {
  Device device(kernelAround("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%in, {" + hex(x) + ", " + hex(y) +
                             "}];\nst.global.f32 [%out], %f1;"));
  std::vector<float> values(16);
  for (size_t i = 0; i < 16; ++i) values[i] = static_cast<float>(i);
  const Array<float> texels(device.memory, values);
  Array<float> out(device.memory, 1);
  TextureView view = viewOf(texels, 4, 4, 1);
  view.outside = settings.outside;
  view.isFiltered = settings.isFiltered;
  view.isNormalized = settings.isNormalized;
  view.border = settings.border;
  const LaunchResult result = tryRun(device, view, out.address());
  CHECK(result);
  return out[0];
}

TextureView settings(Outside outside, bool isFiltered, bool isNormalized) {
  TextureView view;
  view.outside = {outside, outside, outside};
  view.isFiltered = isFiltered;
  view.isNormalized = isNormalized;
  view.border = {-5, 0, 0, 0};
  return view;
}

}  // namespace

TEST("the element that a coordinate lies in, and what stands for those outside") {
  CHECK_EQ(at(1.9f, 2.0f, settings(Outside::kClamp, false, false)), 9.0f);
  CHECK_EQ(at(-7.0f, 99.0f, settings(Outside::kClamp, false, false)), 12.0f);
  CHECK_EQ(at(-0.5f, 0.0f, settings(Outside::kBorder, false, false)), -5.0f);
  CHECK_EQ(at(3.5f, 3.5f, settings(Outside::kBorder, false, false)), 15.0f);
  CHECK_EQ(at(1.30f, -0.1f, settings(Outside::kWrap, false, true)), 13.0f);
  CHECK_EQ(at(1.1f, -0.3f, settings(Outside::kMirror, false, true)), 7.0f);
  // Without normalized coordinates there is nothing to repeat.
  CHECK_EQ(at(5.0f, 0.0f, settings(Outside::kWrap, false, false)), 3.0f);
}

TEST("filtering weighs the elements around with eight bits of fraction") {
  CHECK_EQ(at(1.5f, 1.5f, settings(Outside::kClamp, true, false)), 5.0f);
  CHECK_EQ(at(2.0f, 2.0f, settings(Outside::kClamp, true, false)), 7.5f);
  CHECK_EQ(at(0.0f, 0.5f, settings(Outside::kClamp, true, false)), 0.0f);
  CHECK_EQ(at(0.0f, 0.5f, settings(Outside::kBorder, true, false)), -2.5f);
  CHECK_EQ(at(0.5f + 1.0f / 1024, 0.5f, settings(Outside::kClamp, true, false)), 0.0f);
  CHECK_EQ(at(0.5f + 1.0f / 256, 0.5f, settings(Outside::kClamp, true, false)), 1.0f / 256);
}

TEST("channels, of integers as such and as fractions") {
  Device device(
      kernelAround("tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%in, {1}];\n"
                   "st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};"));
  const Array<uint8_t> bytes(device.memory, std::vector<uint8_t>{1, 2, 3, 4, 255, 128, 0, 51});
  Array<uint32_t> out(device.memory, 4);
  TextureView view = viewOf(bytes, 2, 1, 1);
  view.channel = TextureView::Channel::kUnsigned;
  view.channelBits = 8;
  view.channels = 4;
  CHECK(tryRun(device, view, out.address()));
  CHECK(std::vector<uint32_t>(out.begin(), out.end()) == (std::vector<uint32_t>{255, 128, 0, 51}));
  view.channel = TextureView::Channel::kSigned;
  CHECK(tryRun(device, view, out.address()));
  CHECK(std::vector<uint32_t>(out.begin(), out.end()) == (std::vector<uint32_t>{~0u, ~127u, 0, 51}));
  view.readsAsFloat = true;
  CHECK(tryRun(device, view, out.address()));
  CHECK_EQ(std::bit_cast<float>(out[0]), -1.0f / 127);
  CHECK_EQ(std::bit_cast<float>(out[1]), -1.0f);
  view.channel = TextureView::Channel::kFloat;
  view.channelBits = 16;
  view.channels = 1;
  const Array<uint16_t> halves(device.memory, std::vector<uint16_t>{0, 0xC100});
  view.base = halves.address();
  view.readsAsFloat = false;
  CHECK(tryRun(device, view, out.address()));
  CHECK_EQ(std::bit_cast<float>(out[0]), -2.5f);
  CHECK_EQ(std::bit_cast<float>(out[3]), 1.0f);
}

TEST("three dimensions, layers, and the four elements around") {
  Device device(kernelAround(
      "tex.3d.v4.s32.f32 {%r1, _, _, _}, [%in, {0f3F800000, 0f3F800000, 0f40000000, 0f40000000}];\n"
      "tex.a2d.v4.s32.f32 {%r2, _, _, _}, [%in, {1, 0f40000000, 0f00000000, 0f00000000}];\n"
      "tld4.r.2d.v4.s32.f32 {%r3, %r4, %r5, %r6}, [%in, {0f3F800000, 0f3F800000}];\n"
      "tex.level.2d.v4.s32.f32 {%r7, _, _, _}, [%in, {0f00000000, 0f3F800000}], 0f40400000;\n"
      "mov.u32 %r8, 0;\n"
      "st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};\nst.global.v4.u32 [%out+16], {%r5, %r6, %r7, %r8};"));
  std::vector<int32_t> values(27);
  for (size_t i = 0; i < 27; ++i) values[i] = static_cast<int32_t>(i);
  const Array<int32_t> texels(device.memory, values);
  Array<int32_t> out(device.memory, 8);
  TextureView view = viewOf(texels, 3, 3, 3);
  view.channel = TextureView::Channel::kSigned;
  CHECK(tryRun(device, view, out.address()));
  CHECK(std::vector<int32_t>(out.begin(), out.end()) == (std::vector<int32_t>{22, 11, 3, 4, 1, 0, 3, 0}));
}

TEST("the six faces of a cube, and of a layer of cubes, by direction") {
  struct Direction {
    float x, y, z;
    int32_t element;
  };
  // The left lower and the right lower element of each face of two by two.
  const Direction directions[] = {
      {4, 1, 1, 0},   {4, 1, -1, 1},  {-4, 1, -1, 4}, {-4, 1, 1, 5},  {-1, 4, -1, 8},  {1, 4, -1, 9},  {-1, -4, 1, 12},
      {1, -4, 1, 13}, {-1, 1, 4, 16}, {1, 1, 4, 17},  {1, 1, -4, 20}, {-1, 1, -4, 21}, {1, -1, 4, 19}, {-1, -4, -1, 14},
  };
  for (const Direction& to : directions) {
    const std::string at = hex(to.x) + ", " + hex(to.y) + ", " + hex(to.z);
    Device device(kernelAround("tex.cube.v4.s32.f32 {%r1, _, _, _}, [%in, {" + at + ", " + hex(0) + "}];\n" +
                               "tex.acube.v4.s32.f32 {%r2, _, _, _}, [%in, {1, " + at + "}];\n" +
                               "st.global.v2.u32 [%out], {%r1, %r2};"));
    std::vector<int32_t> values(48);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i);
    const Array<int32_t> texels(device.memory, values);
    Array<int32_t> out(device.memory, 2);
    TextureView view = viewOf(texels, 2, 2, 12);
    view.channel = TextureView::Channel::kSigned;
    view.isCube = true;
    CHECK(tryRun(device, view, out.address()));
    CHECK_EQ(out[0], to.element);
    CHECK_EQ(out[1], to.element + 24);
  }
}

namespace {
/// What `fetch` reads, into %f1, from a texture of 8 by 8 elements with all its levels: element i of level l is 100 l +
/// i.
float ofLevels(const std::string& fetch, TextureView settings) {
  Device device(kernelAround(fetch + "\nst.global.f32 [%out], %f1;"));
  std::vector<float> values;
  for (uint32_t level = 0, extent = 8; level < 4; ++level, extent /= 2)
    for (uint32_t i = 0; i < extent * extent; ++i) values.push_back(static_cast<float>(100 * level + i));
  const Array<float> texels(device.memory, values);
  std::vector<TextureLevel> levels;
  uint64_t base = texels.address();
  for (uint32_t extent = 8; extent > 0; extent /= 2) {
    levels.push_back({base, extent, extent, 1, extent * sizeof(float), extent * extent * sizeof(float)});
    base += levels.back().sliceBytes;
  }
  static_cast<TextureLevel&>(settings) = levels[0];
  settings.levels = std::make_shared<const std::vector<TextureLevel>>(levels);
  Array<float> out(device.memory, 1);
  const LaunchResult result = tryRun(device, settings, out.address());
  CHECK(result);
  return out[0];
}
}  // namespace

TEST("the level of detail is the one that is named, within bounds, or follows from gradients") {
  // The numbers are those of an H200.
  TextureView view = settings(Outside::kClamp, false, true);
  view.mostLevel = 10;
  const std::string place = "{%f1, %f2, %f3, %f4}, [%in, {" + hex(0.3f) + ", " + hex(0.6f) + "}]";
  const auto level = [&](float at) {
    return ofLevels("tex.level.2d.v4.f32.f32 " + place + ", " + hex(at) + ";", view);
  };
  const auto gradients = [&](float x, float y) {
    return ofLevels(
        "tex.grad.2d.v4.f32.f32 " + place + ", {" + hex(x) + ", " + hex(0) + "}, {" + hex(0) + ", " + hex(y) + "};",
        view);
  };
  const std::string plain = "tex.2d.v4.f32.f32 " + place + ";";
  CHECK_EQ(level(-1), 34.0f);
  CHECK_EQ(level(0.375f), 34.0f);
  CHECK_EQ(level(0.5f), 109.0f);
  CHECK_EQ(level(1.49999f), 109.0f);
  CHECK_EQ(level(99), 300.0f);
  CHECK_EQ(ofLevels(plain, view), 34.0f);
  CHECK_EQ(gradients(0.0625f, 0.0625f), 34.0f);
  CHECK_EQ(gradients(0.0625f, 0.5f), 202.0f);
  view.isFilteredBetween = true;
  CHECK_EQ(level(0.125f), 43.375f);
  CHECK_EQ(level(0.4999f), 34 + 75 * 127.0f / 256);
  CHECK_EQ(gradients(std::exp2(-3.5f), std::exp2(-2.5f)), 71.5f);
  view.leastLevel = 0.75f;
  view.mostLevel = 2.25f;
  CHECK_EQ(level(-1), 90.25f);
  CHECK_EQ(level(5), 226.5f);
  CHECK_EQ(ofLevels(plain, view), 90.25f);
  view.leastLevel = 0;
  view.levelBias = 0.5f;
  CHECK_EQ(level(0.25f), 90.25f);
  CHECK_EQ(ofLevels(plain, view), 34.0f);
  // Whole numbers name elements of the level.
  view.mostLevel = 10;
  view.levelBias = 0;
  CHECK_EQ(ofLevels("tex.level.2d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%in, {1, 1}], 2;", view), 203.0f);
}

TEST("a filtered line lies at the edge of a plane") {
  Device device(
      kernelAround("tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%in, {" + hex(1.5f) + "}];\nst.global.f32 [%out], %f1;"));
  const Array<float> texels(device.memory, std::vector<float>{1, 2, 4});
  Array<float> out(device.memory, 1);
  TextureView view = viewOf(texels, 3, 1, 1);
  view.isFiltered = true;
  view.border = {1000, 0, 0, 0};
  view.outside = {Outside::kBorder, Outside::kClamp, Outside::kClamp};
  CHECK(tryRun(device, view, out.address()));
  CHECK_EQ(out[0], 2.0f);
  view.outside[1] = Outside::kBorder;
  CHECK(tryRun(device, view, out.address()));
  CHECK_EQ(out[0], 501.0f);
}

TEST("surfaces are read and written by bytes, and outside as the instruction says") {
  Device device(
      kernelAround("suld.b.2d.v2.b16.zero {%rs1, %rs2}, [%in, {4, 1}];\n"
                   "sust.b.2d.v2.b16.trap [%in, {0, 0}], {%rs2, %rs1};\n"
                   "suld.b.2d.b32.zero {%r1}, [%in, {8, 0}];\n"
                   "suld.b.2d.b32.clamp {%r2}, [%in, {99, -1}];\n"
                   "sust.b.2d.b32.zero [%in, {-4, 0}], {%r2};\n"
                   "suld.b.2d.b64.trap {%rd1}, [%in, {0, 1}];\n"
                   "st.global.v2.u32 [%out], {%r1, %r2};\nst.global.u64 [%out+8], %rd1;"));
  Array<uint32_t> cells(device.memory, std::vector<uint32_t>{1, 2, 3, 0x00050004});
  Array<uint32_t> out(device.memory, 4, 9);
  TextureView view = viewOf(cells, 2, 2, 1);
  view.channel = TextureView::Channel::kUnsigned;
  CHECK(tryRun(device, view, out.address()));
  CHECK_EQ(cells[0], 0x00040005u);
  CHECK_EQ(cells[1], 2u);
  CHECK_EQ(out[0], 0u);
  CHECK_EQ(out[1], 2u);
  CHECK_EQ(out[2], 3u);
  CHECK_EQ(out[3], 0x00050004u);
}

TEST("faults of textures and surfaces") {
  Device trap(kernelAround("suld.b.1d.b32.trap {%r1}, [%in, {8}];"));
  Array<uint32_t> cells(trap.memory, 2);
  TextureView view = viewOf(cells, 2, 1, 1);
  CHECK_EQ(faultName(tryRun(trap, view, 0).fault.kind), faultName(Fault::Kind::kTrap));
  Device fetch(kernelAround("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%in, {1}];"));
  // An object that does not exist; and one whose memory has been freed.
  const std::string_view illegal = faultName(Fault::Kind::kIllegalAddress);
  CHECK_EQ(faultName(tryRun(fetch, view, 0, kObject + 1).fault.kind), illegal);
  CHECK_EQ(faultName(tryRun(fetch, view, 0).fault.kind), illegal);
}

TEST("forms that are not executed are refused by name") {
  for (const char* text : {"tld4.r.cube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%in, {%f1, %f2, %f3, %f3}];",
                           "tex.2d.v2.f16x2.f32 {%r1, %r2}, [%in, {%f1, %f2}];",
                           "suld.p.2d.v4.b32.trap {%r1, %r2, %r3, %r4}, [%in, {%r1, %r2}];"}) {
    const Compiled compiled = compile(kernelAround(text));
    CHECK(!compiled);
    CHECK_EQ(static_cast<int>(compiled.error.kind), static_cast<int>(CompileError::Kind::kUnsupported));
  }
}

}  // namespace millpond::softgpu::ptx::testing
