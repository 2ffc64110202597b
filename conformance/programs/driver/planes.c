// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

enum { kWidth = 64, kHeight = 32 };

static void copy(CUarray array, unsigned char* bytes, size_t width, size_t height, bool toArray) {
  CUDA_MEMCPY2D both;
  memset(&both, 0, sizeof both);
  both.srcMemoryType = toArray ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
  both.dstMemoryType = toArray ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
  both.srcHost = bytes;
  both.dstHost = bytes;
  both.srcArray = array;
  both.dstArray = array;
  both.srcPitch = toArray ? width : 0;
  both.dstPitch = toArray ? 0 : width;
  both.WidthInBytes = width;
  both.Height = height;
  SEE(cuMemcpy2D_v2(&both));
}

static void planes_of(const char* name, CUarray_format format, unsigned channels, unsigned flags) {
  CUDA_ARRAY3D_DESCRIPTOR wanted;
  memset(&wanted, 0, sizeof wanted);
  wanted.Width = kWidth;
  wanted.Height = kHeight;
  wanted.Format = format;
  wanted.NumChannels = channels;
  wanted.Flags = flags;
  CUarray image = NULL;
  say("-- %s of %u", name, channels);
  if (SEE(cuArray3DCreate_v2(&image, &wanted)) != CUDA_SUCCESS) return;
  for (unsigned k = 0; k < 4; ++k) {
    CUarray plane = NULL, again = NULL;
    if (SEE(cuArrayGetPlane(&plane, image, k)) != CUDA_SUCCESS) continue;
    CHECK(cuArrayGetPlane(&again, image, k));
    CUDA_ARRAY3D_DESCRIPTOR told;
    CHECK(cuArray3DGetDescriptor_v2(&told, plane));
    say("  plane %u: %zu × %zu × %zu, format %#x of %u, flags %#x, one: %s", k, told.Width, told.Height, told.Depth,
        (unsigned)told.Format, told.NumChannels, told.Flags, yes(plane == again));
    static unsigned char bytes[kWidth * kHeight * 2], found[sizeof bytes];
    for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = (unsigned char)(i * 7 + k);
    const size_t width = told.Width * told.NumChannels * (told.Format == CU_AD_FORMAT_UNSIGNED_INT16 ? 2 : 1);
    copy(plane, bytes, width, told.Height, true);
    copy(plane, found, width, told.Height, false);
    say("  comes back: %s", yes(memcmp(bytes, found, width * told.Height) == 0));
    CUarray none = NULL;
    SEE(cuArrayGetPlane(&none, plane, 0));
  }
  CUarray none = NULL;
  SEE(cuArrayGetPlane(NULL, image, 0));
  SEE(cuArrayGetPlane(&none, NULL, 0));
  CHECK(cuArrayDestroy(image));
}

PROGRAM("planes", "arrays of formats with several planes, and each plane as an array") {
  primary();
  planes_of("NV12", CU_AD_FORMAT_NV12, 3, 0);
  planes_of("NV12", CU_AD_FORMAT_NV12, 1, 0);
  planes_of("P010", CU_AD_FORMAT_P010, 3, 0);
  planes_of("NV16", CU_AD_FORMAT_NV16, 3, 0);
  planes_of("Y444", CU_AD_FORMAT_Y444_PLANAR8, 3, 0);
  planes_of("bytes", CU_AD_FORMAT_UNSIGNED_INT8, 1, 0);
  planes_of("NV12 for video", CU_AD_FORMAT_NV12, 3, CUDA_ARRAY3D_VIDEO_ENCODE_DECODE);
}
