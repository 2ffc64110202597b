// SPDX-License-Identifier: Apache-2.0
// Kernels that find addresses of pinned and registered memory in device memory, in constants, in structures passed by value,
// and in memory of the program.
#include "conformance.h"

using namespace conformance;

namespace {

struct Link {
  int value;
  Link* next;
};

#pragma pack(push, 1)
struct Odd {
  char before;
  int* address;
  short behind;
};
#pragma pack(pop)

__device__ Link* head;
__constant__ int* constantAddress;

__global__ void sum(int** list, int count, int* out) {
  int total = 0;
  for (int i = 0; i < count; ++i) total += *list[i];
  *out = total;
}
__global__ void store(int** list, int count) {
  for (int i = 0; i < count; ++i) *list[i] = 100 + i;
}
__global__ void follow(int* out) {
  int digits = 0;
  for (const Link* each = head; each; each = each->next) digits = digits * 10 + each->value;
  *out = digits;
}
__global__ void readConstant(int* out) { *out = constantAddress[3]; }
__global__ void readOdd(Odd odd, int* out) {
  *out = odd.address[2];
  odd.address[4] = 77;
}

template <class T>
T* pinned(size_t count) {
  T* memory = nullptr;
  CHECK(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocDefault));
  std::memset(memory, 0, count * sizeof(T));
  return memory;
}

int result(const Device<int>& out) {
  CHECK(cudaDeviceSynchronize());
  return out.take()[0];
}

}  // namespace

PROGRAM("host-pointers", "addresses of host memory that no parameter of a kernel says") {
  Device<int> out(1);
  constexpr int kCount = 6;
  int* words[kCount];
  for (int i = 0; i < kCount; ++i) {
    words[i] = pinned<int>(1024 * (i * i + 1));
    *words[i] = i + 1;
  }
  Device<int*> list(std::vector<int*>(words, words + kCount));
  sum<<<1, 1>>>(list, kCount, out);
  say("list: %d", result(out));
  store<<<1, 1>>>(list, kCount);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) say("stored: %d", *words[i]);
  for (int i = 0; i < kCount; ++i) *words[i] = 2 * i;
  sum<<<1, 1>>>(list, kCount, out);
  say("again: %d", result(out));

  Link* first = pinned<Link>(16);
  Link* second = pinned<Link>(65536);
  first[0] = {1, &second[1000]};
  second[1000] = {2, &first[5]};
  first[5] = {3, nullptr};
  CHECK(cudaMemcpyToSymbol(head, &first, sizeof first));
  follow<<<1, 1>>>(out);
  say("chain: %d", result(out));
  Link* third = pinned<Link>(16);
  third[7] = {4, nullptr};
  first[5].next = &third[7];
  follow<<<1, 1>>>(out);
  say("longer: %d", result(out));

  int* constants = pinned<int>(16);
  constants[3] = 33;
  CHECK(cudaMemcpyToSymbol(constantAddress, &constants, sizeof constants));
  readConstant<<<1, 1>>>(out);
  say("constant: %d", result(out));

  int* odd = pinned<int>(16);
  odd[2] = 22;
  readOdd<<<1, 1>>>(Odd{'a', odd, 3}, out);
  say("odd: %d", result(out));
  say("and back: %d", odd[4]);

  std::vector<int> own(50'000, 5);
  CHECK(cudaHostRegister(own.data(), own.size() * sizeof(int), cudaHostRegisterMapped));
  list.put({&own[12345], &own[49999]});
  own[12345] = 8;
  sum<<<1, 1>>>(list, 2, out);
  say("registered: %d", result(out));
  CHECK(cudaHostUnregister(own.data()));

  int** inPinned = pinned<int*>(kCount);
  int** inManaged = nullptr;
  CHECK(cudaMallocManaged(&inManaged, kCount * sizeof(int*)));
  for (int i = 0; i < kCount; ++i) inPinned[i] = inManaged[i] = words[kCount - 1 - i];
  sum<<<1, 1>>>(inPinned, kCount, out);
  say("list in pinned memory: %d", result(out));
  sum<<<1, 1>>>(inManaged, kCount, out);
  say("list in managed memory: %d", result(out));
}
