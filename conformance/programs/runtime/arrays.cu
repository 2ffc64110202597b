// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static void about(cudaArray_t array) {
  cudaChannelFormatDesc format;
  cudaExtent extent;
  unsigned flags = 0;
  CHECK(cudaArrayGetInfo(&format, &extent, &flags, array));
  say("channels %d %d %d %d of kind %d, extent %zu %zu %zu, flags %u", format.x, format.y, format.z, format.w,
      static_cast<int>(format.f), extent.width, extent.height, extent.depth, flags);
}

PROGRAM("arrays", "CUDA arrays of one to three dimensions and layers: formats, copies in and out") {
  const cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>(), bytes = cudaCreateChannelDesc<uchar4>();
  cudaArray_t line, plane;
  CHECK(cudaMallocArray(&line, &floats, 100));
  CHECK(cudaMallocArray(&plane, &bytes, 32, 16));
  about(line);
  about(plane);
  std::vector<float> in(100), out(100, -1);
  for (size_t i = 0; i < 100; ++i) in[i] = static_cast<float>(i) * 0.5f;
  SEE(cudaMemcpy2DToArray(line, 0, 0, in.data(), 400, 400, 1, cudaMemcpyHostToDevice));
  SEE(cudaMemcpy2DFromArray(out.data(), 400, line, 40, 0, 200, 1, cudaMemcpyDeviceToHost));
  say("line: %g %g %g", static_cast<double>(out[0]), static_cast<double>(out[49]), static_cast<double>(out[50]));
  std::vector<unsigned> pixels(32 * 16), back(32 * 16);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<unsigned>(i * 0x01030507u);
  CHECK(cudaMemcpy2DToArray(plane, 0, 0, pixels.data(), 128, 128, 16, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy2DFromArray(back.data(), 128, plane, 0, 0, 128, 16, cudaMemcpyDeviceToHost));
  say("plane: %s", back == pixels ? "the same" : "another");
  cudaArray_t other;
  CHECK(cudaMallocArray(&other, &bytes, 32, 16));
  CHECK(cudaMemcpy2DToArray(other, 0, 0, pixels.data(), 128, 128, 16, cudaMemcpyHostToDevice));
  SEE(cudaMemcpy2DArrayToArray(other, 0, 4, plane, 16, 0, 64, 8, cudaMemcpyDeviceToDevice));
  conformance::Device<unsigned> linear(32 * 16);
  CHECK(cudaMemcpy2DFromArray(linear, 128, other, 0, 0, 128, 16, cudaMemcpyDeviceToDevice));
  say("array to array: digest %016llx", static_cast<unsigned long long>(conformance::digest(linear.take().data(), 2048)));

  const cudaChannelFormatDesc shorts = cudaCreateChannelDesc<short>();
  cudaArray_t box, layers;
  CHECK(cudaMalloc3DArray(&box, &shorts, make_cudaExtent(8, 6, 4)));
  CHECK(cudaMalloc3DArray(&layers, &shorts, make_cudaExtent(8, 6, 3), cudaArrayLayered | cudaArraySurfaceLoadStore));
  about(box);
  about(layers);
  std::vector<short> cells(8 * 6 * 4), seen(8 * 6 * 4, -1);
  for (size_t i = 0; i < cells.size(); ++i) cells[i] = static_cast<short>(i);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(cells.data(), 16, 8, 6);
  copy.dstArray = box;
  copy.extent = make_cudaExtent(8, 6, 4);
  copy.kind = cudaMemcpyHostToDevice;
  SEE(cudaMemcpy3D(&copy));
  cudaMemcpy3DParms out3 = {};
  out3.srcArray = box;
  out3.srcPos = make_cudaPos(2, 1, 1);
  out3.dstPtr = make_cudaPitchedPtr(seen.data(), 16, 8, 6);
  out3.extent = make_cudaExtent(4, 3, 2);
  out3.kind = cudaMemcpyDeviceToHost;
  SEE(cudaMemcpy3D(&out3));
  conformance::list("part of the box", std::vector<short>(seen.begin(), seen.begin() + 20));
  for (cudaArray_t array : {line, plane, other, box, layers}) CHECK(cudaFreeArray(array));
  SEE(cudaMallocArray(&line, &floats, 0));
  cudaChannelFormatDesc odd = {7, 0, 0, 0, cudaChannelFormatKindSigned};
  SEE(cudaMallocArray(&line, &odd, 16));
}
