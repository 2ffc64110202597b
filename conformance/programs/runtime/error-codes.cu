// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void nothing(int*) {}

static void launch(const char* what, dim3 grid, dim3 block, size_t shared) {
  nothing<<<grid, block, shared>>>(nullptr);
  say("%s: %s, then %s", what, cudaGetErrorName(cudaGetLastError()), cudaGetErrorName(cudaGetLastError()));
}

PROGRAM("error-codes", "what is refused at the call: launches, copies, allocations, devices; the last error") {
  launch("a grid of 0", dim3(0), dim3(1), 0);
  launch("a block of 0", dim3(1), dim3(0), 0);
  launch("1025 threads", dim3(1), dim3(1025), 0);
  launch("2048 threads in two dimensions", dim3(1), dim3(64, 32), 0);
  launch("65 threads deep", dim3(1), dim3(1, 1, 65), 0);
  launch("a grid 65536 high", dim3(1, 65536), dim3(1), 0);
  launch("a megabyte of shared memory", dim3(1), dim3(1), 1 << 20);
  launch("as it should be", dim3(1), dim3(1), 0);

  void* memory = nullptr;
  SEE(cudaMalloc(&memory, 0));
  say("zero bytes are null: %s", memory == nullptr ? "yes" : "no");
  SEE(cudaMalloc(nullptr, 16));
  SEE(cudaMalloc(&memory, size_t{1} << 60));
  SEE(cudaGetLastError());
  SEE(cudaFree(nullptr));
  CHECK(cudaMalloc(&memory, 256));
  SEE(cudaFree(static_cast<char*>(memory) + 16));
  SEE(cudaFree(memory));
  SEE(cudaFree(memory));
  SEE(cudaPeekAtLastError());
  SEE(cudaGetLastError());
  SEE(cudaGetLastError());

  char host[16] = {};
  SEE(cudaMemcpy(nullptr, host, 16, cudaMemcpyHostToDevice));
  SEE(cudaMemcpy(host, nullptr, 16, cudaMemcpyDeviceToHost));
  SEE(cudaMemcpy(host, host, 16, static_cast<cudaMemcpyKind>(9)));
  SEE(cudaMemcpy(host, host, 0, cudaMemcpyHostToDevice));
  SEE(cudaMemset(nullptr, 0, 16));
  SEE(cudaSetDevice(77));
  SEE(cudaSetDevice(-1));
  int value = 0;
  SEE(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(9999), 0));
  SEE(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 99));
  cudaDeviceProp properties;
  SEE(cudaGetDeviceProperties(&properties, 99));
  SEE(cudaStreamSynchronize(nullptr));
  cudaFuncAttributes attributes;
  SEE(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(host)));
  cudaGetLastError();
  SEE(cudaDeviceSynchronize());
  say("%s | %s", cudaGetErrorString(cudaErrorMemoryAllocation), cudaGetErrorString(cudaErrorInvalidValue));
  say("%s | %s", cudaGetErrorName(static_cast<cudaError_t>(12345)), cudaGetErrorString(static_cast<cudaError_t>(12345)));
}
