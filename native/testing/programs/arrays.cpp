// SPDX-License-Identifier: Apache-2.0
// Arrays and copies in up to three dimensions, between all kinds of memory.
#include <numeric>

#include "testing/programs/program.h"

namespace millpond::programs {
namespace {

constexpr size_t kWidth = 37, kHeight = 19, kDepth = 5;  // elements
constexpr size_t kRow = kWidth * sizeof(uint32_t);
constexpr size_t kAll = kWidth * kHeight * kDepth;

size_t freeBytes() {
  size_t free = 0, total = 0;
  OK(cuMemGetInfo_v2(&free, &total));
  return free;
}

CUarray makeArray(size_t width, size_t height, size_t depth, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = width;
  desc.Height = height;
  desc.Depth = depth;
  desc.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  desc.NumChannels = 1;
  desc.Flags = flags;
  CUarray array = nullptr;
  OK(cuArray3DCreate_v2(&array, &desc));
  return array;
}

CUDA_MEMCPY3D whole() {
  CUDA_MEMCPY3D copy{};
  copy.WidthInBytes = kRow;
  copy.Height = kHeight;
  copy.Depth = kDepth;
  return copy;
}

/// Host, array, device memory with margins, array, host: the data must survive.
void thereAndBack(uint32_t* in, uint32_t* out) {
  const CUarray first = makeArray(kWidth, kHeight, kDepth);
  const CUarray second = makeArray(kWidth + 3, kHeight + 2, kDepth + 1);
  constexpr size_t kPitch = 512, kRows = kHeight + 4;
  CUdeviceptr device = 0;
  OK(cuMemAlloc_v2(&device, kPitch * kRows * kDepth));
  OK(cuMemsetD8_v2(device, 0xee, kPitch * kRows * kDepth));

  CUDA_MEMCPY3D copy = whole();
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = in;
  copy.srcPitch = kRow;
  copy.srcHeight = kHeight;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = first;
  OK(cuMemcpy3D_v2(&copy));

  copy = whole();
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = first;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstXInBytes = 8;
  copy.dstY = 3;
  copy.dstPitch = kPitch;
  copy.dstHeight = kRows;
  OK(cuMemcpy3D_v2(&copy));
  uint32_t words[2] = {};
  OK(cuMemcpyDtoH_v2(words, device + 3 * kPitch + 4, sizeof words));
  REQUIRE(words[0] == 0xeeeeeeee && words[1] == in[0]);

  copy = whole();
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = device;
  copy.srcXInBytes = 8;
  copy.srcY = 3;
  copy.srcPitch = kPitch;
  copy.srcHeight = kRows;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = second;
  copy.dstXInBytes = 12;
  copy.dstY = 2;
  copy.dstZ = 1;
  OK(cuMemcpy3D_v2(&copy));

  // Copies within the device are not waited for, and the stream does not wait for them.
  OK(cuStreamSynchronize(nullptr));
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  copy = whole();
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = second;
  copy.srcXInBytes = 12;
  copy.srcY = 2;
  copy.srcZ = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = out;
  copy.dstPitch = kRow;
  copy.dstHeight = kHeight;
  OK(cuMemcpy3DAsync_v2(&copy, stream));
  OK(cuStreamSynchronize(stream));
  for (size_t i = 0; i < kAll; ++i) REQUIRE(out[i] == in[i]);

  // The same without arrays.
  std::fill(out, out + kAll, 0u);
  copy = whole();
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = device;
  copy.srcXInBytes = 8;
  copy.srcY = 3;
  copy.srcPitch = kPitch;
  copy.srcHeight = kRows;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = out;
  copy.dstPitch = kRow;
  copy.dstHeight = kHeight;
  OK(cuMemcpy3D_v2(&copy));
  for (size_t i = 0; i < kAll; ++i) REQUIRE(out[i] == in[i]);

  copy.WidthInBytes = kPitch + 1;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&copy));
  OK(cuStreamDestroy_v2(stream));
  OK(cuMemFree_v2(device));
  OK(cuArrayDestroy(first));
  OK(cuArrayDestroy(second));
}

void rowsAndPlanes() {
  const CUarray line = makeArray(1000, 0, 0);
  std::vector<uint32_t> in(1000), out(1000);
  std::iota(in.begin(), in.end(), 3u);
  OK(cuMemcpyHtoA_v2(line, 0, in.data(), 4000));
  OK(cuMemcpyAtoH_v2(out.data(), line, 400, 3600));
  REQUIRE(out[0] == 103 && out[899] == 1002);
  CUdeviceptr device = 0;
  OK(cuMemAlloc_v2(&device, 4000));
  OK(cuMemcpyAtoD_v2(device, line, 0, 4000));
  launchAdd(device, 7, 1000);
  OK(cuMemcpyDtoA_v2(line, 0, device, 2000));
  const CUarray other = makeArray(1000, 0, 0);
  OK(cuMemcpyAtoA_v2(other, 0, line, 0, 4000));
  OK(cuMemcpyAtoH_v2(out.data(), other, 0, 4000));
  REQUIRE(out[0] == 10 && out[499] == 509 && out[500] == 503);

  const CUarray plane = makeArray(64, 32, 0);
  CUDA_ARRAY_DESCRIPTOR desc{};
  OK(cuArrayGetDescriptor_v2(&desc, plane));
  REQUIRE(desc.Width == 64 && desc.Height == 32 && desc.NumChannels == 1);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = in.data();
  copy.srcPitch = 100;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = plane;
  copy.dstXInBytes = 20;
  copy.dstY = 4;
  copy.WidthInBytes = 100;
  copy.Height = 10;
  OK(cuMemcpy2D_v2(&copy));
  copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = plane;
  copy.srcXInBytes = 20;
  copy.srcY = 5;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = out.data();
  copy.dstPitch = 200;
  copy.WidthInBytes = 100;
  copy.Height = 2;
  OK(cuMemcpy2D_v2(&copy));
  REQUIRE(out[0] == 28 && out[24] == 52 && out[50] == 53);
  OK(cuMemFree_v2(device));
  OK(cuArrayDestroy(line));
  OK(cuArrayDestroy(other));
  OK(cuArrayDestroy(plane));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(plane));
}

void levels() {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = 16;
  desc.Height = 8;
  desc.Format = CU_AD_FORMAT_FLOAT;
  desc.NumChannels = 4;
  CUmipmappedArray all = nullptr;
  OK(cuMipmappedArrayCreate(&all, &desc, 3));
  CUarray level = nullptr, again = nullptr;
  OK(cuMipmappedArrayGetLevel(&level, all, 2));
  OK(cuMipmappedArrayGetLevel(&again, all, 2));
  REQUIRE(level == again);
  OK(cuArray3DGetDescriptor_v2(&desc, level));
  REQUIRE(desc.Width == 4 && desc.Height == 2 && desc.NumChannels == 4);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&again, all, 3));
  OK(cuMipmappedArrayDestroy(all));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&desc, level));
}

}  // namespace

void arrays() {
  useDevice();
  const size_t before = freeBytes();
  std::vector<uint32_t> in(kAll), out(kAll);
  std::iota(in.begin(), in.end(), 17u);
  thereAndBack(in.data(), out.data());
  void *pinnedIn = nullptr, *pinnedOut = nullptr;
  OK(cuMemHostAlloc(&pinnedIn, kAll * 4, 0));
  OK(cuMemHostAlloc(&pinnedOut, kAll * 4, 0));
  std::copy(in.begin(), in.end(), static_cast<uint32_t*>(pinnedIn));
  thereAndBack(static_cast<uint32_t*>(pinnedIn), static_cast<uint32_t*>(pinnedOut));
  OK(cuMemFreeHost(pinnedIn));
  OK(cuMemFreeHost(pinnedOut));
  rowsAndPlanes();
  levels();
  OK(cuCtxSynchronize());
  REQUIRE(freeBytes() == before);
  CUDA_ARRAY3D_DESCRIPTOR large{};
  large.Width = 16384;
  large.Height = 16384;
  large.Depth = 0;
  large.Format = CU_AD_FORMAT_FLOAT;
  large.NumChannels = 4;
  CUarray array = nullptr;
  EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuArray3DCreate_v2(&array, &large));
  large.NumChannels = 3;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, &large));
}

}  // namespace millpond::programs
