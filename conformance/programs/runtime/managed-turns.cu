// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "conformance.h"

struct Node {
  int value;
  Node* next;
};

static __global__ void addTo(Node* node, int value) {
  for (; node; node = node->next) node->value += value;
}
static __global__ void fill(unsigned* data, size_t n, unsigned seed) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) data[i] = static_cast<unsigned>(i) * seed;
}
static __global__ void bump(unsigned* data, size_t n) {
  const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += 1;
}

template <class T>
static T* managed(size_t count) {
  T* data = nullptr;
  CHECK(cudaMallocManaged(&data, count * sizeof(T)));
  return data;
}

static void sparse() {
  constexpr size_t n = size_t{16} << 20;  // 64 MiB
  unsigned* data = managed<unsigned>(n);
  fill<<<64, 256>>>(data, n, 3);
  CHECK(cudaDeviceSynchronize());
  unsigned sum = 0;
  size_t at = 1;
  for (int i = 0; i < 300; ++i) {
    at = (at * 1103515245u + 12345u) % n;
    sum += data[at];
    if (i % 3 == 0) data[at] = static_cast<unsigned>(i);
  }
  say("touched here and there: %u", sum);
  bump<<<64, 256>>>(data, 64 * 256);
  CHECK(cudaDeviceSynchronize());
  unsigned long long all = 0;
  for (size_t i = 0; i < n; i += 1009) all += data[i];
  say("after another turn of the device: %llu", all);
  data[5] = 7;
  CHECK(cudaFree(data));
}

static void linked() {
  constexpr int n = 3000;
  Node* head = nullptr;
  for (int i = 0; i < n; ++i) {
    Node* node = managed<Node>(1);
    node->value = i;
    node->next = head;
    head = node;
  }
  for (int round = 0; round < 2; ++round) {
    addTo<<<1, 1>>>(head, 10);
    CHECK(cudaDeviceSynchronize());
    long long sum = 0;
    for (Node* node = head; node; node = node->next) sum += node->value--;
    say("list of %d, round %d: %lld", n, round, sum);
  }
  while (head) {
    Node* next = head->next;
    CHECK(cudaFree(head));
    head = next;
  }
}

static void streamsAndThreads() {
  constexpr int kThreads = 8;
  constexpr size_t n = 100000;
  std::vector<unsigned> sums(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&sums, t] {
      cudaStream_t stream;
      CHECK(cudaStreamCreateWithFlags(&stream, t % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
      unsigned* data = managed<unsigned>(n);
      CHECK(cudaStreamAttachMemAsync(stream, data, 0, cudaMemAttachSingle));
      CHECK(cudaStreamSynchronize(stream));
      for (size_t i = 0; i < n; ++i) data[i] = static_cast<unsigned>(t);
      for (int round = 0; round < 5; ++round) {
        bump<<<(n + 255) / 256, 256, 0, stream>>>(data, n);
        CHECK(cudaStreamSynchronize(stream));
        data[round] += 100;
      }
      for (size_t i = 0; i < n; ++i) sums[static_cast<size_t>(t)] += data[i];
      CHECK(cudaFree(data));
      CHECK(cudaStreamDestroy(stream));
    });
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) say("thread %d: %u", t, sums[static_cast<size_t>(t)]);
}

static void copies() {
  constexpr size_t n = 200000;
  unsigned* data = managed<unsigned>(n);
  unsigned* other = managed<unsigned>(n);
  for (size_t i = 0; i < n; ++i) data[i] = static_cast<unsigned>(i);
  CHECK(cudaMemcpy(other, data, n * sizeof(unsigned), cudaMemcpyDefault));
  bump<<<(n + 255) / 256, 256>>>(other, n);
  CHECK(cudaMemcpy(data, other, n / 2 * sizeof(unsigned), cudaMemcpyDeviceToDevice));
  CHECK(cudaDeviceSynchronize());
  say("from managed to managed: %u %u %u", other[n - 1], data[n / 2 - 1], data[n / 2]);
  std::vector<unsigned> host(n, 9);
  CHECK(cudaMemcpy(data, host.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
  say("from the host: %u", data[n - 1]);
  data[3] = 44;
  CHECK(cudaMemcpy(host.data(), data, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
  say("to the host: %u %u", host[3], host[4]);
  CHECK(cudaMemset(data, 0x22, 4096));
  CHECK(cudaDeviceSynchronize());
  say("set: %x %x", data[1023], data[1024]);
  CHECK(cudaMemcpy2D(other, 64, data, 32, 16, 10, cudaMemcpyDefault));
  CHECK(cudaDeviceSynchronize());
  say("rows: %x %x", other[16], other[20]);
  CHECK(cudaFree(other));
  CHECK(cudaFree(data));
}

static void graph() {
  constexpr size_t n = 50000;
  unsigned* data = managed<unsigned>(n);
  conformance::Device<unsigned> device(n);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t recorded;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  bump<<<(n + 255) / 256, 256, 0, stream>>>(data, n);
  CHECK(cudaMemcpyAsync(device, data, n * sizeof(unsigned), cudaMemcpyDefault, stream));
  CHECK(cudaStreamEndCapture(stream, &recorded));
  CHECK(cudaGraphInstantiate(&exec, recorded, 0));
  for (unsigned round = 1; round <= 3; ++round) {
    for (size_t i = 0; i < n; i += 100) data[i] = round * 10;
    data[n - 1] = round;
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("graph, round %u: %u %u %u", round, data[0], data[n - 1], device.take()[100]);
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(recorded));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(data));
}

struct Ticket {
  unsigned* data;
  unsigned seen;
};

static void hostFunctions() {
  constexpr size_t n = 100000;
  Ticket ticket = {managed<unsigned>(n), 0};
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  fill<<<64, 256, 0, stream>>>(ticket.data, n, 2);
  CHECK(cudaLaunchHostFunc(stream, [](void* of) {
    auto& t = *static_cast<Ticket*>(of);
    t.seen = t.data[n - 1];
    t.data[10] = 5000;
  }, &ticket));
  bump<<<(n + 255) / 256, 256, 0, stream>>>(ticket.data, n);
  CHECK(cudaStreamSynchronize(stream));
  say("in a function of the host: %u, behind it: %u %u", ticket.seen, ticket.data[10], ticket.data[n - 1]);
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(ticket.data));
}

PROGRAM("managed-turns", "managed memory touched by host and device in turns: lists, sparse touches, streams, threads, graphs") {
  if (!conformance::attribute(cudaDevAttrManagedMemory)) conformance::skip("no managed memory");
  sparse();
  linked();
  streamsAndThreads();
  copies();
  graph();
  hostFunctions();
}
