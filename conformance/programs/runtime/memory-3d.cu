// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void fill(cudaPitchedPtr box, int width, int height, int depth) {
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(blockIdx.x), z = static_cast<int>(blockIdx.y);
  if (x >= width || y >= height || z >= depth) return;
  char* row = static_cast<char*>(box.ptr) + static_cast<size_t>(z * height + y) * box.pitch;
  reinterpret_cast<short*>(row)[x] = static_cast<short>(x + 100 * y + 10000 * (z % 3));
}

PROGRAM("memory-3d", "three-dimensional memory: allocation, copies of parts, sets") {
  constexpr size_t width = 30, height = 20, depth = 10;
  const cudaExtent extent = make_cudaExtent(width * sizeof(short), height, depth);
  cudaPitchedPtr box;
  CHECK(cudaMalloc3D(&box, extent));
  say("box %zu by %zu, pitch enough: %s", box.xsize, box.ysize, box.pitch >= box.xsize ? "yes" : "no");
  CHECK(cudaMemset3D(box, 0, extent));
  fill<<<dim3(height, depth), 32>>>(box, width, height, depth);
  std::vector<short> host(width * height * depth);
  cudaMemcpy3DParms whole = {};
  whole.srcPtr = box;
  whole.dstPtr = make_cudaPitchedPtr(host.data(), width * sizeof(short), width, height);
  whole.extent = extent;
  whole.kind = cudaMemcpyDeviceToHost;
  SEE(cudaMemcpy3D(&whole));
  say("whole: %d %d, digest %016llx", host[0], host.back(),
      static_cast<unsigned long long>(conformance::digest(host.data(), host.size() * sizeof(short))));
  std::vector<short> part(8 * 6 * 4, -1);
  cudaMemcpy3DParms inner = {};
  inner.srcPtr = box;
  inner.srcPos = make_cudaPos(5 * sizeof(short), 3, 2);
  inner.dstPtr = make_cudaPitchedPtr(part.data(), 8 * sizeof(short), 8, 6);
  inner.dstPos = make_cudaPos(2 * sizeof(short), 1, 1);
  inner.extent = make_cudaExtent(4 * sizeof(short), 3, 2);
  inner.kind = cudaMemcpyDeviceToHost;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  SEE(cudaMemcpy3DAsync(&inner, stream));
  CHECK(cudaStreamSynchronize(stream));
  conformance::list("part", part);
  cudaPitchedPtr second;
  CHECK(cudaMalloc3D(&second, extent));
  CHECK(cudaMemset3D(second, 0x77, extent));
  cudaMemcpy3DParms across = {};
  across.srcPtr = box;
  across.dstPtr = second;
  across.dstPos = make_cudaPos(0, 0, 5);
  across.extent = make_cudaExtent(width * sizeof(short), height, 5);
  across.kind = cudaMemcpyDeviceToDevice;
  SEE(cudaMemcpy3D(&across));
  whole.srcPtr = second;
  CHECK(cudaMemcpy3D(&whole));
  say("across: %x %d, digest %016llx", static_cast<unsigned>(host[0]), host[width * height * 5 + 3],
      static_cast<unsigned long long>(conformance::digest(host.data(), host.size() * sizeof(short))));
  whole.extent.depth = 0;
  SEE(cudaMemcpy3D(&whole));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(box.ptr));
  CHECK(cudaFree(second.ptr));
}
