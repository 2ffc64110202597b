// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("copies", "copies of the driver: every direction, unified, two and three dimensions, ranges") {
  primary();
  unsigned char in[2048], out[2048];
  for (size_t i = 0; i < sizeof in; ++i) in[i] = (unsigned char)(i * 7);
  CUdeviceptr a = allocate(sizeof in), b = allocate(sizeof in);
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemcpyHtoD_v2(a, in, sizeof in));
  CHECK(cuMemcpyDtoD_v2(b, a, sizeof in));
  CHECK(cuMemcpyDtoH_v2(out, b, sizeof out));
  say("through two buffers: %s", yes(memcmp(in, out, sizeof in) == 0));
  memset(out, 0, sizeof out);
  CHECK(cuMemcpy((CUdeviceptr)(uintptr_t)out, a, 100));
  CHECK(cuMemcpyAsync(b, (CUdeviceptr)(uintptr_t)in, 100, stream));
  CHECK(cuStreamSynchronize(stream));
  say("unified: %s", yes(memcmp(in, out, 100) == 0));
  CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = 64, .srcXInBytes = 4, .srcY = 2,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = b, .dstPitch = 32, .dstXInBytes = 8, .dstY = 1,
                         .WidthInBytes = 20, .Height = 10};
  CHECK(cuMemsetD8_v2(b, 0, sizeof in));
  SEE(cuMemcpy2D_v2(&plane));
  CHECK(cuMemcpyDtoH_v2(out, b, sizeof out));
  say("plane: %016llx, first %u", digest(out, sizeof out), out[40]);
  plane.srcMemoryType = CU_MEMORYTYPE_DEVICE, plane.srcDevice = a;
  plane.dstXInBytes = 3;
  SEE(cuMemcpy2DUnaligned_v2(&plane));
  SEE(cuMemcpy2DAsync_v2(&plane, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemcpyDtoH_v2(out, b, sizeof out));
  say("unaligned: %016llx", digest(out, sizeof out));
  plane.WidthInBytes = 100;
  SEE(cuMemcpy2D_v2(&plane));
  CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = 16, .srcHeight = 8, .srcZ = 1,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = b, .dstPitch = 32, .dstHeight = 8, .dstY = 2,
                       .WidthInBytes = 12, .Height = 5, .Depth = 4};
  CHECK(cuMemsetD8_v2(b, 0, sizeof in));
  SEE(cuMemcpy3D_v2(&box));
  CHECK(cuMemcpyDtoH_v2(out, b, sizeof out));
  say("box: %016llx", digest(out, sizeof out));
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CHECK(cuMemGetAddressRange_v2(&base, &bytes, a + 100));
  say("range: from the start %s, %zu bytes", yes(base == a), bytes);
  SEE(cuMemGetAddressRange_v2(&base, &bytes, 0x10));
  SEE(cuMemcpyDtoH_v2(out, a, 0));
  SEE(cuMemcpyHtoD_v2(a, NULL, 10));
  SEE(cuCtxSynchronize());
}
