// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("arrays", "arrays of the driver: descriptors, copies between arrays, memory and host, mipmaps") {
  primary();
  CUarray line, plane, box;
  CUDA_ARRAY_DESCRIPTOR flat = {.Width = 64, .Height = 0, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  SEE(cuArrayCreate_v2(&line, &flat));
  flat.Height = 16, flat.Format = CU_AD_FORMAT_UNSIGNED_INT8, flat.NumChannels = 4;
  SEE(cuArrayCreate_v2(&plane, &flat));
  CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = 8, .Height = 8, .Depth = 4, .Format = CU_AD_FORMAT_SIGNED_INT16, .NumChannels = 2};
  SEE(cuArray3DCreate_v2(&box, &deep));
  CUDA_ARRAY_DESCRIPTOR seen;
  SEE(cuArrayGetDescriptor_v2(&seen, plane));
  say("plane %zu by %zu, format %d, channels %u", seen.Width, seen.Height, (int)seen.Format, seen.NumChannels);
  CUDA_ARRAY3D_DESCRIPTOR seen3;
  SEE(cuArray3DGetDescriptor_v2(&seen3, box));
  say("box %zu by %zu by %zu, flags %u", seen3.Width, seen3.Height, seen3.Depth, seen3.Flags);
  float in[64], out[64] = {0};
  for (int i = 0; i < 64; ++i) in[i] = (float)i * 0.5f;
  SEE(cuMemcpyHtoA_v2(line, 0, in, sizeof in));
  SEE(cuMemcpyAtoH_v2(out, line, 16, 64));
  say("line: %g %g", out[0], out[15]);
  CUdeviceptr memory = allocate(4096);
  SEE(cuMemcpyAtoD_v2(memory, line, 0, 256));
  CHECK(cuMemcpyDtoH_v2(out, memory, 256));
  say("in memory: %g", out[63]);
  SEE(cuMemcpyDtoA_v2(line, 128, memory, 128));
  SEE(cuMemcpyAtoA_v2(line, 0, line, 128, 64));
  SEE(cuMemcpyAtoH_v2(out, line, 0, 256));
  say("moved: %g %g", out[0], out[32]);
  unsigned pixels[64 * 16], back[64 * 16];
  for (unsigned i = 0; i < 64 * 16; ++i) pixels[i] = i * 2654435761u;
  CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = pixels, .srcPitch = 256, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = plane, .WidthInBytes = 256, .Height = 16};
  SEE(cuMemcpy2D_v2(&copy));
  CUDA_MEMCPY2D fetch = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = plane, .srcXInBytes = 16, .srcY = 2, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = 128, .WidthInBytes = 128, .Height = 8};
  memset(back, 0, sizeof back);
  SEE(cuMemcpy2D_v2(&fetch));
  say("part of the plane: %016llx", digest(back, 1024));
  SEE(cuMemcpyAtoA_v2(line, 0, plane, 0, 64));
  CUmipmappedArray mipmap;
  CUDA_ARRAY3D_DESCRIPTOR levels = {.Width = 32, .Height = 32, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  SEE(cuMipmappedArrayCreate(&mipmap, &levels, 4));
  for (unsigned i = 0; i < 5; ++i) {
    CUarray level;
    const CUresult status = cuMipmappedArrayGetLevel(&level, mipmap, i);
    if (status == CUDA_SUCCESS) {
      CHECK(cuArray3DGetDescriptor_v2(&seen3, level));
      say("level %u: %zu by %zu", i, seen3.Width, seen3.Height);
    } else {
      say("level %u: %s", i, error_name(status));
    }
  }
  SEE(cuMipmappedArrayDestroy(mipmap));
  SEE(cuArrayDestroy(line));
  SEE(cuArrayDestroy(plane));
  SEE(cuArrayDestroy(box));
  flat.Width = 0;
  SEE(cuArrayCreate_v2(&line, &flat));
  flat.Width = 16, flat.NumChannels = 3;
  SEE(cuArrayCreate_v2(&line, &flat));
}
