// SPDX-License-Identifier: Apache-2.0
// Arrays of several planes, and the errors of devices without sparse arrays.
#include <array>
#include <numeric>
#include <vector>

#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

constexpr size_t kImageWidth = 16;
constexpr size_t kImageHeight = 8;

CUDA_ARRAY3D_DESCRIPTOR describeArray(CUarray_format format, unsigned channels, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR wanted{};
  wanted.Width = kImageWidth;
  wanted.Height = kImageHeight;
  wanted.Format = format;
  wanted.NumChannels = channels;
  wanted.Flags = flags;
  return wanted;
}

void copyPlane(CUarray array, uint8_t* bytes, size_t width, size_t height, bool toArray) {
  CUDA_MEMCPY2D both{};
  both.srcMemoryType = toArray ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
  both.dstMemoryType = toArray ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
  both.srcHost = both.dstHost = bytes;
  both.srcArray = both.dstArray = array;
  (toArray ? both.srcPitch : both.dstPitch) = width;
  both.WidthInBytes = width;
  both.Height = height;
  OK(CU(cuMemcpy2D_v2)(&both));
}

}  // namespace

TEST("the planes of an array hold its brightness and colours, and end with it") {
  everywhere([] {
    begin();
    const CUDA_ARRAY3D_DESCRIPTOR wanted = describeArray(CU_AD_FORMAT_NV12, 3, CUDA_ARRAY3D_VIDEO_ENCODE_DECODE);
    CUarray image = nullptr;
    OK(CU(cuArray3DCreate_v2)(&image, &wanted));
    std::array<CUarray, 2> planes{};
    for (unsigned k = 0; k < planes.size(); ++k) {
      OK(CU(cuArrayGetPlane)(&planes[k], image, k));
      CUarray again = nullptr;
      OK(CU(cuArrayGetPlane)(&again, image, k));
      CHECK(again == planes[k]);
      CUDA_ARRAY3D_DESCRIPTOR told{};
      OK(CU(cuArray3DGetDescriptor_v2)(&told, planes[k]));
      CHECK_EQ(told.Width, kImageWidth / (k + 1));
      CHECK_EQ(told.Height, kImageHeight / (k + 1));
      CHECK_EQ(told.NumChannels, k + 1);
      CHECK(told.Format == CU_AD_FORMAT_UNSIGNED_INT8);
      std::vector<uint8_t> bytes(kImageWidth * told.Height);
      std::iota(bytes.begin(), bytes.end(), static_cast<uint8_t>(100 * k));
      copyPlane(planes[k], bytes.data(), kImageWidth, told.Height, true);
    }
    for (unsigned k = 0; k < planes.size(); ++k) {
      std::vector<uint8_t> bytes(kImageWidth * kImageHeight / (k + 1)), found(bytes.size());
      std::iota(bytes.begin(), bytes.end(), static_cast<uint8_t>(100 * k));
      copyPlane(planes[k], found.data(), kImageWidth, kImageHeight / (k + 1), false);
      CHECK(found == bytes);
      FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuArrayDestroy)(planes[k]));
    }
    CUarray none = nullptr;
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuArrayGetPlane)(&none, image, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuArrayGetPlane)(nullptr, image, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuArrayGetPlane)(&none, planes[0], 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuArrayGetPlane)(&none, nullptr, 0));
    OK(CU(cuArrayDestroy)(image));
    CUDA_ARRAY3D_DESCRIPTOR told{};
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuArray3DGetDescriptor_v2)(&told, planes[0]));
    const CUDA_ARRAY3D_DESCRIPTOR wrong = describeArray(CU_AD_FORMAT_NV12, 1, CUDA_ARRAY3D_VIDEO_ENCODE_DECODE);
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuArray3DCreate_v2)(&image, &wrong));
  });
}

TEST("a device without sparse arrays says so, makes none, and finds no array to be one") {
  everywhere([] {
    begin();
    int isPromised = 1;
    OK(CU(cuDeviceGetAttribute)(&isPromised, CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, 0));
    CHECK_EQ(isPromised, 0);
    CUarray array = nullptr;
    const CUDA_ARRAY3D_DESCRIPTOR sparse = describeArray(CU_AD_FORMAT_UNSIGNED_INT8, 1, CUDA_ARRAY3D_SPARSE);
    FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuArray3DCreate_v2)(&array, &sparse));
    const CUDA_ARRAY3D_DESCRIPTOR plain = describeArray(CU_AD_FORMAT_UNSIGNED_INT8, 1);
    OK(CU(cuArray3DCreate_v2)(&array, &plain));
    CUmipmappedArray levels = nullptr;
    OK(CU(cuMipmappedArrayCreate)(&levels, &plain, 2));
    CUDA_ARRAY_SPARSE_PROPERTIES properties{};
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuArrayGetSparseProperties)(&properties, array));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuArrayGetSparseProperties)(&properties, nullptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMipmappedArrayGetSparseProperties)(&properties, levels));
    CUarrayMapInfo entry{};
    entry.resourceType = CU_RESOURCE_TYPE_ARRAY;
    entry.resource.array = array;
    entry.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    entry.deviceBitMask = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemMapArrayAsync)(&entry, 1, nullptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemMapArrayAsync)(nullptr, 1, nullptr));
    OK(CU(cuMipmappedArrayDestroy)(levels));
    OK(CU(cuArrayDestroy)(array));
  });
}
