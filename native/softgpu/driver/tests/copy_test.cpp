// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "softgpu/driver/tests/gate.h"

namespace millpond::softgpu::testing {
namespace {

std::vector<uint8_t> pattern(size_t size) {
  std::vector<uint8_t> bytes(size);
  uint32_t state = 1;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t size) { OK(CU(cuMemAlloc_v2)(&pointer_, size)); }
  ~DeviceBuffer() { CU(cuMemFree_v2)(pointer_); }
  CUdeviceptr at(size_t offset = 0) const { return pointer_ + offset; }

 private:
  CUdeviceptr pointer_ = 0;
};

std::vector<uint8_t> read(CUdeviceptr from, size_t size) {
  std::vector<uint8_t> bytes(size);
  OK(CU(cuMemcpyDtoH_v2)(bytes.data(), from, size));
  return bytes;
}

TEST("bytes survive every way to the device and back") {
  PrimaryContext context;
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  for (size_t size : {size_t{1}, size_t{4096}, size_t{65536}, size_t{65537}, size_t{3} << 20}) {
    const std::vector<uint8_t> source = pattern(size);
    DeviceBuffer first(size);
    DeviceBuffer second(size);
    OK(CU(cuMemcpyHtoD_v2)(first.at(), source.data(), size));
    OK(CU(cuMemcpyDtoD_v2)(second.at(), first.at(), size));
    CHECK(read(second.at(), size) == source);

    std::vector<uint8_t> back(size);
    OK(CU(cuMemsetD8Async)(first.at(), 0, size, stream));
    OK(CU(cuMemcpyHtoDAsync_v2)(first.at(), source.data(), size, stream));
    OK(CU(cuMemcpyDtoDAsync_v2)(second.at(), first.at(), size, stream));
    OK(CU(cuMemcpyDtoHAsync_v2)(back.data(), second.at(), size, stream));
    OK(CU(cuStreamSynchronize)(stream));
    CHECK(back == source);

    std::fill(back.begin(), back.end(), uint8_t{0});
    OK(CU(cuMemcpy)(first.at(), reinterpret_cast<CUdeviceptr>(source.data()), size));
    OK(CU(cuMemcpy)(reinterpret_cast<CUdeviceptr>(back.data()), first.at(), size));
    CHECK(back == source);
    std::fill(back.begin(), back.end(), uint8_t{0});
    OK(CU(cuMemcpyAsync)(second.at(), first.at(), size, stream));
    OK(CU(cuMemcpyAsync)(reinterpret_cast<CUdeviceptr>(back.data()), second.at(), size, stream));
    CHECK(back == source);
  }
  OK(CU(cuStreamDestroy_v2)(stream));
}

TEST("small pageable memory is read before the call returns, pinned memory when its turn comes") {
  PrimaryContext context;
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  DeviceBuffer buffer(8);
  uint32_t pageable = 1;
  void* pinned = nullptr;
  OK(CU(cuMemHostAlloc)(&pinned, 4, 0));
  *static_cast<uint32_t*>(pinned) = 1;
  {
    Gate gate;
    gate.close(stream);
    OK(CU(cuMemcpyHtoDAsync_v2)(buffer.at(0), &pageable, 4, stream));
    OK(CU(cuMemcpyHtoDAsync_v2)(buffer.at(4), pinned, 4, stream));
    pageable = 2;
    *static_cast<uint32_t*>(pinned) = 2;
    FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(stream));
    gate.open();
    OK(CU(cuStreamSynchronize)(stream));
  }
  uint32_t values[2];
  OK(CU(cuMemcpyDtoH_v2)(values, buffer.at(), 8));
  CHECK_EQ(values[0], 1u);
  CHECK_EQ(values[1], 2u);
  OK(CU(cuMemFreeHost)(pinned));
  OK(CU(cuStreamDestroy_v2)(stream));
}

TEST("ranges are checked at the call") {
  PrimaryContext context;
  DeviceBuffer buffer(1000);
  std::vector<uint8_t> host(2000);
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoD_v2)(buffer.at(), host.data(), 1001));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoDAsync_v2)(buffer.at(1), host.data(), 1000, stream));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyDtoHAsync_v2)(host.data(), 0xDEAD0000, 16, stream));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyDtoH_v2)(host.data(), reinterpret_cast<CUdeviceptr>(host.data()), 16));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoD_v2)(buffer.at(), nullptr, 16));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoD_v2)(buffer.at(), host.data(), SIZE_MAX));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD8Async)(buffer.at(999), 0, 2, stream));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD32_v2)(buffer.at(2), 0, 1));
  FAILS(CUDA_ERROR_INVALID_HANDLE,
        CU(cuMemcpyHtoDAsync_v2)(buffer.at(), host.data(), 16, reinterpret_cast<CUstream>(0x77)));
  OK(CU(cuMemcpyHtoD_v2)(buffer.at(), host.data(), 0));
  OK(CU(cuMemcpyHtoD_v2)(buffer.at(), host.data(), 1000));
  // None of these broke the context.
  OK(CU(cuCtxSynchronize)());
  OK(CU(cuStreamDestroy_v2)(stream));
}

TEST("fills of every width") {
  PrimaryContext context;
  DeviceBuffer buffer(64);
  OK(CU(cuMemsetD8_v2)(buffer.at(), 0x11, 64));
  OK(CU(cuMemsetD16_v2)(buffer.at(8), 0x2233, 4));
  OK(CU(cuMemsetD32_v2)(buffer.at(32), 0x44556677, 2));
  std::vector<uint8_t> bytes = read(buffer.at(), 64);
  CHECK_EQ(int{bytes[7]}, 0x11);
  CHECK_EQ(int{bytes[8]}, 0x33);
  CHECK_EQ(int{bytes[15]}, 0x22);
  CHECK_EQ(int{bytes[16]}, 0x11);
  CHECK_EQ(int{bytes[32]}, 0x77);
  CHECK_EQ(int{bytes[39]}, 0x44);
  CHECK_EQ(int{bytes[40]}, 0x11);
  OK(CU(cuMemsetD2D8_v2)(buffer.at(), 16, 0xEE, 2, 4));
  OK(CU(cuMemsetD2D16_v2)(buffer.at(4), 16, 0xABCD, 1, 2));
  OK(CU(cuMemsetD2D32_v2)(buffer.at(8), 16, 7, 1, 4));
  bytes = read(buffer.at(), 64);
  for (size_t row = 0; row < 4; ++row) {
    CHECK_EQ(int{bytes[row * 16]}, 0xEE);
    CHECK_EQ(int{bytes[row * 16 + 1]}, 0xEE);
    CHECK(bytes[row * 16 + 2] != 0xEE);
    CHECK_EQ(int{bytes[row * 16 + 8]}, 7);
    CHECK_EQ(bytes[row * 16 + 4] == 0xCD, row < 2);
  }
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD2D32_v2)(buffer.at(), 2, 7, 1, 4));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD2D8_v2)(buffer.at(), 16, 7, 16, 5));
}

TEST("two dimensions: parts of matrices move between pitches") {
  PrimaryContext context;
  constexpr size_t kWidth = 30, kHeight = 20, kHostPitch = 37, kDevicePitch = 64;
  DeviceBuffer buffer(kDevicePitch * kHeight);
  const std::vector<uint8_t> source = pattern(kHostPitch * kHeight);
  OK(CU(cuMemsetD8_v2)(buffer.at(), 0, kDevicePitch * kHeight));
  CUDA_MEMCPY2D up{};
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = source.data();
  up.srcPitch = kHostPitch;
  up.srcXInBytes = 3;
  up.srcY = 2;
  up.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  up.dstDevice = buffer.at();
  up.dstPitch = kDevicePitch;
  up.dstXInBytes = 5;
  up.dstY = 1;
  up.WidthInBytes = kWidth;
  up.Height = 10;
  OK(CU(cuMemcpy2D_v2)(&up));
  std::vector<uint8_t> back(kHostPitch * kHeight);
  CUDA_MEMCPY2D down = up;
  std::swap(down.srcMemoryType, down.dstMemoryType);
  down.srcDevice = buffer.at();
  down.srcPitch = kDevicePitch;
  down.srcXInBytes = 5;
  down.srcY = 1;
  down.dstHost = back.data();
  down.dstPitch = kHostPitch;
  down.dstXInBytes = 3;
  down.dstY = 2;
  OK(CU(cuMemcpy2DUnaligned_v2)(&down));
  for (size_t y = 0; y < kHeight; ++y) {
    for (size_t x = 0; x < kHostPitch; ++x) {
      const bool isInside = x >= 3 && x < 3 + kWidth && y >= 2 && y < 12;
      CHECK_EQ(int{back[y * kHostPitch + x]}, isInside ? int{source[y * kHostPitch + x]} : 0);
    }
  }
  up.dstPitch = 8;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpy2D_v2)(&up));
  up.dstPitch = kDevicePitch;
  up.dstY = kHeight - 5;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpy2DAsync_v2)(&up, nullptr));
  up.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuMemcpy2D_v2)(&up));
}

TEST("three dimensions: a box out of a volume") {
  PrimaryContext context;
  constexpr size_t kX = 8, kY = 7, kZ = 6;
  const std::vector<uint8_t> volume = pattern(kX * kY * kZ);
  DeviceBuffer buffer(volume.size());
  OK(CU(cuMemcpyHtoD_v2)(buffer.at(), volume.data(), volume.size()));
  std::vector<uint8_t> box(3 * 4 * 2);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = buffer.at();
  copy.srcPitch = kX;
  copy.srcHeight = kY;
  copy.srcXInBytes = 1;
  copy.srcY = 2;
  copy.srcZ = 3;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = box.data();
  copy.dstPitch = 3;
  copy.dstHeight = 4;
  copy.WidthInBytes = 3;
  copy.Height = 4;
  copy.Depth = 2;
  OK(CU(cuMemcpy3D_v2)(&copy));
  for (size_t z = 0; z < 2; ++z) {
    for (size_t y = 0; y < 4; ++y) {
      for (size_t x = 0; x < 3; ++x) {
        CHECK_EQ(int{box[(z * 4 + y) * 3 + x]}, int{volume[((z + 3) * kY + y + 2) * kX + x + 1]});
      }
    }
  }
  copy.srcZ = 5;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpy3D_v2)(&copy));
}

TEST("from one device to the other") {
  PrimaryContext zero(0);
  PrimaryContext one(1);
  const std::vector<uint8_t> source = pattern(10000);
  CUdeviceptr there = 0;
  OK(CU(cuMemAlloc_v2)(&there, source.size()));
  OK(CU(cuMemcpyHtoD_v2)(there, source.data(), source.size()));
  OK(CU(cuCtxPushCurrent_v2)(zero.handle()));
  {
    DeviceBuffer here(source.size());
    OK(CU(cuMemcpyPeer)(here.at(), zero.handle(), there, one.handle(), source.size()));
    CHECK(read(here.at(), source.size()) == source);
  }
  OK(CU(cuCtxPopCurrent_v2)(nullptr));
  OK(CU(cuMemFree_v2)(there));
}

TEST("a queued copy whose memory is unmapped meanwhile ends the context, not the process") {
  OK(CU(cuInit)(0));
  CUcontext own = nullptr;
  OK(CU(cuCtxCreate_v2)(&own, 0, 0));
  constexpr size_t kGranule = size_t{2} << 20;
  CUdeviceptr base = 0;
  OK(CU(cuMemAddressReserve)(&base, kGranule, 0, 0, 0));
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  OK(CU(cuMemCreate)(&handle, kGranule, &properties, 0));
  OK(CU(cuMemMap)(base, kGranule, 0, handle, 0));
  OK(CU(cuMemRelease)(handle));
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(CU(cuMemSetAccess)(base, kGranule, &access, 1));
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  Gate gate;
  gate.close(stream);
  OK(CU(cuMemsetD8Async)(base, 1, kGranule, stream));
  OK(CU(cuMemUnmap)(base, kGranule));
  gate.open();
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuStreamSynchronize)(stream));
  CUdeviceptr pointer = 0;
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuMemAlloc_v2)(&pointer, 16));
  FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, CU(cuCtxSynchronize)());
  OK(CU(cuCtxDestroy_v2)(own));
  OK(CU(cuMemAddressFree)(base, kGranule));
  PrimaryContext context;
  OK(CU(cuCtxSynchronize)());
}

}  // namespace
}  // namespace millpond::softgpu::testing
