// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

struct Node {
  int value;
  Node* next;
};

static __global__ void build(Node** heads, int length) {
  Node* head = nullptr;
  for (int i = 0; i < length; ++i) {
    Node* node = static_cast<Node*>(malloc(sizeof(Node)));
    if (!node) return;
    node->value = i + static_cast<int>(threadIdx.x) * 100;
    node->next = head;
    head = node;
  }
  heads[threadIdx.x] = head;
}

static __global__ void sum(Node** heads, int* out) {
  int total = 0;
  for (Node* node = heads[threadIdx.x]; node;) {
    total += node->value;
    Node* next = node->next;
    free(node);
    node = next;
  }
  out[threadIdx.x] = total;
}

static __global__ void tooMuch(int* out) {
  void* memory = malloc(size_t{1} << 40);
  *out = memory == nullptr;
  free(memory);
}

PROGRAM("device-heap", "malloc and free in kernels, memory that outlives a kernel, a heap of another size") {
  SEE(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20));
  size_t bytes = 0;
  CHECK(cudaDeviceGetLimit(&bytes, cudaLimitMallocHeapSize));
  say("heap of 32 MiB or more: %s", bytes >= (32u << 20) ? "yes" : "no");
  conformance::Device<Node*> heads(32);
  conformance::Device<int> out(32);
  heads.clear();
  build<<<1, 32>>>(heads, 10);
  sum<<<1, 32>>>(heads, out);
  conformance::list("sums", out.take());
  tooMuch<<<1, 1>>>(out);
  say("more than the heap is null: %d", out.take()[0]);
  say("the heap cannot change once it is used: %s", cudaGetErrorName(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 64 << 20)));
}
