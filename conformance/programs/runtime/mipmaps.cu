// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "conformance.h"

static constexpr int kExtent = 8;
static constexpr int kPlaces = 64;

static __global__ void atLevels(cudaTextureObject_t texture, float* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = tex2DLod<float>(texture, 0.3f, 0.6f, static_cast<float>(i - 8) / 8.0f);
}
static __global__ void byGradients(cudaTextureObject_t texture, float* out) {
  const int i = static_cast<int>(threadIdx.x);
  const float x = static_cast<float>(1 << i % 8) / 32.0f, y = static_cast<float>(1 << i / 8) / 32.0f;
  out[i] = tex2DGrad<float>(texture, 0.3f, 0.6f, make_float2(x, 0), make_float2(0, -y));
}
static __global__ void everywhere(cudaTextureObject_t texture, float* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[i] = tex2D<float>(texture, (static_cast<float>(i % 8) + 0.5f) / 8, (static_cast<float>(i / 8) + 0.5f) / 8);
}

static cudaTextureObject_t textureOf(cudaMipmappedArray_t array, bool between, float least, float most, float bias) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeMipmappedArray;
  resource.res.mipmap.mipmap = array;
  cudaTextureDesc how = {};
  how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
  how.filterMode = cudaFilterModePoint;
  how.mipmapFilterMode = between ? cudaFilterModeLinear : cudaFilterModePoint;
  how.normalizedCoords = 1;
  how.minMipmapLevelClamp = least;
  how.maxMipmapLevelClamp = most;
  how.mipmapLevelBias = bias;
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  return texture;
}

static void read(const char* name, cudaTextureObject_t texture) {
  const conformance::Device<float> out(kPlaces);
  const auto tell = [&](const char* how) {
    CHECK(cudaGetLastError());
    std::string line = name;
    line += how;
    for (const float value : out.take()) line += " " + std::to_string(value);
    say("%s", line.c_str());
  };
  atLevels<<<1, kPlaces>>>(texture, out);
  tell(", by level:");
  byGradients<<<1, kPlaces>>>(texture, out);
  tell(", by gradients:");
  everywhere<<<1, kPlaces>>>(texture, out);
  tell(", plainly:");
  CHECK(cudaDestroyTextureObject(texture));
}

PROGRAM("mipmaps", "textures with levels of detail: by level, by gradients, within bounds, with a bias") {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t array;
  CHECK(cudaMallocMipmappedArray(&array, &format, make_cudaExtent(kExtent, kExtent, 0), 9));
  cudaArray_t level;
  for (unsigned l = 0;; ++l) {
    const cudaError_t result = cudaGetMipmappedArrayLevel(&level, array, l);
    if (result != cudaSuccess) {
      say("level %u: %s", l, cudaGetErrorName(result));
      cudaGetLastError();
      break;
    }
    cudaExtent extent;
    CHECK(cudaArrayGetInfo(nullptr, &extent, nullptr, level));
    say("level %u: %zu x %zu", l, extent.width, extent.height);
    std::vector<float> values(extent.width * extent.height);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(100 * l + i);
    const size_t pitch = extent.width * sizeof(float);
    CHECK(cudaMemcpy2DToArray(level, 0, 0, values.data(), pitch, pitch, extent.height, cudaMemcpyHostToDevice));
  }
  read("the nearest level", textureOf(array, false, 0, 10, 0));
  read("between levels", textureOf(array, true, 0, 10, 0));
  read("within bounds", textureOf(array, true, 0.75f, 2.25f, 0));
  read("with a bias", textureOf(array, true, 0, 10, 0.5f));
  CHECK(cudaFreeMipmappedArray(array));
}
