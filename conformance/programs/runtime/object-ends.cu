// SPDX-License-Identifier: Apache-2.0
// Ends of texture and surface objects that are none, surfaces on arrays made without a flag for them, textures longer than
// their memory, and streams that are destroyed while they are captured.
#include "conformance.h"

using namespace conformance;

namespace {

__global__ void write(cudaSurfaceObject_t surface) {
  surf2Dwrite(static_cast<float>(threadIdx.y * 10 + threadIdx.x), surface, threadIdx.x * sizeof(float), threadIdx.y);
}
__global__ void fetch(cudaTextureObject_t texture, float* out) { out[threadIdx.x] = tex1Dfetch<float>(texture, threadIdx.x); }
__global__ void add(int* to, int value) { *to += value; }

void surfaces() {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CHECK(cudaMallocArray(&array, &format, 8, 4, cudaArrayDefault));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaSurfaceObject_t surface = 0;
  if (SEE(cudaCreateSurfaceObject(&surface, &resource)) == cudaSuccess) {
    write<<<1, dim3(8, 4)>>>(surface);
    float cells[32];
    CHECK(cudaMemcpy2DFromArray(cells, 32, array, 0, 0, 32, 4, cudaMemcpyDeviceToHost));
    say("%g %g %g", cells[0], cells[7], cells[31]);
    SEE(cudaDestroySurfaceObject(surface));
  }
  CHECK(cudaFreeArray(array));
}

void longTexture() {
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 2;
  Device<float> memory(values), out(8);
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = memory;
  resource.res.linear.desc = cudaCreateChannelDesc<float>();
  resource.res.linear.sizeInBytes = 1 << 16;
  cudaTextureDesc sampling{};
  sampling.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture = 0;
  if (SEE(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr)) != cudaSuccess) return;
  fetch<<<1, 8>>>(texture, out);
  CHECK(cudaDeviceSynchronize());
  list("fetched", out.take());
  CHECK(cudaDestroyTextureObject(texture));
}

void joined() {
  cudaStream_t stream, side;
  cudaEvent_t fork, join;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamCreate(&side));
  CHECK(cudaEventCreate(&fork));
  CHECK(cudaEventCreate(&join));
  Device<int> word(1);
  word.clear();
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaEventRecord(fork, stream));
  CHECK(cudaStreamWaitEvent(side, fork, 0));
  add<<<1, 1, 0, side>>>(word, 5);
  CHECK(cudaEventRecord(join, side));
  CHECK(cudaStreamWaitEvent(stream, join, 0));
  SEE(cudaStreamDestroy(side));
  add<<<1, 1, 0, stream>>>(word, 6);
  cudaGraph_t graph = nullptr;
  if (SEE(cudaStreamEndCapture(stream, &graph)) != cudaSuccess) return;
  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  say("%d", word.take()[0]);
}

}  // namespace

PROGRAM("object-ends", "objects that are none, or end early") {
  SEE(cudaDestroyTextureObject(0));
  SEE(cudaDestroyTextureObject(12345678));
  SEE(cudaDestroySurfaceObject(0));
  SEE(cudaDestroySurfaceObject(12345678));
  surfaces();
  longTexture();
  joined();
}
