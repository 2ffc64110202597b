// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <csignal>
#include <thread>

#include "conformance.h"

static __global__ void set(int* out, int value) { *out = value; }

static void work() {
  conformance::Device<int> cell(1);
  set<<<1, 1>>>(cell, 9);
  say("worked: %d", cell.take()[0]);
}

struct Late {
  ~Late() {
    int count = 0;
    // The runtime may be gone by now, but nothing may hang or crash.
    const cudaError_t status = cudaGetDeviceCount(&count);
    std::printf("in a destructor: %s\n", status == cudaSuccess || status == cudaErrorCudartUnloading ? "as it may be" : cudaGetErrorName(status));
  }
};

PROGRAM("exits", "ends of a process: from a thread, with work queued, by signals, after destructors") {
  using conformance::isPart;
  if (conformance::part[0] == '\0') {
    for (const char* which : {"return", "exit", "exit from a thread", "quick exit", "with work queued", "with memory held",
                              "destructor", "abort", "killed", "after an unknown signal", "detached threads"})
      conformance::child(which);
    return;
  }
  if (isPart("destructor")) {
    static Late late;
    work();
    return;
  }
  work();
  if (isPart("exit")) std::exit(3);
  if (isPart("exit from a thread")) {
    std::thread([] {
      work();
      std::exit(4);
    }).join();
  }
  if (isPart("quick exit")) std::quick_exit(6);
  if (isPart("with work queued")) {
    static conformance::Device<int> cell(1);
    for (int i = 0; i < 2000; ++i) set<<<1, 1>>>(cell, i);
    std::_Exit(7);
  }
  if (isPart("with memory held")) {
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, 64 << 20));
    CHECK(cudaMallocHost(&memory, 16 << 20));
    std::exit(8);
  }
  if (isPart("abort")) std::abort();
  if (isPart("killed")) raise(SIGKILL);
  if (isPart("after an unknown signal")) raise(SIGUSR1);
  if (isPart("detached threads")) {
    for (int i = 0; i < 8; ++i) {
      std::thread([] {
        void* memory = nullptr;
        for (;;) {
          if (cudaMalloc(&memory, 1024) != cudaSuccess || cudaFree(memory) != cudaSuccess) return;
        }
      }).detach();
    }
    std::fflush(stdout);
    std::_Exit(9);
  }
}
