// SPDX-License-Identifier: Apache-2.0
// Two streams and the events between them: one stream copies in and scales, the other waits for each chunk, shifts it
// and copies it out, so that copies and kernels of different chunks can overlap.
#include "example.h"

#include <algorithm>

__global__ void scale(int* data, size_t n, int factor) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= factor;
}

__global__ void shift(int* data, size_t n, int offset) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) data[i] += offset;
}

static bool run(const example::Arguments& arguments) {
  const size_t n = arguments.size(0, 1 << 20, 1 << 28);
  constexpr size_t kChunks = 4;
  const size_t chunk = (n + kChunks - 1) / kChunks;
  const unsigned threads = 256;

  int *host, *device;
  CHECK(cudaMallocHost(&host, n * sizeof(int)));
  CHECK(cudaMalloc(&device, n * sizeof(int)));
  for (size_t i = 0; i < n; ++i) host[i] = static_cast<int>(i % 100003);

  cudaStream_t front, back;
  cudaEvent_t begin, end, scaled[kChunks];
  CHECK(cudaStreamCreateWithFlags(&front, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&back, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  for (cudaEvent_t& event : scaled) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));

  CHECK(cudaEventRecord(begin, front));
  for (size_t i = 0; i < kChunks && i * chunk < n; ++i) {
    const size_t count = std::min(chunk, n - i * chunk);
    const unsigned blocks = static_cast<unsigned>((count + threads - 1) / threads);
    int* part = device + i * chunk;
    CHECK(cudaMemcpyAsync(part, host + i * chunk, count * sizeof(int), cudaMemcpyHostToDevice, front));
    scale<<<blocks, threads, 0, front>>>(part, count, 3);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(scaled[i], front));

    CHECK(cudaStreamWaitEvent(back, scaled[i], 0));
    shift<<<blocks, threads, 0, back>>>(part, count, 7);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(host + i * chunk, part, count * sizeof(int), cudaMemcpyDeviceToHost, back));
  }
  CHECK(cudaEventRecord(end, back));
  CHECK(cudaEventSynchronize(end));

  float milliseconds = 0;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  if (arguments.time()) std::fprintf(stderr, "streams: %.3f ms between the events\n", milliseconds);

  size_t wrong = 0;
  for (size_t i = 0; i < n; ++i) wrong += host[i] != static_cast<int>(i % 100003) * 3 + 7;

  for (cudaEvent_t event : scaled) CHECK(cudaEventDestroy(event));
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  CHECK(cudaStreamDestroy(front));
  CHECK(cudaStreamDestroy(back));
  CHECK(cudaFree(device));
  CHECK(cudaFreeHost(host));

  const bool right = wrong == 0 && milliseconds > 0;
  std::printf("streams: %s (%zu elements in %zu chunks on 2 streams, %zu wrong, %s)\n", right ? "OK" : "WRONG", n,
              kChunks, wrong, milliseconds > 0 ? "time passed between the events" : "no time passed between the events");
  return right;
}

EXAMPLE("streams", "[ELEMENTS]", "overlaps copies and kernels on two streams with events", run);
