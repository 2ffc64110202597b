// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/memory/array.h"

namespace millpond::softgpu {

uint64_t elementBytes(CUarray_format format, unsigned channels) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return uint64_t{2} * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return uint64_t{4} * channels;
    default: return 0;
  }
}

}  // namespace millpond::softgpu
