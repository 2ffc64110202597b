// SPDX-License-Identifier: Apache-2.0
#include "cuda/array_format.h"

namespace millpond {

Planes planesOf(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_NV12:
    case CU_AD_FORMAT_NV16:
    case CU_AD_FORMAT_YUV444_8bit_SemiPlanar: return {2, 1};
    case CU_AD_FORMAT_P010:
    case CU_AD_FORMAT_P016:
    case CU_AD_FORMAT_P210:
    case CU_AD_FORMAT_P216:
    case CU_AD_FORMAT_YUV444_16bit_SemiPlanar: return {2, 2};
    case CU_AD_FORMAT_Y444_PLANAR8: return {3, 1};
    case CU_AD_FORMAT_Y444_PLANAR10: return {3, 2};
    default: return {};
  }
}

uint32_t elementBytes(CUarray_format format, unsigned channels) {
  if (channels == 3) return planesOf(format).sampleBytes;
  if (channels != 1 && channels != 2 && channels != 4) return 0;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4 * channels;
    default: return 0;
  }
}

}  // namespace millpond
