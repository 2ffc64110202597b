// SPDX-License-Identifier: Apache-2.0
// Texture and surface references: a kernel reads and writes the memory bound to them at its launch.
#include <array>
#include <bit>
#include <vector>

#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

// draw: value + 100 y + x at each element of the canvas. read: an element of the image at ((x + shift) scale, and
// likewise for y). fetch: an element of the line, found by its address.
constexpr char kKernels[] = R"(
.version 7.0
.target sm_75
.address_size 64
.global .texref image;
.global .texref line;
.global .surfref canvas;
.global .texref unused;
.visible .entry draw(.param .u32 value)
{
  .reg .b32 %r<8>;
  ld.param.u32 %r5, [value];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mad.lo.u32 %r3, %r2, 100, %r1;
  add.u32 %r3, %r3, %r5;
  shl.b32 %r4, %r1, 2;
  sust.b.2d.b32.trap [canvas, {%r4, %r2}], {%r3};
  ret;
}
.visible .entry read(.param .u64 out, .param .f32 shift, .param .f32 scale)
{
  .reg .b32 %r<8>;
  .reg .f32 %f<12>;
  .reg .b64 %d<6>;
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
  tex.2d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [image, {%f3, %f4}];
  mov.u32 %r3, %ntid.x;
  mad.lo.u32 %r4, %r2, %r3, %r1;
  mul.wide.u32 %d3, %r4, 4;
  add.u64 %d4, %d2, %d3;
  st.global.f32 [%d4], %f5;
  ret;
}
.visible .entry fetch(.param .u64 out, .param .u32 first)
{
  .reg .b32 %r<8>;
  .reg .b64 %d<6>;
  ld.param.u64 %d2, [out];
  ld.param.u32 %r1, [first];
  mov.u32 %r2, %tid.x;
  add.u32 %r1, %r1, %r2;
  mov.u64 %d1, line;
  tex.1d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%d1, {%r1}];
  mul.wide.u32 %d3, %r2, 4;
  add.u64 %d4, %d2, %d3;
  st.global.u32 [%d4], %r4;
  ret;
}
)";

constexpr uint32_t kWidth = 8;
constexpr uint32_t kHeight = 4;
constexpr uint32_t kCount = kWidth * kHeight;

CUarray makeArray(unsigned flags, CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT32) {
  CUDA_ARRAY3D_DESCRIPTOR wanted{};
  wanted.Width = kWidth;
  wanted.Height = kHeight;
  wanted.Format = format;
  wanted.NumChannels = 1;
  wanted.Flags = flags;
  CUarray array = nullptr;
  OK(CU(cuArray3DCreate_v2)(&array, &wanted));
  return array;
}

/// The kernels in a module, and memory for their results.
class Kernels {
 public:
  Kernels() {
    begin();
    OK(CU(cuModuleLoadData)(&module, kKernels));
    OK(CU(cuMemAlloc_v2)(&out, kCount * sizeof(float)));
  }
  CUtexref texture(const char* name) {
    CUtexref reference = nullptr;
    OK(CU(cuModuleGetTexRef)(&reference, module, name));
    return reference;
  }
  CUsurfref surface(const char* name) {
    CUsurfref reference = nullptr;
    OK(CU(cuModuleGetSurfRef)(&reference, module, name));
    return reference;
  }
  void launch(const char* name, unsigned blocks, void** parameters) {
    CUfunction function = nullptr;
    OK(CU(cuModuleGetFunction)(&function, module, name));
    OK(CU(cuLaunchKernel)(function, blocks, 1, 1, kWidth, 1, 1, 0, nullptr, parameters, nullptr));
  }
  std::vector<uint32_t> result() {
    std::vector<uint32_t> words(kCount);
    OK(CU(cuMemcpyDtoH_v2)(words.data(), out, kCount * sizeof(uint32_t)));
    return words;
  }
  std::vector<uint32_t> read(float shift, float scale) {
    void* parameters[] = {&out, &shift, &scale};
    launch("read", kHeight, parameters);
    return result();
  }

  CUmodule module = nullptr;
  CUdeviceptr out = 0;
};

}  // namespace

TEST("a launch reads and writes what was bound before it, whatever is bound behind it") {
  everywhere([] {
    Kernels kernels;
    const CUsurfref canvas = kernels.surface("canvas");
    const CUtexref image = kernels.texture("image");
    std::array<CUarray, 2> arrays{};
    for (uint32_t k = 0; k < arrays.size(); ++k) {
      arrays[k] = makeArray(CUDA_ARRAY3D_SURFACE_LDST);
      OK(CU(cuSurfRefSetArray)(canvas, arrays[k], 0));
      uint32_t value = 1000 * k;
      void* parameters[] = {&value};
      kernels.launch("draw", kHeight, parameters);
    }
    OK(CU(cuTexRefSetFlags)(image, CU_TRSF_READ_AS_INTEGER));
    for (uint32_t k = 0; k < arrays.size(); ++k) {
      OK(CU(cuTexRefSetArray)(image, arrays[k], CU_TRSA_OVERRIDE_FORMAT));
      CUarray bound = nullptr;
      OK(CU(cuTexRefGetArray)(&bound, image));
      CHECK(bound == arrays[k]);
      OK(CU(cuSurfRefGetArray)(&bound, canvas));
      CHECK(bound == arrays[1]);
      const std::vector<uint32_t> seen = kernels.read(0, 1);
      for (uint32_t i = 0; i < kCount; ++i) CHECK_EQ(seen[i], 1000 * k + i / kWidth * 100 + i % kWidth);
    }
    for (const CUarray array : arrays) OK(CU(cuArrayDestroy)(array));
    // The bound memory is freed, and the kernel does not use it.
    OK(CU(cuTexRefSetFormat)(kernels.texture("line"), CU_AD_FORMAT_UNSIGNED_INT32, 1));
    OK(CU(cuTexRefSetAddress_v2)(nullptr, kernels.texture("line"), kernels.out, kCount * sizeof(uint32_t)));
    uint32_t first = 0;
    void* parameters[] = {&kernels.out, &first};
    kernels.launch("fetch", 1, parameters);
    kernels.result();
    OK(CU(cuModuleUnload)(kernels.module));
  });
}

TEST("memory is read by elements from where it was bound, and what begins between two has an offset") {
  everywhere([] {
    Kernels kernels;
    const CUtexref line = kernels.texture("line");
    CUdeviceptr memory = 0;
    std::vector<uint32_t> words(1024);
    for (uint32_t i = 0; i < words.size(); ++i) words[i] = 7 * i;
    const size_t bytes = words.size() * sizeof(uint32_t);
    OK(CU(cuMemAlloc_v2)(&memory, bytes));
    OK(CU(cuMemcpyHtoD_v2)(memory, words.data(), bytes));

    CUdeviceptr bound = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexRefGetAddress_v2)(&bound, line));
    OK(CU(cuTexRefSetFormat)(line, CU_AD_FORMAT_UNSIGNED_INT32, 1));
    OK(CU(cuTexRefSetFlags)(line, CU_TRSF_READ_AS_INTEGER));
    OK(CU(cuTexRefSetAddress_v2)(nullptr, line, memory, bytes));
    OK(CU(cuTexRefGetAddress_v2)(&bound, line));
    CHECK_EQ(bound, memory);
    CUarray none = nullptr;
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexRefGetArray)(&none, line));
    uint32_t first = 40;
    void* parameters[] = {&kernels.out, &first};
    kernels.launch("fetch", 1, parameters);
    for (uint32_t i = 0; const uint32_t word : kernels.result()) {
      if (i < kWidth) CHECK_EQ(word, 7 * (40 + i));
      ++i;
    }

    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexRefSetAddress_v2)(nullptr, line, memory + 16, 256));
    size_t offset = 0;
    OK(CU(cuTexRefSetAddress_v2)(&offset, line, memory + 16, 256));
    CHECK_EQ(offset, 16u);
    // The last element that is bound, and nothing beyond it.
    first = 16 / 4 + 256 / 4 - 1;
    kernels.launch("fetch", 1, parameters);
    const std::vector<uint32_t> seen = kernels.result();
    CHECK_EQ(seen[0], 7 * first);
    CHECK_EQ(seen[1], 0u);
    // Nothing is bound to it any more.
    OK(CU(cuTexRefSetAddress_v2)(&offset, line, 0, 256));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexRefGetAddress_v2)(&bound, line));
    OK(CU(cuModuleUnload)(kernels.module));
    OK(CU(cuMemFree_v2)(memory));
  });
}

TEST("a plane in memory is filtered, clamped and bordered as the reference says") {
  everywhere([] {
    Kernels kernels;
    const CUtexref image = kernels.texture("image");
    constexpr size_t kPitch = 512;
    CUdeviceptr memory = 0;
    OK(CU(cuMemAlloc_v2)(&memory, kPitch * kHeight));
    for (uint32_t y = 0; y < kHeight; ++y) {
      std::array<uint8_t, kWidth> row{};
      for (uint32_t x = 0; x < kWidth; ++x) row[x] = static_cast<uint8_t>(10 * y + x);
      OK(CU(cuMemcpyHtoD_v2)(memory + y * kPitch, row.data(), row.size()));
    }
    const CUDA_ARRAY_DESCRIPTOR shape{kWidth, kHeight, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    OK(CU(cuTexRefSetAddress2D_v3)(image, &shape, memory, kPitch));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexRefSetAddress2D_v3)(image, &shape, memory + 1, kPitch));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexRefSetAddress2D_v3)(image, nullptr, memory, kPitch));
    std::array<float, 4> border{0.5f, 0, 0, 0};
    for (int d = 0; d < 2; ++d) OK(CU(cuTexRefSetAddressMode)(image, d, CU_TR_ADDRESS_MODE_BORDER));
    OK(CU(cuTexRefSetBorderColor)(image, border.data()));
    std::vector<uint32_t> seen = kernels.read(1, 1);
    for (uint32_t i = 0; i < kCount; ++i) {
      const uint32_t x = i % kWidth + 1, y = i / kWidth + 1;
      // The border is an element, too: of 0.5, only what fits into a byte remains.
      const uint32_t wanted = x < kWidth && y < kHeight ? 10 * y + x : 127;
      CHECK_EQ(std::bit_cast<float>(seen[i]), static_cast<float>(wanted) / 255.0f);
    }
    OK(CU(cuTexRefSetFilterMode)(image, CU_TR_FILTER_MODE_LINEAR));
    seen = kernels.read(1, 1);
    // At the corner of four elements: their mean, 5.5 of 255, in 16 bits.
    CHECK_EQ(std::bit_cast<float>(seen[0]), 1414.0f / 65535.0f);
    OK(CU(cuMemFree_v2)(memory));
  });
}

TEST("a reference tells what was set, is one for a name, and ends with its module") {
  everywhere([] {
    Kernels kernels;
    const CUtexref image = kernels.texture("image");
    CHECK(kernels.texture("image") == image);
    CHECK(kernels.texture("line") != image);
    CUtexref none = nullptr;
    CUsurfref noSurface = nullptr;
    FAILS(CUDA_ERROR_NOT_FOUND, CU(cuModuleGetTexRef)(&none, kernels.module, "canvas"));
    FAILS(CUDA_ERROR_NOT_FOUND, CU(cuModuleGetSurfRef)(&noSurface, kernels.module, "image"));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuModuleGetTexRef)(nullptr, kernels.module, "image"));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuModuleGetTexRef)(&none, kernels.module, nullptr));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuModuleGetTexRef)(&none, nullptr, "image"));
    CUdeviceptr address = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuModuleGetGlobal_v2)(&address, nullptr, kernels.module, "image"));

    OK(CU(cuTexRefSetFormat)(image, CU_AD_FORMAT_HALF, 2));
    CUarray_format format{};
    int channels = 0;
    OK(CU(cuTexRefGetFormat)(&format, &channels, image));
    CHECK(format == CU_AD_FORMAT_HALF && channels == 2);
    OK(CU(cuTexRefGetFormat)(nullptr, nullptr, image));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexRefSetFormat)(image, CU_AD_FORMAT_HALF, 3));
    CUaddress_mode mode{};
    OK(CU(cuTexRefGetAddressMode)(&mode, image, 1));
    CHECK(mode == CU_TR_ADDRESS_MODE_CLAMP);
    OK(CU(cuTexRefSetAddressMode)(image, 1, CU_TR_ADDRESS_MODE_MIRROR));
    OK(CU(cuTexRefGetAddressMode)(&mode, image, 1));
    CHECK(mode == CU_TR_ADDRESS_MODE_MIRROR);
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexRefSetAddressMode)(image, 3, CU_TR_ADDRESS_MODE_CLAMP));
    OK(CU(cuTexRefSetMipmapFilterMode)(image, CU_TR_FILTER_MODE_LINEAR));
    CUfilter_mode filter{};
    OK(CU(cuTexRefGetMipmapFilterMode)(&filter, image));
    CHECK(filter == CU_TR_FILTER_MODE_LINEAR);
    OK(CU(cuTexRefSetMipmapLevelClamp)(image, 1.5f, 2.5f));
    OK(CU(cuTexRefSetMipmapLevelBias)(image, -0.5f));
    OK(CU(cuTexRefSetMaxAnisotropy)(image, 4));
    float least = 0, most = 0, bias = 0;
    int anisotropy = 0;
    OK(CU(cuTexRefGetMipmapLevelClamp)(&least, &most, image));
    OK(CU(cuTexRefGetMipmapLevelBias)(&bias, image));
    OK(CU(cuTexRefGetMaxAnisotropy)(&anisotropy, image));
    CHECK(least == 1.5f && most == 2.5f && bias == -0.5f && anisotropy == 4);
    std::array<float, 4> colour{1, 2, 3, 4}, told{};
    OK(CU(cuTexRefSetBorderColor)(image, colour.data()));
    OK(CU(cuTexRefGetBorderColor)(told.data(), image));
    CHECK(told == colour);
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexRefGetBorderColor)(nullptr, image));

    CUfunction read = nullptr;
    OK(CU(cuModuleGetFunction)(&read, kernels.module, "read"));
    OK(CU(cuParamSetTexRef)(read, CU_PARAM_TR_DEFAULT, image));
    OK(CU(cuParamSetTexRef)(read, 0, image));

    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuTexRefSetFlags)(nullptr, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuTexRefDestroy)(nullptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuTexRefDestroy)(image));
    OK(CU(cuModuleUnload)(kernels.module));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuTexRefSetFlags)(image, 0));
  });
}

TEST("references that a program makes end with it, with their context, or when they are destroyed") {
  everywhere([] {
    begin();
    CUcontext context = nullptr;
    OK(CU(cuCtxCreate_v2)(&context, 0, 0));
    CUtexref reference = nullptr, left = nullptr;
    OK(CU(cuTexRefCreate)(&reference));
    OK(CU(cuTexRefCreate)(&left));
    CHECK(reference != left);
    unsigned flags = 0;
    OK(CU(cuTexRefSetFlags)(reference, CU_TRSF_NORMALIZED_COORDINATES));
    OK(CU(cuTexRefGetFlags)(&flags, reference));
    CHECK_EQ(flags, static_cast<unsigned>(CU_TRSF_NORMALIZED_COORDINATES));
    OK(CU(cuTexRefGetFlags)(&flags, left));
    CHECK_EQ(flags, 0u);
    OK(CU(cuTexRefDestroy)(reference));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuTexRefGetFlags)(&flags, reference));
    CUmodule module = nullptr;
    OK(CU(cuModuleLoadData)(&module, kKernels));
    CUtexref image = nullptr;
    OK(CU(cuModuleGetTexRef)(&image, module, "image"));
    OK(CU(cuCtxDestroy_v2)(context));
    begin();
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuTexRefGetFlags)(&flags, left));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuTexRefGetFlags)(&flags, image));
    // References created in their place are valid.
    OK(CU(cuTexRefCreate)(&reference));
    OK(CU(cuTexRefGetFlags)(&flags, reference));
    OK(CU(cuCtxSynchronize)());
  });
}
