// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <thread>

#include "conformance.h"

static __global__ void set(int* out, int value) { *out = value; }

struct Log {
  std::vector<int> order;
  std::thread::id caller;
  bool isOther = false;
  cudaError_t inside = cudaSuccess;
};
struct Note {
  Log* log;
  int value;
};

static void note(void* data) {
  const Note* given = static_cast<Note*>(data);
  given->log->order.push_back(given->value);
  given->log->isOther = std::this_thread::get_id() != given->log->caller;
}

static void callback(cudaStream_t, cudaError_t status, void* data) {
  const Note* given = static_cast<Note*>(data);
  given->log->order.push_back(given->value + static_cast<int>(status));
}

static void calls(void* data) {
  Log* log = static_cast<Note*>(data)->log;
  void* memory = nullptr;
  log->inside = cudaMalloc(&memory, 16);
}

static void raise(void* data) { static_cast<std::atomic<int>*>(data)->store(1); }

PROGRAM("host-functions", "functions of the host in streams: order, thread, what they may not do") {
  Log log;
  log.caller = std::this_thread::get_id();
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  conformance::Device<int> cell(1);
  int* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, 3 * sizeof(int)));
  std::vector<Note> notes;
  for (int i = 0; i < 20; ++i) notes.push_back({&log, i});
  for (int i = 0; i < 20; ++i) {
    set<<<1, 1, 0, stream>>>(cell, i);
    if (i % 5 == 4) CHECK(cudaStreamAddCallback(stream, callback, &notes[static_cast<size_t>(i)], 0));
    else CHECK(cudaLaunchHostFunc(stream, note, &notes[static_cast<size_t>(i)]));
  }
  CHECK(cudaStreamSynchronize(stream));
  conformance::list("order", log.order);
  say("on another thread: %s", log.isOther ? "yes" : "no");
  // Writes of a host function are visible to the following copy.
  struct Write {
    int* to;
  } write{pinned};
  CHECK(cudaLaunchHostFunc(stream, [](void* data) { *static_cast<Write*>(data)->to = 1234; }, &write));
  CHECK(cudaMemcpyAsync(cell, pinned, sizeof(int), cudaMemcpyHostToDevice, stream));
  CHECK(cudaMemcpyAsync(pinned + 1, cell, sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  say("through the device: %d", pinned[1]);
  CHECK(cudaLaunchHostFunc(stream, calls, notes.data()));
  CHECK(cudaStreamSynchronize(stream));
  say("a call from a host function: %s", cudaGetErrorName(log.inside));
  // Another stream waits for a host function by an event.
  std::atomic<int> isRaised{0};
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cudaLaunchHostFunc(stream, raise, &isRaised));
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaEventSynchronize(event));
  say("raised before the event: %d", isRaised.load());
  SEE(cudaLaunchHostFunc(stream, nullptr, nullptr));
  cudaGetLastError();
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFreeHost(pinned));
}
