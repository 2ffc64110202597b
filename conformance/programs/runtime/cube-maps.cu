// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "conformance.h"

static constexpr int kSide = 4;
static constexpr int kFaces = 6;

/// The direction to the centre of an element of a face.
static __device__ float3 directionTo(int face, int x, int y) {
  const float u = (static_cast<float>(x) + 0.5f) / kSide * 2 - 1;
  const float v = (static_cast<float>(y) + 0.5f) / kSide * 2 - 1;
  switch (face) {
    case 0: return {1, -v, -u};
    case 1: return {-1, -v, u};
    case 2: return {u, 1, v};
    case 3: return {u, -1, -v};
    case 4: return {u, -v, 1};
    default: return {-u, -v, -1};
  }
}

static __global__ void sample(cudaTextureObject_t texture, float scale, float* out) {
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y), face = static_cast<int>(blockIdx.x);
  const float3 to = directionTo(face, x, y);
  out[(face * kSide + y) * kSide + x] = texCubemap<float>(texture, to.x * scale, to.y * scale, to.z * scale);
}

static __global__ void sampleLayers(cudaTextureObject_t texture, float* out) {
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y), face = static_cast<int>(blockIdx.x);
  const int layer = static_cast<int>(blockIdx.y);
  const float3 to = directionTo(face, x, y);
  out[((layer * kFaces + face) * kSide + y) * kSide + x] =
      texCubemapLayered<float>(texture, to.x, to.y, to.z, layer);
}

static __global__ void paint(cudaSurfaceObject_t surface) {
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y), face = static_cast<int>(blockIdx.x);
  surfCubemapwrite<float>(static_cast<float>(face * 100 + y * 10 + x), surface, x * 4, y, face);
}

static cudaArray_t makeArray(int depth, unsigned flags) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array = nullptr;
  CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(kSide, kSide, static_cast<size_t>(depth)), flags));
  return array;
}

static void fill(cudaArray_t array, int depth) {
  std::vector<float> values(static_cast<size_t>(kSide) * kSide * static_cast<size_t>(depth));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(values.data(), kSide * sizeof(float), kSide, kSide);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(kSide, kSide, static_cast<size_t>(depth));
  copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&copy));
}

static cudaResourceDesc resourceOf(cudaArray_t array) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  return resource;
}

static cudaTextureObject_t textureOf(cudaArray_t array, cudaTextureFilterMode filter) {
  const cudaResourceDesc resource = resourceOf(array);
  cudaTextureDesc reading = {};
  reading.addressMode[0] = reading.addressMode[1] = reading.addressMode[2] = cudaAddressModeWrap;
  reading.filterMode = filter;
  reading.normalizedCoords = 1;
  cudaTextureObject_t texture = 0;
  CHECK(cudaCreateTextureObject(&texture, &resource, &reading, nullptr));
  return texture;
}

PROGRAM("cube-maps", "cube maps and layers of them, read by direction, and written as surfaces") {
  const dim3 side(kSide, kSide);
  const conformance::Device<float> out(kSide * kSide * kFaces * 2);
  const cudaArray_t cube = makeArray(kFaces, cudaArrayCubemap | cudaArraySurfaceLoadStore);
  fill(cube, kFaces);
  for (const auto filter : {cudaFilterModePoint, cudaFilterModeLinear}) {
    const cudaTextureObject_t texture = textureOf(cube, filter);
    for (const float scale : {1.0f, 7.5f}) {
      sample<<<kFaces, side>>>(texture, scale, out);
      std::vector<float> values = out.take();
      values.resize(kSide * kSide * kFaces);
      // At its centre an element is sampled without its neighbours, except for rounding by the GPU.
      bool isNear = true;
      for (size_t i = 0; i < values.size(); ++i) isNear = isNear && std::fabs(values[i] - static_cast<float>(i)) < 0.25f;
      if (filter == cudaFilterModePoint) conformance::list("nearest", values);
      else say("filtered: %s", isNear ? "as the elements" : "not as the elements");
    }
    CHECK(cudaDestroyTextureObject(texture));
  }
  const cudaResourceDesc resource = resourceOf(cube);
  cudaSurfaceObject_t surface = 0;
  CHECK(cudaCreateSurfaceObject(&surface, &resource));
  paint<<<kFaces, side>>>(surface);
  const cudaTextureObject_t painted = textureOf(cube, cudaFilterModePoint);
  sample<<<kFaces, side>>>(painted, 1, out);
  std::vector<float> values = out.take();
  values.resize(kSide * kSide * kFaces);
  conformance::list("painted", values);

  const cudaArray_t layers = makeArray(kFaces * 2, cudaArrayCubemap | cudaArrayLayered);
  fill(layers, kFaces * 2);
  sampleLayers<<<dim3(kFaces, 2), side>>>(textureOf(layers, cudaFilterModePoint), out);
  conformance::list("layers", out.take());

  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t none = nullptr;
  SEE(cudaMalloc3DArray(&none, &format, make_cudaExtent(4, 8, 6), cudaArrayCubemap));
  SEE(cudaMalloc3DArray(&none, &format, make_cudaExtent(4, 4, 5), cudaArrayCubemap));
  SEE(cudaMalloc3DArray(&none, &format, make_cudaExtent(4, 4, 9), cudaArrayCubemap | cudaArrayLayered));
  CHECK(cudaFreeArray(cube));
  CHECK(cudaFreeArray(layers));
}
