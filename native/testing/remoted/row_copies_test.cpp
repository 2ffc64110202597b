// SPDX-License-Identifier: Apache-2.0
// Copies of rows that lie apart, between pageable memory and a device.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

constexpr int kMostDescriptors = 1024;
constexpr uint8_t kGap = 0xee;

/// How many TCP segments this process has sent over open connections.
uint64_t sentSegments() {
  // tcpi_segs_out in the kernel's tcp_info, which is longer than the C library's.
  constexpr size_t kPlace = 136;
  uint64_t sum = 0;
  for (int each = 0; each < kMostDescriptors; ++each) {
    std::array<std::byte, 256> info{};
    uint32_t segments = 0;
    socklen_t bytes = info.size();
    if (::getsockopt(each, IPPROTO_TCP, TCP_INFO, info.data(), &bytes) != 0 || bytes < kPlace + sizeof segments)
      continue;
    std::memcpy(&segments, info.data() + kPlace, sizeof segments);
    sum += segments;
  }
  return sum;
}

/// Rows of `width` bytes in slices of `height` of `rows` rows, `pitch` apart.
struct Layout {
  size_t width, height, depth, pitch, rows;
  size_t bytes() const { return pitch * rows * depth; }
  size_t at(size_t z, size_t y) const { return (z * rows + y) * pitch; }
};

uint8_t valueAt(size_t z, size_t y, size_t x) { return static_cast<uint8_t>((z * 31 + y * 7 + x) % 200); }

CUDA_MEMCPY3D between(const Layout& layout, uint8_t* host, CUdeviceptr device, bool toDevice) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = toDevice ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.dstMemoryType = toDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  copy.srcHost = copy.dstHost = host;
  copy.srcDevice = copy.dstDevice = device;
  copy.srcPitch = copy.dstPitch = layout.pitch;
  copy.srcHeight = copy.dstHeight = layout.rows;
  copy.WidthInBytes = layout.width;
  copy.Height = layout.height;
  copy.Depth = layout.depth;
  return copy;
}

void copyThereAndBack(const Layout& layout) {
  std::vector<uint8_t> source(layout.bytes(), kGap);
  const auto eachByte = [&](auto does) {
    for (size_t z = 0; z < layout.depth; ++z)
      for (size_t y = 0; y < layout.height; ++y)
        for (size_t x = 0; x < layout.width; ++x) does(layout.at(z, y) + x, valueAt(z, y, x));
  };
  eachByte([&](size_t at, uint8_t value) { source[at] = value; });
  CUdeviceptr device = 0;
  OK(CU(cuMemAlloc_v2)(&device, layout.bytes()));
  OK(CU(cuMemsetD8_v2)(device, 0x11, layout.bytes()));
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  OK(CU(cuCtxSynchronize)());
  const CUDA_MEMCPY3D there = between(layout, source.data(), device, true);
  OK(CU(cuMemcpy3DAsync_v2)(&there, stream));
  // The program may immediately reuse the memory.
  std::fill(source.begin(), source.end(), uint8_t{0});
  std::vector<uint8_t> whole(layout.bytes());
  OK(CU(cuMemcpyDtoHAsync_v2)(whole.data(), device, whole.size(), stream));
  OK(CU(cuStreamSynchronize)(stream));
  std::vector<uint8_t> wanted(layout.bytes(), 0x11);
  eachByte([&](size_t at, uint8_t value) { wanted[at] = value; });
  CHECK(whole == wanted);
  std::vector<uint8_t> back(layout.bytes(), kGap);
  const CUDA_MEMCPY3D again = between(layout, back.data(), device, false);
  OK(CU(cuMemcpy3DAsync_v2)(&again, stream));
  OK(CU(cuStreamSynchronize)(stream));
  std::fill(wanted.begin(), wanted.end(), kGap);
  eachByte([&](size_t at, uint8_t value) { wanted[at] = value; });
  CHECK(back == wanted);
  OK(CU(cuStreamDestroy_v2)(stream));
  OK(CU(cuMemFree_v2)(device));
}

}  // namespace

TEST("rows that lie apart are copied, and nothing between them") {
  everywhere([] {
    begin();
    // A few rows; rows with rows between the slices; more than fits into device memory at once, as rows or as slices; rows
    // too long to pack.
    for (const Layout& layout : {Layout{5, 3, 1, 8, 3}, Layout{60, 9, 4, 64, 11}, Layout{1000, 5000, 1, 1024, 5000},
                                 Layout{1000, 30, 301, 1024, 31}, Layout{70'000, 6, 1, 70'016, 6}})
      copyThereAndBack(layout);
  });
}

TEST("rows are copied where there is no memory to pack them in") {
  everywhere([] {
    begin();
    size_t free = 0, total = 0;
    OK(CU(cuMemGetInfo_v2)(&free, &total));
    constexpr Layout kLayout{60, 1024, 1, 64, 1024};
    std::vector<CUdeviceptr> taken;
    // Everything except the copied bytes.
    for (size_t bytes = total; bytes >= 4096; bytes /= 2)
      for (CUdeviceptr each = 0; CU(cuMemAlloc_v2)(&each, bytes) == CUDA_SUCCESS;) taken.push_back(each);
    size_t most = 0;
    CUdeviceptr memory = 0;
    for (const CUdeviceptr each : taken) {
      size_t bytes = 0;
      OK(CU(cuMemGetAddressRange_v2)(nullptr, &bytes, each));
      if (bytes < kLayout.bytes() || (most != 0 && bytes >= most)) continue;
      most = bytes;
      memory = each;
    }
    CHECK(memory != 0);
    std::vector<uint8_t> host(kLayout.bytes(), kGap);
    OK(CU(cuMemsetD8_v2)(memory, 0x22, kLayout.bytes()));
    const CUDA_MEMCPY3D copy = between(kLayout, host.data(), memory, false);
    OK(CU(cuMemcpy3D_v2)(&copy));
    for (size_t y = 0; y < kLayout.height; ++y) {
      CHECK_EQ(host[kLayout.at(0, y) + kLayout.width - 1], 0x22);
      CHECK_EQ(host[kLayout.at(0, y) + kLayout.width], kGap);
    }
  });
}

TEST("thousands of rows do not take a round trip each, nor do hundreds of slices") {
  const int status = runProgram(Way::kTcp, [] {
    begin();
    for (const Layout& layout : {Layout{60, 4096, 1, 64, 4096}, Layout{60, 8, 512, 64, 9}}) {
      CUdeviceptr device = 0;
      OK(CU(cuMemAlloc_v2)(&device, layout.bytes()));
      std::vector<uint8_t> host(layout.bytes());
      CUDA_MEMCPY3D copy = between(layout, host.data(), device, false);
      OK(CU(cuMemcpy3D_v2)(&copy));
      const uint64_t before = sentSegments();
      CHECK(before != 0);
      OK(CU(cuMemcpy3D_v2)(&copy));
      CHECK(sentSegments() - before < layout.height * layout.depth / 16);
      OK(CU(cuMemFree_v2)(device));
    }
  });
  CHECK_EQ(status, 0);
}
