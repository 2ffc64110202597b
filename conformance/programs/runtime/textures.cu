// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void fetch(cudaTextureObject_t texture, float* out) {
  out[threadIdx.x] = tex1Dfetch<float>(texture, static_cast<int>(threadIdx.x) - 2);
}

static __global__ void plane(cudaTextureObject_t texture, float* out, float scale) {
  const float x = (static_cast<float>(threadIdx.x) - 3.0f) * scale, y = (static_cast<float>(threadIdx.y) - 1.5f) * scale;
  out[threadIdx.y * blockDim.x + threadIdx.x] = tex2D<float>(texture, x, y);
}

static __global__ void colours(cudaTextureObject_t texture, float4* out) {
  out[threadIdx.x] = tex2D<float4>(texture, static_cast<float>(threadIdx.x) + 0.5f, 0.5f);
}

static __global__ void deep(cudaTextureObject_t texture, int* out) {
  out[threadIdx.x] = tex3D<int>(texture, static_cast<float>(threadIdx.x % 4), static_cast<float>(threadIdx.x / 4 % 4), static_cast<float>(threadIdx.x / 16));
}

static cudaTextureObject_t make(const cudaResourceDesc& resource, cudaTextureAddressMode address, cudaTextureFilterMode filter,
                                cudaTextureReadMode read, int normalized) {
  cudaTextureDesc description = {};
  for (cudaTextureAddressMode& mode : description.addressMode) mode = address;
  description.filterMode = filter;
  description.readMode = read;
  description.normalizedCoords = normalized;
  description.borderColor[0] = -5.0f;
  cudaTextureObject_t texture = 0;
  CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  return texture;
}

PROGRAM("textures", "texture objects on linear memory and arrays: addressing, filtering, conversion") {
  std::vector<float> values(64);
  for (size_t i = 0; i < 64; ++i) values[i] = static_cast<float>(i) * 0.25f;
  conformance::Device<float> memory(values), out(64);
  cudaResourceDesc linear = {};
  linear.resType = cudaResourceTypeLinear;
  linear.res.linear.devPtr = memory.get();
  linear.res.linear.desc = cudaCreateChannelDesc<float>();
  linear.res.linear.sizeInBytes = memory.bytes();
  cudaTextureObject_t texture = make(linear, cudaAddressModeClamp, cudaFilterModePoint, cudaReadModeElementType, 0);
  fetch<<<1, 64>>>(texture, out);
  conformance::list("linear", out.take());
  cudaTextureDesc seen;
  CHECK(cudaGetTextureObjectTextureDesc(&seen, texture));
  say("described: read mode %d, normalized %d", static_cast<int>(seen.readMode), seen.normalizedCoords);
  CHECK(cudaDestroyTextureObject(texture));

  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CHECK(cudaMallocArray(&array, &format, 8, 8));
  CHECK(cudaMemcpy2DToArray(array, 0, 0, values.data(), 32, 32, 8, cudaMemcpyHostToDevice));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  for (const cudaTextureAddressMode mode : {cudaAddressModeClamp, cudaAddressModeBorder}) {
    texture = make(resource, mode, cudaFilterModePoint, cudaReadModeElementType, 0);
    plane<<<1, dim3(12, 5)>>>(texture, out, 1.0f);
    conformance::list("point", out.take());
    CHECK(cudaDestroyTextureObject(texture));
  }
  for (const cudaTextureAddressMode mode : {cudaAddressModeWrap, cudaAddressModeMirror}) {
    texture = make(resource, mode, cudaFilterModePoint, cudaReadModeElementType, 1);
    plane<<<1, dim3(12, 5)>>>(texture, out, 0.171875f);
    conformance::list("normalized", out.take());
    CHECK(cudaDestroyTextureObject(texture));
  }
  // Halfway between texels, where the filter's few fraction bits are exact.
  texture = make(resource, cudaAddressModeClamp, cudaFilterModeLinear, cudaReadModeElementType, 0);
  plane<<<1, dim3(12, 5)>>>(texture, out, 0.5f);
  conformance::list("filtered", out.take());
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));

  const cudaChannelFormatDesc bytes = cudaCreateChannelDesc<uchar4>();
  CHECK(cudaMallocArray(&array, &bytes, 4, 1));
  const unsigned pixels[4] = {0x00336699, 0xff000000, 0x80402010, 0xffffffff};
  CHECK(cudaMemcpy2DToArray(array, 0, 0, pixels, 16, 16, 1, cudaMemcpyHostToDevice));
  resource.res.array.array = array;
  texture = make(resource, cudaAddressModeClamp, cudaFilterModePoint, cudaReadModeNormalizedFloat, 0);
  conformance::Device<float4> colour(4);
  colours<<<1, 4>>>(texture, colour);
  for (const float4 each : colour.take())
    say("colour %.7g %.7g %.7g %.7g", static_cast<double>(each.x), static_cast<double>(each.y), static_cast<double>(each.z), static_cast<double>(each.w));
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));

  const cudaChannelFormatDesc integers = cudaCreateChannelDesc<int>();
  CHECK(cudaMalloc3DArray(&array, &integers, make_cudaExtent(4, 4, 4)));
  std::vector<int> cells(64);
  for (int i = 0; i < 64; ++i) cells[static_cast<size_t>(i)] = i * i;
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(cells.data(), 16, 4, 4);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(4, 4, 4);
  copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&copy));
  resource.res.array.array = array;
  texture = make(resource, cudaAddressModeClamp, cudaFilterModePoint, cudaReadModeElementType, 0);
  conformance::Device<int> box(64);
  deep<<<1, 64>>>(texture, box);
  say("box: %s", box.take() == cells ? "the same" : "another");
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(array));
}
