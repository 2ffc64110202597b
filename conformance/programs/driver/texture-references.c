// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

// draw: value + 100 y + x at each element of the canvas. read: an element of the image at ((x + shift) scale, and likewise
// for y). fetch: an element of the line.
static const char kImage[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".global .texref image;\n.global .texref line;\n.global .surfref canvas;\n.global .texref unbound;\n"
    ".visible .entry draw(.param .u32 value) {\n"
    "  .reg .b32 %r<8>;\n"
    "  ld.param.u32 %r5, [value];\n"
    "  mov.u32 %r1, %tid.x;\n  mov.u32 %r2, %ctaid.x;\n"
    "  mad.lo.u32 %r3, %r2, 100, %r1;\n  add.u32 %r3, %r3, %r5;\n  shl.b32 %r4, %r1, 2;\n"
    "  sust.b.2d.b32.trap [canvas, {%r4, %r2}], {%r3};\n  ret;\n}\n"
    ".visible .entry read(.param .u64 out, .param .f32 shift, .param .f32 scale) {\n"
    "  .reg .b32 %r<8>;\n  .reg .f32 %f<12>;\n  .reg .b64 %d<6>;\n"
    "  ld.param.u64 %d2, [out];\n  ld.param.f32 %f1, [shift];\n  ld.param.f32 %f2, [scale];\n"
    "  mov.u32 %r1, %tid.x;\n  mov.u32 %r2, %ctaid.x;\n"
    "  cvt.rn.f32.u32 %f3, %r1;\n  cvt.rn.f32.u32 %f4, %r2;\n"
    "  add.f32 %f3, %f3, %f1;\n  add.f32 %f4, %f4, %f1;\n  mul.f32 %f3, %f3, %f2;\n  mul.f32 %f4, %f4, %f2;\n"
    "  tex.2d.v4.f32.f32 {%f5, %f6, %f7, %f8}, [image, {%f3, %f4}];\n"
    "  mov.u32 %r3, %ntid.x;\n  mad.lo.u32 %r4, %r2, %r3, %r1;\n  mul.wide.u32 %d3, %r4, 4;\n  add.u64 %d4, %d2, %d3;\n"
    "  st.global.f32 [%d4], %f5;\n  ret;\n}\n"
    ".visible .entry fetch(.param .u64 out, .param .u32 first) {\n"
    "  .reg .b32 %r<8>;\n  .reg .b64 %d<6>;\n"
    "  ld.param.u64 %d2, [out];\n  ld.param.u32 %r1, [first];\n  mov.u32 %r2, %tid.x;\n  add.u32 %r1, %r1, %r2;\n"
    "  tex.1d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [line, {%r1}];\n"
    "  mul.wide.u32 %d3, %r2, 4;\n  add.u64 %d4, %d2, %d3;\n  st.global.u32 [%d4], %r4;\n  ret;\n}\n";

enum { kWidth = 8, kHeight = 4, kCount = kWidth * kHeight };

static CUdeviceptr out;

static void show_words(const char* what) {
  unsigned words[kCount];
  CHECK(cuMemcpyDtoH_v2(words, out, sizeof words));
  say("%s: %u %u %u %u, digest %llx", what, words[0], words[1], words[kWidth], words[kCount - 1],
      digest(words, sizeof words));
}

static void read_image(CUmodule module, float shift, float scale, const char* what) {
  void* parameters[] = {&out, &shift, &scale};
  launch(kernel(module, "read"), kHeight, kWidth, NULL, parameters);
  float values[kCount];
  CHECK(cuMemcpyDtoH_v2(values, out, sizeof values));
  say("%s: %g %g %g %g, digest %llx", what, values[0], values[1], values[kWidth], values[kCount - 1],
      digest(values, sizeof values));
}

static CUarray make(unsigned flags) {
  CUDA_ARRAY3D_DESCRIPTOR wanted;
  memset(&wanted, 0, sizeof wanted);
  wanted.Width = kWidth;
  wanted.Height = kHeight;
  wanted.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  wanted.NumChannels = 1;
  wanted.Flags = flags;
  CUarray array;
  CHECK(cuArray3DCreate_v2(&array, &wanted));
  return array;
}

/// The defaults of a reference whose attributes were not set.
static void defaults(CUtexref reference) {
  CUarray_format format = (CUarray_format)0;
  int channels = 0, anisotropy = 0;
  unsigned flags = 0;
  if (SEE(cuTexRefGetFormat(&format, &channels, reference)) == CUDA_SUCCESS) say("  format %#x of %d", (int)format, channels);
  for (int d = 0; d < 4; ++d) {
    CUaddress_mode mode = CU_TR_ADDRESS_MODE_WRAP;
    if (SEE(cuTexRefGetAddressMode(&mode, reference, d)) == CUDA_SUCCESS) say("  mode of %d: %d", d, (int)mode);
  }
  CUfilter_mode filter = CU_TR_FILTER_MODE_POINT;
  if (SEE(cuTexRefGetFilterMode(&filter, reference)) == CUDA_SUCCESS) say("  filter %d", (int)filter);
  if (SEE(cuTexRefGetMipmapFilterMode(&filter, reference)) == CUDA_SUCCESS) say("  filter of levels %d", (int)filter);
  float bias = 0, least = 0, most = 0, border[4] = {0};
  if (SEE(cuTexRefGetMipmapLevelBias(&bias, reference)) == CUDA_SUCCESS) say("  bias %g", bias);
  if (SEE(cuTexRefGetMipmapLevelClamp(&least, &most, reference)) == CUDA_SUCCESS) say("  levels %g to %g", least, most);
  if (SEE(cuTexRefGetMaxAnisotropy(&anisotropy, reference)) == CUDA_SUCCESS) say("  anisotropy %d", anisotropy);
  if (SEE(cuTexRefGetBorderColor(border, reference)) == CUDA_SUCCESS)
    say("  border %g %g %g %g", border[0], border[1], border[2], border[3]);
  if (SEE(cuTexRefGetFlags(&flags, reference)) == CUDA_SUCCESS) say("  flags %#x", flags);
  CUdeviceptr address = 0;
  CUarray array = NULL;
  CUmipmappedArray mipmapped = NULL;
  SEE(cuTexRefGetAddress_v2(&address, reference));
  SEE(cuTexRefGetArray(&array, reference));
  SEE(cuTexRefGetMipmappedArray(&mipmapped, reference));
}

static void arrays(CUmodule module, CUtexref image, CUsurfref canvas) {
  CUarray both[2];
  CUarray bound = NULL;
  SEE(cuSurfRefGetArray(&bound, canvas));
  for (unsigned k = 0; k < 2; ++k) {
    both[k] = make(CUDA_ARRAY3D_SURFACE_LDST);
    SEE(cuSurfRefSetArray(canvas, both[k], 0));
    unsigned value = 1000 * k;
    void* parameters[] = {&value};
    launch(kernel(module, "draw"), kHeight, kWidth, NULL, parameters);
  }
  SEE(cuSurfRefSetArray(canvas, both[0], 1));
  SEE(cuSurfRefSetArray(canvas, NULL, 0));
  SEE(cuSurfRefSetArray(NULL, both[0], 0));
  CUarray plain = make(0);
  SEE(cuSurfRefSetArray(canvas, plain, 0));
  SEE(cuTexRefSetFlags(image, CU_TRSF_READ_AS_INTEGER));
  for (unsigned k = 0; k < 2; ++k) {
    SEE(cuTexRefSetArray(image, both[k], CU_TRSA_OVERRIDE_FORMAT));
    if (SEE(cuTexRefGetArray(&bound, image)) == CUDA_SUCCESS) say("  the same: %s", yes(bound == both[k]));
    float shift = 0, scale = 1;
    void* parameters[] = {&out, &shift, &scale};
    launch(kernel(module, "read"), kHeight, kWidth, NULL, parameters);
    show_words("array");
  }
  SEE(cuTexRefSetArray(image, both[0], 0));
  SEE(cuTexRefSetArray(image, NULL, CU_TRSA_OVERRIDE_FORMAT));
  SEE(cuTexRefSetArray(NULL, both[0], CU_TRSA_OVERRIDE_FORMAT));
  CHECK(cuArrayDestroy(plain));
  for (unsigned k = 0; k < 2; ++k) CHECK(cuArrayDestroy(both[k]));
}

static void lines(CUmodule module, CUtexref line) {
  unsigned words[1024];
  for (unsigned i = 0; i < 1024; ++i) words[i] = 7 * i;
  const CUdeviceptr memory = allocate(sizeof words);
  CHECK(cuMemcpyHtoD_v2(memory, words, sizeof words));
  SEE(cuTexRefSetFormat(line, CU_AD_FORMAT_UNSIGNED_INT32, 1));
  SEE(cuTexRefSetFlags(line, CU_TRSF_READ_AS_INTEGER));
  size_t offset = 99;
  SEE(cuTexRefSetAddress_v2(NULL, line, memory, sizeof words));
  CUdeviceptr bound = 0;
  if (SEE(cuTexRefGetAddress_v2(&bound, line)) == CUDA_SUCCESS) say("  the same: %s", yes(bound == memory));
  CUarray none = NULL;
  SEE(cuTexRefGetArray(&none, line));
  unsigned first = 40;
  void* parameters[] = {&out, &first};
  CHECK(cuMemsetD32_v2(out, 0, kCount));
  launch(kernel(module, "fetch"), 1, kWidth, NULL, parameters);
  show_words("line");
  SEE(cuTexRefSetAddress_v2(NULL, line, memory + 16, 256));
  if (SEE(cuTexRefSetAddress_v2(&offset, line, memory + 16, 256)) == CUDA_SUCCESS) say("  offset %zu", offset);
  if (SEE(cuTexRefGetAddress_v2(&bound, line)) == CUDA_SUCCESS) say("  %lld bytes before", (long long)(memory + 16 - bound));
  first = 16 / 4 + 256 / 4 - 1;
  launch(kernel(module, "fetch"), 1, kWidth, NULL, parameters);
  show_words("its end");
  SEE(cuTexRefSetAddress_v2(&offset, line, 0, 256));
  SEE(cuTexRefSetAddress_v2(&offset, line, memory, 0));
  SEE(cuTexRefSetAddress_v2(&offset, NULL, memory, 256));
  CHECK(cuMemFree_v2(memory));
}

static void planes(CUmodule module, CUtexref image) {
  const size_t pitch = 512;
  const CUdeviceptr memory = allocate(pitch * kHeight);
  for (unsigned y = 0; y < kHeight; ++y) {
    unsigned char row[kWidth];
    for (unsigned x = 0; x < kWidth; ++x) row[x] = (unsigned char)(10 * y + x);
    CHECK(cuMemcpyHtoD_v2(memory + y * pitch, row, sizeof row));
  }
  const CUDA_ARRAY_DESCRIPTOR shape = {kWidth, kHeight, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  SEE(cuTexRefSetFlags(image, 0));
  SEE(cuTexRefSetAddress2D_v3(image, &shape, memory, pitch));
  SEE(cuTexRefSetAddress2D_v3(image, &shape, memory + 1, pitch));
  SEE(cuTexRefSetAddress2D_v3(image, &shape, memory, pitch + 1));
  SEE(cuTexRefSetAddress2D_v3(image, NULL, memory, pitch));
  float border[4] = {0.5f, 0, 0, 0};
  for (int d = 0; d < 2; ++d) SEE(cuTexRefSetAddressMode(image, d, CU_TR_ADDRESS_MODE_BORDER));
  SEE(cuTexRefSetBorderColor(image, border));
  read_image(module, 1, 1, "border");
  for (int d = 0; d < 2; ++d) SEE(cuTexRefSetAddressMode(image, d, CU_TR_ADDRESS_MODE_CLAMP));
  read_image(module, 1, 1, "clamped");
  SEE(cuTexRefSetFilterMode(image, CU_TR_FILTER_MODE_LINEAR));
  read_image(module, 1, 1, "filtered");
  SEE(cuTexRefSetFlags(image, CU_TRSF_NORMALIZED_COORDINATES));
  read_image(module, 0.5f, 0.125f, "normalised");
  SEE(cuTexRefSetFilterMode(image, (CUfilter_mode)7));
  SEE(cuTexRefSetAddressMode(image, 3, CU_TR_ADDRESS_MODE_CLAMP));
  SEE(cuTexRefSetAddressMode(image, 0, (CUaddress_mode)9));
  SEE(cuTexRefSetFormat(image, CU_AD_FORMAT_UNSIGNED_INT8, 3));
  SEE(cuTexRefSetFlags(image, 0x1000));
  SEE(cuTexRefSetBorderColor(image, NULL));
  SEE(cuTexRefSetMipmapLevelBias(image, -0.5f));
  SEE(cuTexRefSetMipmapLevelClamp(image, 1.5f, 2.5f));
  SEE(cuTexRefSetMipmapFilterMode(image, CU_TR_FILTER_MODE_LINEAR));
  SEE(cuTexRefSetMaxAnisotropy(image, 40));
  defaults(image);
  CHECK(cuMemFree_v2(memory));
}

PROGRAM("texture-references", "texture and surface references: what is bound to them, what they say, and their errors") {
  primary();
  CUmodule module;
  if (SEE(cuModuleLoadData(&module, kImage)) != CUDA_SUCCESS) return;
  out = allocate(kCount * sizeof(unsigned));
  CUtexref image = NULL, line = NULL, again = NULL;
  CUsurfref canvas = NULL, none = NULL;
  SEE(cuModuleGetTexRef(&image, module, "image"));
  SEE(cuModuleGetTexRef(&line, module, "line"));
  SEE(cuModuleGetSurfRef(&canvas, module, "canvas"));
  SEE(cuModuleGetTexRef(&again, module, "image"));
  say("one for a name: %s", yes(again == image));
  SEE(cuModuleGetTexRef(&again, module, "canvas"));
  SEE(cuModuleGetSurfRef(&none, module, "image"));
  SEE(cuModuleGetTexRef(&again, module, "nothing"));
  SEE(cuModuleGetTexRef(NULL, module, "image"));
  SEE(cuModuleGetTexRef(&again, module, NULL));
  SEE(cuModuleGetTexRef(&again, NULL, "image"));
  CUdeviceptr address = 0;
  SEE(cuModuleGetGlobal_v2(&address, NULL, module, "image"));
  if (image && line && canvas) {
    defaults(image);
    arrays(module, image, canvas);
    lines(module, line);
    planes(module, image);
    CUfunction function = kernel(module, "read");
    SEE(cuParamSetTexRef(function, CU_PARAM_TR_DEFAULT, image));
    SEE(cuParamSetTexRef(function, 0, image));
    SEE(cuParamSetTexRef(function, CU_PARAM_TR_DEFAULT, NULL));
  }
  CUtexref own = NULL;
  if (SEE(cuTexRefCreate(&own)) == CUDA_SUCCESS && own) {
    defaults(own);
    SEE(cuTexRefDestroy(own));
  }
  SEE(cuTexRefCreate(NULL));
  SEE(cuTexRefDestroy(NULL));
  SEE(cuTexRefSetFlags(NULL, 0));
  CHECK(cuMemFree_v2(out));
  CHECK(cuModuleUnload(module));
}
