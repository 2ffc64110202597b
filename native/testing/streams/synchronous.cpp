// SPDX-License-Identifier: Apache-2.0
// Work that a program gives other streams after a synchronous copy from its memory sees the bytes, whatever the shape of the
// copy and however many were made before it, though no stream is ordered with another.
#include <functional>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr int kRounds = 50;
constexpr size_t kStreams = 3;

std::vector<int> numbers(size_t count, int first) {
  std::vector<int> made(count);
  for (size_t i = 0; i < count; ++i) made[i] = first + static_cast<int>(i);
  return made;
}

/// Copies `count` words from the host, synchronously.
using Copy = std::function<void(const int* host, size_t count)>;
/// Copies as many words to an address of the device, in a stream.
using Take = std::function<void(CUdeviceptr to, size_t count, CUstream in)>;

void takeRange(CUdeviceptr from, CUdeviceptr to, size_t count, CUstream in) {
  OK(CU(cuMemcpyDtoDAsync_v2)(to, from, count * sizeof(int), in));
}

/// In each round, streams take what has just been copied.
void follow(size_t count, const Copy& copy, const Take& take) {
  context();
  CUstream streams[kStreams];
  CUdeviceptr results[kStreams];
  for (size_t i = 0; i < kStreams; ++i) {
    streams[i] = stream();
    results[i] = allocate(count * sizeof(int));
  }
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<int> host = numbers(count, 1 + round * 100'000);
    copy(host.data(), count);
    for (size_t i = 0; i < kStreams; ++i) take(results[i], count, streams[i]);
    for (size_t i = 0; i < kStreams; ++i) {
      OK(CU(cuStreamSynchronize)(streams[i]));
      CHECK(read(results[i], count) == host);
    }
  }
  for (CUdeviceptr each : results) OK(CU(cuMemFree_v2)(each));
  for (CUstream each : streams) OK(CU(cuStreamDestroy_v2)(each));
}

/// Rows of `width` bytes that lie apart on both sides, to memory of the device.
void followRows(size_t width, size_t height, size_t depth) {
  context();
  const size_t pitch = 2 * width, count = width * height * depth / sizeof(int);
  const CUdeviceptr device = allocate(pitch * height * depth), packed = allocate(width * height * depth);
  std::vector<std::byte> apart(pitch * height * depth);
  CUDA_MEMCPY3D box{};
  box.WidthInBytes = width;
  box.Height = height;
  box.Depth = depth;
  follow(
      count,
      [&](const int* host, size_t) {
        for (size_t row = 0; row < height * depth; ++row)
          std::memcpy(apart.data() + row * pitch, reinterpret_cast<const std::byte*>(host) + row * width, width);
        CUDA_MEMCPY3D copy = box;
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = apart.data();
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = device;
        copy.srcPitch = copy.dstPitch = pitch;
        copy.srcHeight = copy.dstHeight = height;
        OK(CU(cuMemcpy3D_v2)(&copy));
      },
      [&](CUdeviceptr to, size_t, CUstream in) {
        CUDA_MEMCPY3D copy = box;
        copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = device;
        copy.dstDevice = to;
        copy.srcPitch = pitch;
        copy.dstPitch = width;
        copy.srcHeight = copy.dstHeight = height;
        OK(CU(cuMemcpy3DAsync_v2)(&copy, in));
      });
  for (CUdeviceptr each : {device, packed}) OK(CU(cuMemFree_v2)(each));
}

/// Rows to a two-dimensional array, or one row to a one-dimensional one.
void followArray(size_t columns, size_t height) {
  context();
  const size_t width = columns * sizeof(int), rows = height == 0 ? 1 : height;
  CUDA_ARRAY_DESCRIPTOR shape{};
  shape.Width = columns;
  shape.Height = height;
  shape.Format = CU_AD_FORMAT_SIGNED_INT32;
  shape.NumChannels = 1;
  CUarray array = nullptr;
  OK(CU(cuArrayCreate_v2)(&array, &shape));
  CUDA_MEMCPY2D base{};
  base.WidthInBytes = width;
  base.Height = rows;
  follow(
      columns * rows,
      [&](const int* host, size_t) {
        CUDA_MEMCPY2D copy = base;
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = host;
        copy.srcPitch = width;
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.dstArray = array;
        OK(CU(cuMemcpy2D_v2)(&copy));
      },
      [&](CUdeviceptr to, size_t, CUstream in) {
        CUDA_MEMCPY2D copy = base;
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.srcArray = array;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = to;
        copy.dstPitch = width;
        OK(CU(cuMemcpy2DAsync_v2)(&copy, in));
      });
  OK(CU(cuArrayDestroy)(array));
}

/// Words that are copied in parts, one copy behind the other, with `between` after each.
void followParts(size_t parts, const std::function<void(CUdeviceptr part, size_t bytes)>& between) {
  context();
  constexpr size_t kCount = 2048;
  const CUdeviceptr device = allocate(kCount * sizeof(int));
  follow(
      kCount,
      [&](const int* host, size_t count) {
        const size_t words = count / parts;
        for (size_t at = 0; at < count; at += words) {
          OK(CU(cuMemcpyHtoD_v2)(device + at * sizeof(int), host + at, words * sizeof(int)));
          between(device + at * sizeof(int), words * sizeof(int));
        }
      },
      [&](CUdeviceptr to, size_t count, CUstream in) { takeRange(device, to, count, in); });
  OK(CU(cuMemFree_v2)(device));
}

}  // namespace

TEST("other streams follow one copy") {
  followParts(1, [](CUdeviceptr, size_t) {});
}

TEST("and copies one behind the other") {
  followParts(16, [](CUdeviceptr, size_t) {});
}

TEST("also where other streams get work after each of them") {
  const CUstream other = (context(), stream());
  const CUdeviceptr result = allocate(8192);
  followParts(16, [&](CUdeviceptr part, size_t bytes) { OK(CU(cuMemcpyDtoDAsync_v2)(result, part, bytes, other)); });
  OK(CU(cuStreamSynchronize)(other));
  OK(CU(cuMemFree_v2)(result));
  OK(CU(cuStreamDestroy_v2)(other));
}

TEST("and copies of the thread's own default stream") {
  context();
  decltype(&::cuMemcpyHtoD_v2) copy = nullptr;
  CUdriverProcAddressQueryResult found{};
  const CUresult has = CU(cuGetProcAddress_v2)("cuMemcpyHtoD", reinterpret_cast<void**>(&copy), 12000,
                                               CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found);
  // The software GPU's own driver has no such streams; the client library makes them.
  if (has == CUDA_ERROR_NOT_SUPPORTED) return;
  OK(has);
  const CUdeviceptr device = allocate(8192);
  follow(
      2048,
      [&](const int* host, size_t count) {
        for (size_t at = 0; at < count; at += 512) OK(copy(device + at * sizeof(int), host + at, 512 * sizeof(int)));
      },
      [&](CUdeviceptr to, size_t count, CUstream in) { takeRange(device, to, count, in); });
  OK(CU(cuMemFree_v2)(device));
}

TEST("and many short rows") { followRows(64, 100, 1); }
TEST("and few long ones") { followRows(16384, 3, 1); }
TEST("and boxes") { followRows(64, 16, 8); }
TEST("and a row of an array") { followArray(1024, 0); }
TEST("and the rows of one") { followArray(64, 40); }

int main(int argc, char** argv) { return run(argc, argv); }
