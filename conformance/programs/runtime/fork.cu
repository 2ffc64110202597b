// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void set(int* out, int value) { *out = value; }

// A plain fork, without exec; returns the child's exit status.
template <class Body>
static int inFork(Body body) {
  std::fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    std::fflush(stdout);
    _exit(5);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void work(int value) {
  conformance::Device<int> cell(1);
  set<<<1, 1>>>(cell, value);
  say("worked: %d", cell.take()[0]);
}

PROGRAM("fork", "children by fork: before CUDA is used, after it, and what goes on in the parent") {
  if (conformance::isPart("fresh")) {
    work(77);
    return;
  }
  say("a child before: %d", inFork([] { work(1); }));
  work(2);
  say("a child after: %d", inFork([] {
        int count = -1;
        void* memory = nullptr;
        say("in the child a call fails: %s", cudaMalloc(&memory, 16) != cudaSuccess || cudaGetDeviceCount(&count) != cudaSuccess ? "yes" : "no");
      }));
  work(3);
  conformance::child("fresh");
  say("a child that does nothing: %d", inFork([] {}));
  work(4);
}
