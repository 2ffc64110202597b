// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies of pinned and registered memory behind a host function that waits for the thread which makes them.
#include <atomic>
#include <functional>
#include <thread>

#include "conformance.h"

using namespace conformance;

namespace {

constexpr int kCount = 100'000;
constexpr size_t kBytes = kCount * sizeof(int);

std::atomic<bool> isOpen;

void CUDART_CB wait(void*) {
  while (!isOpen) std::this_thread::yield();
}
void CUDART_CB addOne(void* data) {
  for (int i = 0; i < kCount; ++i) ++static_cast<int*>(data)[i];
}
__global__ void set(int* to, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) to[i] = value + i;
}
void fill(int* to, int value, cudaStream_t stream) { set<<<(kCount + 255) / 256, 256, 0, stream>>>(to, value); }

int wrong(const int* words, int value) {
  int count = 0;
  for (int i = 0; i < kCount; ++i) count += words[i] != value + i;
  return count;
}
int wrong(const Device<int>& memory, int value) { return wrong(memory.take().data(), value); }

void held(const char* what, cudaStream_t stream, const std::function<void()>& work) {
  isOpen = false;
  CHECK(cudaLaunchHostFunc(stream, wait, nullptr));
  work();
  say("%s: called", what);
  isOpen = true;
  CHECK(cudaStreamSynchronize(stream));
}

void copies(int* host) {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Device<int> from(kCount), to(kCount);
  // A kernel that is loaded at its first launch would wait for the host function.
  fill(from, 0, stream);
  held("from the device", stream, [&] {
    fill(from, 1, stream);
    CHECK(cudaMemcpyAsync(host, from, kBytes, cudaMemcpyDeviceToHost, stream));
  });
  say("%d wrong", wrong(host, 1));
  held("to the device", stream, [&] {
    CHECK(cudaMemcpyAsync(to, host, kBytes, cudaMemcpyHostToDevice, stream));
    for (int i = 0; i < kCount; ++i) host[i] = 20 + i;
  });
  say("%d wrong", wrong(to, 20));
  held("there and back", stream, [&] {
    fill(from, 300, stream);
    CHECK(cudaMemcpyAsync(host, from, kBytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaMemcpyAsync(to, host, kBytes, cudaMemcpyHostToDevice, stream));
  });
  say("%d wrong, %d wrong", wrong(host, 300), wrong(to, 300));
  held("with a function between", stream, [&] {
    fill(from, 4000, stream);
    CHECK(cudaMemcpyAsync(host, from, kBytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaLaunchHostFunc(stream, addOne, host));
    CHECK(cudaMemcpyAsync(to, host, kBytes, cudaMemcpyHostToDevice, stream));
  });
  say("%d wrong, %d wrong", wrong(host, 4001), wrong(to, 4001));
  CHECK(cudaStreamDestroy(stream));
}

}  // namespace

PROGRAM("held-copies", "copies behind a host function that waits for their caller") {
  int* pinned = nullptr;
  CHECK(cudaHostAlloc(&pinned, kBytes, cudaHostAllocDefault));
  std::memset(pinned, 0, kBytes);
  say("pinned memory");
  copies(pinned);
  CHECK(cudaFreeHost(pinned));
  std::vector<int> own(kCount);
  CHECK(cudaHostRegister(own.data(), kBytes, cudaHostRegisterDefault));
  say("registered memory");
  copies(own.data());
  CHECK(cudaHostUnregister(own.data()));
}
