// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void add(int* data, int n, int value) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) data[i] += value;
}

PROGRAM("managed", "memory that host and device share: allocation, turns, streams, attributes") {
  if (!conformance::attribute(cudaDevAttrManagedMemory)) conformance::skip("no managed memory");
  constexpr int n = 100000;
  int* data = nullptr;
  CHECK(cudaMallocManaged(&data, n * sizeof(int)));
  for (int i = 0; i < n; ++i) data[i] = i;
  for (int round = 1; round <= 3; ++round) {
    add<<<(n + 255) / 256, 256>>>(data, n, round * 1000);
    CHECK(cudaDeviceSynchronize());
    data[round] = -round;
    long long sum = 0;
    for (int i = 0; i < n; ++i) sum += data[i];
    say("round %d: sum %lld", round, sum);
  }
  conformance::Device<int> device(n);
  CHECK(cudaMemcpy(device, data, n * sizeof(int), cudaMemcpyDefault));
  say("copied to the device: %d", device.take()[n - 1]);
  CHECK(cudaMemset(data, 0x11, 1000 * sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  say("set: %x %x", static_cast<unsigned>(data[999]), static_cast<unsigned>(data[1000] == 7000));
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, data));
  say("type %d, both pointers the same: %s", static_cast<int>(attributes.type),
      attributes.devicePointer == data && attributes.hostPointer == data ? "yes" : "no");
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  SEE(cudaStreamAttachMemAsync(stream, data, 0, cudaMemAttachSingle));
  add<<<(n + 255) / 256, 256, 0, stream>>>(data, n, 5);
  CHECK(cudaStreamSynchronize(stream));
  say("attached: %d", data[5000]);
  CHECK(cudaStreamDestroy(stream));
  SEE(cudaFree(data));
  SEE(cudaMallocManaged(&data, 0));
  SEE(cudaMallocManaged(&data, 16, 0x40));
}
