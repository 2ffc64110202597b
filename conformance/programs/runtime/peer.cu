// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void pull(const int* from, int* to) { to[threadIdx.x] = from[threadIdx.x] + 1; }

PROGRAM("peer", "copies and accesses between two devices") {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  int can = 9;
  SEE(cudaDeviceCanAccessPeer(&can, 0, 0));
  say("itself: %d", can);
  SEE(cudaDeviceEnablePeerAccess(0, 0));
  cudaGetLastError();
  // A copy between a device and itself needs no second device.
  conformance::Device<int> a(std::vector<int>{1, 2, 3, 4}), b(4);
  SEE(cudaMemcpyPeer(b, 0, a, 0, 16));
  conformance::list("copied", b.take());
  if (count < 2) conformance::skip("one device: nothing between devices");
  CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
  CHECK(cudaSetDevice(1));
  int* other = nullptr;
  CHECK(cudaMalloc(&other, 16));
  SEE(cudaMemcpyPeer(other, 1, a, 0, 16));
  int host[4] = {};
  CHECK(cudaMemcpy(host, other, 16, cudaMemcpyDeviceToHost));
  conformance::list("on the second device", std::vector<int>(host, host + 4));
  CHECK(cudaSetDevice(0));
  CHECK(cudaMemcpyPeerAsync(b, 0, other, 1, 16, nullptr));
  conformance::list("and back", b.take());
  if (can) {
    SEE(cudaDeviceEnablePeerAccess(1, 0));
    SEE(cudaDeviceEnablePeerAccess(1, 0));
    cudaGetLastError();
    pull<<<1, 4>>>(other, b);
    conformance::list("read by a kernel", b.take());
    SEE(cudaDeviceDisablePeerAccess(1));
    SEE(cudaDeviceDisablePeerAccess(1));
  }
  CHECK(cudaFree(other));
}
