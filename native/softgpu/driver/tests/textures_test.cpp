// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects, from their creation to the values that kernels read and write through them.
#include <bit>
#include <cstring>
#include <vector>

#include "softgpu/driver/tests/loaded_driver.h"

namespace millpond::softgpu::testing {
namespace {

// write: sust of 100 y + x at each element. read: tex at ((x + dx) s, (y + dy) s).
constexpr char kKernels[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry write(.param .u64 surface)
{
  .reg .b32 %r<8>;
  .reg .b64 %d<2>;
  ld.param.u64 %d1, [surface];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mad.lo.u32 %r3, %r2, 100, %r1;
  shl.b32 %r4, %r1, 2;
  sust.b.2d.b32.trap [%d1, {%r4, %r2}], {%r3};
  ret;
}
.visible .entry read(.param .u64 texture, .param .u64 out, .param .f32 shift, .param .f32 scale)
{
  .reg .b32 %r<8>;
  .reg .f32 %f<12>;
  .reg .b64 %d<6>;
  ld.param.u64 %d1, [texture];
  ld.param.u64 %d2, [out];
  ld.param.f32 %f1, [shift];
  ld.param.f32 %f2, [scale];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  cvt.rn.f32.u32 %f3, %r1;
  cvt.rn.f32.u32 %f4, %r2;
  add.f32 %f3, %f3, %f1;
  add.f32 %f4, %f4, %f1;
  mul.f32 %f3, %f3, %f2;
  mul.f32 %f4, %f4, %f2;
  tex.2d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [%d1, {%f3, %f4}];
  mov.u32 %r3, %ntid.x;
  mad.lo.u32 %r4, %r2, %r3, %r1;
  mul.wide.u32 %d3, %r4, 4;
  add.u64 %d4, %d2, %d3;
  st.global.f32 [%d4], %f5;
  ret;
}
)";

constexpr uint32_t kWidth = 8;
constexpr uint32_t kHeight = 4;

class Textures {
 public:
  Textures() {
    OK(CU(cuModuleLoadData)(&module_, kKernels));
    OK(CU(cuMemAlloc_v2)(&out_, kWidth * kHeight * sizeof(float)));
  }
  ~Textures() {
    CU(cuMemFree_v2)(out_);
    CU(cuModuleUnload)(module_);
  }

  CUresult launch(const char* name, void** parameters) {
    CUfunction function = nullptr;
    OK(CU(cuModuleGetFunction)(&function, module_, name));
    OK(CU(cuLaunchKernel)(function, kHeight, 1, 1, kWidth, 1, 1, 0, nullptr, parameters, nullptr));
    return CU(cuCtxSynchronize)();
  }
  std::vector<float> read(CUtexObject texture, float shift, float scale) {
    void* parameters[] = {&texture, &out_, &shift, &scale};
    OK(launch("read", parameters));
    std::vector<float> out(kWidth * kHeight);
    OK(CU(cuMemcpyDtoH_v2)(out.data(), out_, out.size() * sizeof(float)));
    return out;
  }

 private:
  CUmodule module_ = nullptr;
  CUdeviceptr out_ = 0;
};

CUDA_TEXTURE_DESC sampling(CUaddress_mode outside, CUfilter_mode filter, unsigned flags) {
  CUDA_TEXTURE_DESC out{};
  for (CUaddress_mode& mode : out.addressMode) mode = outside;
  out.filterMode = filter;
  out.flags = flags;
  out.borderColor[0] = -1.0f;
  return out;
}

class Plane {
 public:
  explicit Plane(unsigned flags, CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT32) {
    CUDA_ARRAY3D_DESCRIPTOR wanted{};
    wanted.Width = kWidth;
    wanted.Height = kHeight;
    wanted.Format = format;
    wanted.NumChannels = 1;
    wanted.Flags = flags;
    OK(CU(cuArray3DCreate_v2)(&array, &wanted));
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
  }
  ~Plane() { CU(cuArrayDestroy)(array); }
  Plane(const Plane&) = delete;
  Plane& operator=(const Plane&) = delete;

  CUarray array = nullptr;
  CUDA_RESOURCE_DESC resource{};
};

TEST("what a kernel stores through a surface another one reads through a texture") {
  PrimaryContext context;
  Textures textures;
  Plane plane(CUDA_ARRAY3D_SURFACE_LDST);
  CUsurfObject surface = 0;
  OK(CU(cuSurfObjectCreate)(&surface, &plane.resource));
  void* parameters[] = {&surface};
  OK(textures.launch("write", parameters));
  OK(CU(cuSurfObjectDestroy)(surface));
  // Destroying no object has no effect.
  OK(CU(cuSurfObjectDestroy)(surface));

  CUtexObject texture = 0;
  const CUDA_TEXTURE_DESC border =
      sampling(CU_TR_ADDRESS_MODE_BORDER, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER);
  OK(CU(cuTexObjectCreate)(&texture, &plane.resource, &border, nullptr));
  CUDA_TEXTURE_DESC told{};
  OK(CU(cuTexObjectGetTextureDesc)(&told, texture));
  CHECK(told.flags == border.flags && told.addressMode[1] == border.addressMode[1]);
  const std::vector<float> seen = textures.read(texture, 1.0f, 1.0f);
  for (uint32_t y = 0; y < kHeight; ++y)
    for (uint32_t x = 0; x < kWidth; ++x) {
      const uint32_t bits = std::bit_cast<uint32_t>(seen[y * kWidth + x]);
      if (x + 1 < kWidth && y + 1 < kHeight) CHECK_EQ(bits, (y + 1) * 100 + x + 1);
    }
  OK(CU(cuTexObjectDestroy)(texture));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexObjectGetTextureDesc)(&told, texture));
}

TEST("memory without an array is read with a pitch, filtered, clamped and by fractions") {
  PrimaryContext context;
  Textures textures;
  constexpr size_t kPitch = 512;
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, kPitch * kHeight));
  for (uint32_t y = 0; y < kHeight; ++y) {
    std::vector<float> row(kWidth);
    for (uint32_t x = 0; x < kWidth; ++x) row[x] = static_cast<float>(y * 16 + x);
    OK(CU(cuMemcpyHtoD_v2)(memory + y * kPitch, row.data(), row.size() * sizeof(float)));
  }
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_PITCH2D;
  resource.res.pitch2D = {memory, CU_AD_FORMAT_FLOAT, 1, kWidth, kHeight, kPitch};
  CUtexObject texture = 0;
  const CUDA_TEXTURE_DESC linear = sampling(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
  OK(CU(cuTexObjectCreate)(&texture, &resource, &linear, nullptr));
  // Between four elements each; the last row and column are at the border.
  const std::vector<float> between = textures.read(texture, 1.0f, 1.0f);
  CHECK_EQ(between[0], 8.5f);
  CHECK_EQ(between[kWidth + 2], 26.5f);
  CHECK_EQ(between[kWidth * kHeight - 1], 55.0f);
  OK(CU(cuTexObjectDestroy)(texture));

  const unsigned normalized = CU_TRSF_NORMALIZED_COORDINATES;
  const CUDA_TEXTURE_DESC wrapped = sampling(CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_POINT, normalized);
  OK(CU(cuTexObjectCreate)(&texture, &resource, &wrapped, nullptr));
  const std::vector<float> fractions = textures.read(texture, 0.5f, 0.25f);
  CHECK_EQ(fractions[0], 1.0f);
  CHECK_EQ(fractions[4], 1.0f);  // once around
  CHECK_EQ(fractions[kWidth + 1], 19.0f);

  resource.res.pitch2D.pitchInBytes = 500;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexObjectCreate)(&texture, &resource, &linear, nullptr));
  resource.res.pitch2D.pitchInBytes = kPitch;
  resource.res.pitch2D.height = 1000;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexObjectCreate)(&texture, &resource, &linear, nullptr));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("outside of memory without rows is nothing, whatever the texture says") {
  PrimaryContext context;
  Textures textures;
  const std::vector<float> values(kWidth, 3.0f);
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, kWidth * sizeof(float)));
  OK(CU(cuMemcpyHtoD_v2)(memory, values.data(), kWidth * sizeof(float)));
  CUDA_RESOURCE_DESC line{};
  line.resType = CU_RESOURCE_TYPE_LINEAR;
  line.res.linear = {memory, CU_AD_FORMAT_FLOAT, 1, kWidth * sizeof(float)};
  const CUDA_TEXTURE_DESC clamped =
      sampling(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, CU_TRSF_NORMALIZED_COORDINATES);
  CUtexObject texture = 0;
  OK(CU(cuTexObjectCreate)(&texture, &line, &clamped, nullptr));
  const std::vector<float> read = textures.read(texture, 4.5f, 1.0f);
  // From the fifth element of the fifth row on.
  for (const float each : read) CHECK_EQ(each, 0.0f);
  CHECK_EQ(textures.read(texture, 0.0f, 1.0f)[kWidth - 1], 3.0f);
  CHECK_EQ(textures.read(texture, 0.0f, 1.0f)[kWidth], 0.0f);
  CU(cuTexObjectDestroy)(texture);
  CU(cuMemFree_v2)(memory);
}

TEST("what cannot be sampled is refused when the object is made, and surfaces need no flag of their array") {
  PrimaryContext context;
  Plane integers(0);
  Plane bytes(0, CU_AD_FORMAT_UNSIGNED_INT8);
  unsigned long long object = 0;
  OK(CU(cuSurfObjectCreate)(&object, &integers.resource));
  OK(CU(cuSurfObjectDestroy)(object));
  const CUDA_TEXTURE_DESC filtered = sampling(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexObjectCreate)(&object, &integers.resource, &filtered, nullptr));
  // Read as fractions of their largest value, they can be interpolated.
  OK(CU(cuTexObjectCreate)(&object, &bytes.resource, &filtered, nullptr));
  CUDA_RESOURCE_VIEW_DESC same{};
  same.format = CU_RES_VIEW_FORMAT_UINT_1X8;
  same.width = kWidth;
  same.height = kHeight;
  OK(CU(cuTexObjectCreate)(&object, &bytes.resource, &filtered, &same));
  same.format = CU_RES_VIEW_FORMAT_SINT_1X8;
  FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuTexObjectCreate)(&object, &bytes.resource, &filtered, &same));
  CUDA_TEXTURE_DESC wrong = filtered;
  const int seven = 7;
  std::memcpy(&wrong.addressMode[2], &seven, sizeof(seven));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexObjectCreate)(&object, &bytes.resource, &wrong, nullptr));
  CUDA_RESOURCE_DESC nothing = bytes.resource;
  nothing.res.array.hArray = nullptr;
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuTexObjectCreate)(&object, &nothing, &filtered, nullptr));
}

}  // namespace
}  // namespace millpond::softgpu::testing
