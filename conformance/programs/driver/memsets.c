// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("memsets", "sets of 8, 16 and 32 bits, in one and two dimensions, aligned and not") {
  primary();
  unsigned char out[4096];
  CUdeviceptr data = allocate(sizeof out);
  CUstream stream;
  CHECK(cuStreamCreate(&stream, 0));
  CHECK(cuMemsetD8_v2(data, 0xee, sizeof out));
  CHECK(cuMemsetD8_v2(data + 3, 1, 7));
  CHECK(cuMemsetD16_v2(data + 16, 0x0203, 5));
  CHECK(cuMemsetD32_v2(data + 32, 0x04050607, 3));
  CHECK(cuMemsetD2D8_v2(data + 64, 64, 0x11, 10, 4));
  CHECK(cuMemsetD2D16_v2(data + 512, 100, 0x2233, 10, 4));
  CHECK(cuMemsetD2D32_v2(data + 1024, 128, 0x44556677, 10, 4));
  CHECK(cuMemsetD8Async(data + 2048, 5, 100, stream));
  CHECK(cuMemsetD16Async(data + 2100, 6, 50, stream));
  CHECK(cuMemsetD32Async(data + 2200, 7, 25, stream));
  CHECK(cuMemsetD2D8Async(data + 3000, 50, 8, 20, 5, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemcpyDtoH_v2(out, data, sizeof out));
  for (int i = 0; i < 48; ++i) printf("%02x%s", out[i], i == 47 ? "\n" : " ");
  say("digest %016llx", digest(out, sizeof out));
  SEE(cuMemsetD16_v2(data + 1, 0, 4));
  SEE(cuMemsetD32_v2(data + 2, 0, 4));
  SEE(cuMemsetD8_v2(data, 0, 0));
  SEE(cuMemsetD2D8_v2(data, 4, 0, 10, 2));
  SEE(cuCtxSynchronize());
}
