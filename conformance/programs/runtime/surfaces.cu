// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void write(cudaSurfaceObject_t surface, int width, int height) {
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(blockIdx.x);
  if (x < width && y < height) surf2Dwrite(x * 100 + y, surface, x * static_cast<int>(sizeof(int)), y);
}

static __global__ void read(cudaSurfaceObject_t surface, int* out, int width) {
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(blockIdx.x);
  out[y * width + x] = surf2Dread<int>(surface, (x + 1) * static_cast<int>(sizeof(int)), y, cudaBoundaryModeZero);
}

PROGRAM("surfaces", "surface objects: kernels that write and read arrays") {
  constexpr int width = 16, height = 8;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
  cudaArray_t array;
  CHECK(cudaMallocArray(&array, &format, width, height, cudaArraySurfaceLoadStore));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaSurfaceObject_t surface;
  CHECK(cudaCreateSurfaceObject(&surface, &resource));
  write<<<height, 32>>>(surface, width, height);
  std::vector<int> host(width * height);
  CHECK(cudaMemcpy2DFromArray(host.data(), width * 4, array, 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
  say("written: %d %d, digest %016llx", host[1], host.back(), static_cast<unsigned long long>(conformance::digest(host.data(), host.size() * 4)));
  conformance::Device<int> out(width * height);
  read<<<height, width>>>(surface, out, width);
  const std::vector<int> seen = out.take();
  conformance::list("read, shifted by one", std::vector<int>(seen.begin() + width, seen.begin() + 2 * width));
  CHECK(cudaDestroySurfaceObject(surface));
  CHECK(cudaFreeArray(array));
}
