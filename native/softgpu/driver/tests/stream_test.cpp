// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "softgpu/driver/tests/gate.h"

namespace millpond::softgpu::testing {
namespace {

CUstream makeStream(unsigned flags) {
  CUstream stream = nullptr;
  OK(CU(cuStreamCreate)(&stream, flags));
  return stream;
}

CUevent makeEvent(unsigned flags = 0) {
  CUevent event = nullptr;
  OK(CU(cuEventCreate)(&event, flags));
  return event;
}

/// Remembers in which order host functions ran.
class Journal {
 public:
  void write(CUstream stream, int number) {
    entries_.push_back(std::make_unique<Entry>(Entry{this, number}));
    OK(CU(cuLaunchHostFunc)(stream, &Journal::run, entries_.back().get()));
  }
  std::vector<int> lines() {
    std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  struct Entry {
    Journal* journal;
    int number;
  };
  static void run(void* data) {
    auto* entry = static_cast<Entry*>(data);
    std::lock_guard lock(entry->journal->mutex_);
    entry->journal->lines_.push_back(entry->number);
  }
  std::vector<std::unique_ptr<Entry>> entries_;
  std::mutex mutex_;
  std::vector<int> lines_;
};

TEST("work of one stream runs in order") {
  PrimaryContext context;
  Journal journal;
  CUstream stream = makeStream(CU_STREAM_NON_BLOCKING);
  std::vector<int> expected;
  for (int i = 0; i < 1000; ++i) {
    journal.write(stream, i);
    expected.push_back(i);
  }
  OK(CU(cuStreamSynchronize)(stream));
  CHECK(journal.lines() == expected);
  OK(CU(cuStreamDestroy_v2)(stream));
}

TEST("free streams do not wait for each other or for the legacy stream") {
  PrimaryContext context;
  CUstream first = makeStream(CU_STREAM_NON_BLOCKING);
  CUstream second = makeStream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  Gate legacyGate;
  gate.close(first);
  legacyGate.close(nullptr);
  Journal journal;
  journal.write(second, 1);
  OK(CU(cuStreamSynchronize)(second));
  CHECK_EQ(journal.lines().size(), size_t{1});
  FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(first));
  FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(nullptr));
  gate.open();
  legacyGate.open();
  OK(CU(cuCtxSynchronize)());
  OK(CU(cuStreamQuery)(first));
  OK(CU(cuStreamQuery)(nullptr));
  OK(CU(cuStreamDestroy_v2)(first));
  OK(CU(cuStreamDestroy_v2)(second));
}

TEST("the legacy stream waits for blocking streams, and they for it") {
  PrimaryContext context;
  CUstream first = makeStream(CU_STREAM_DEFAULT);
  CUstream second = makeStream(CU_STREAM_DEFAULT);
  Journal journal;
  Gate gate;
  gate.close(first);
  journal.write(first, 1);
  journal.write(nullptr, 2);
  journal.write(second, 3);
  FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(second));
  FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(CU_STREAM_LEGACY));
  CHECK(journal.lines().empty());
  gate.open();
  OK(CU(cuStreamSynchronize)(second));
  CHECK(journal.lines() == std::vector<int>({1, 2, 3}));
  OK(CU(cuStreamDestroy_v2)(first));
  OK(CU(cuStreamDestroy_v2)(second));
}

TEST("the per-thread stream belongs to its thread and keeps step with the legacy stream") {
  PrimaryContext context;
  Journal journal;
  Gate gate;
  gate.close(CU_STREAM_PER_THREAD);
  journal.write(CU_STREAM_PER_THREAD, 1);
  std::thread([&] {
    OK(CU(cuCtxSetCurrent)(context.handle()));
    OK(CU(cuStreamQuery)(CU_STREAM_PER_THREAD));
  }).join();
  journal.write(nullptr, 2);
  CHECK(journal.lines().empty());
  gate.open();
  OK(CU(cuStreamSynchronize)(nullptr));
  CHECK(journal.lines() == std::vector<int>({1, 2}));
}

TEST("a destroyed stream finishes its work") {
  PrimaryContext context;
  CUstream stream = makeStream(CU_STREAM_DEFAULT);
  Journal journal;
  Gate gate;
  gate.close(stream);
  journal.write(stream, 1);
  OK(CU(cuStreamDestroy_v2)(stream));
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuStreamDestroy_v2)(stream));
  journal.write(nullptr, 2);
  CHECK(journal.lines().empty());
  gate.open();
  OK(CU(cuCtxSynchronize)());
  CHECK(journal.lines() == std::vector<int>({1, 2}));
}

TEST("events order streams, and tell when they are reached") {
  PrimaryContext context;
  CUstream first = makeStream(CU_STREAM_NON_BLOCKING);
  CUstream second = makeStream(CU_STREAM_NON_BLOCKING);
  CUevent event = makeEvent(CU_EVENT_DISABLE_TIMING);
  OK(CU(cuEventQuery)(event));
  OK(CU(cuStreamWaitEvent)(second, event, 0));
  OK(CU(cuStreamQuery)(second));

  Journal journal;
  Gate gate;
  gate.close(first);
  journal.write(first, 1);
  OK(CU(cuEventRecord)(event, first));
  OK(CU(cuStreamWaitEvent)(second, event, 0));
  journal.write(second, 2);
  FAILS(CUDA_ERROR_NOT_READY, CU(cuEventQuery)(event));
  FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(second));
  // The wait is for the point recorded at the time of the call.
  OK(CU(cuEventRecord)(event, second));
  gate.open();
  OK(CU(cuEventSynchronize)(event));
  CHECK(journal.lines() == std::vector<int>({1, 2}));
  OK(CU(cuEventQuery)(event));
  OK(CU(cuEventDestroy_v2)(event));
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuEventQuery)(event));
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuEventDestroy_v2)(event));
  OK(CU(cuStreamDestroy_v2)(first));
  OK(CU(cuStreamDestroy_v2)(second));
}

TEST("events measure time between them") {
  PrimaryContext context;
  CUstream stream = makeStream(CU_STREAM_NON_BLOCKING);
  CUevent start = makeEvent();
  CUevent end = makeEvent();
  float milliseconds = -1;
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuEventElapsedTime_v2)(&milliseconds, start, end));
  OK(CU(cuEventRecord)(start, stream));
  Gate gate;
  gate.close(stream);
  OK(CU(cuEventRecord)(end, stream));
  FAILS(CUDA_ERROR_NOT_READY, CU(cuEventElapsedTime_v2)(&milliseconds, start, end));
  gate.awaitArrival();
  const auto before = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - before < std::chrono::milliseconds(3)) {
  }
  gate.open();
  OK(CU(cuStreamSynchronize)(stream));
  OK(CU(cuEventElapsedTime)(&milliseconds, start, end));
  CHECK(milliseconds >= 3.0f);
  CHECK(milliseconds < 60000.0f);
  float backwards = 0;
  OK(CU(cuEventElapsedTime)(&backwards, end, start));
  CHECK_EQ(backwards, -milliseconds);
  CUevent untimed = makeEvent(CU_EVENT_DISABLE_TIMING);
  OK(CU(cuEventRecord)(untimed, stream));
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuEventElapsedTime)(&milliseconds, start, untimed));
  OK(CU(cuStreamDestroy_v2)(stream));
  for (CUevent event : {start, end, untimed}) OK(CU(cuEventDestroy_v2)(event));
}

TEST("an event orders streams of two devices, but is recorded only in its own") {
  PrimaryContext zero(0);
  CUstream here = makeStream(CU_STREAM_NON_BLOCKING);
  CUevent event = makeEvent();
  PrimaryContext one(1);
  CUstream there = makeStream(CU_STREAM_NON_BLOCKING);
  FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuEventRecord)(event, there));
  Gate gate;
  gate.close(here);
  OK(CU(cuEventRecord)(event, here));
  OK(CU(cuStreamWaitEvent)(there, event, 0));
  Journal journal;
  journal.write(there, 1);
  FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(there));
  gate.open();
  OK(CU(cuStreamSynchronize)(there));
  CHECK_EQ(journal.lines().size(), size_t{1});
  OK(CU(cuStreamDestroy_v2)(there));
  OK(CU(cuStreamDestroy_v2)(here));
  OK(CU(cuEventDestroy_v2)(event));
}

TEST("host functions may block each other's streams, but not call the driver") {
  PrimaryContext context;
  // More functions than there are threads for other work: each waits for the last.
  constexpr int kMany = 80;
  std::vector<CUstream> streams;
  std::vector<std::unique_ptr<Gate>> gates;
  for (int i = 0; i < kMany; ++i) {
    streams.push_back(makeStream(CU_STREAM_NON_BLOCKING));
    gates.push_back(std::make_unique<Gate>());
    gates.back()->close(streams.back());
  }
  for (auto& gate : gates) gate->awaitArrival();
  for (auto& gate : gates) gate->open();
  OK(CU(cuCtxSynchronize)());
  std::atomic<int> result = -1;
  OK(CU(cuLaunchHostFunc)(
      streams[0],
      [](void* data) {
        size_t free = 0;
        size_t total = 0;
        *static_cast<std::atomic<int>*>(data) = CU(cuMemGetInfo_v2)(&free, &total);
      },
      &result));
  OK(CU(cuStreamSynchronize)(streams[0]));
  CHECK_EQ(result.load(), static_cast<int>(CUDA_ERROR_NOT_PERMITTED));
  for (CUstream stream : streams) OK(CU(cuStreamDestroy_v2)(stream));
}

TEST("callbacks get their stream and its status") {
  PrimaryContext context;
  CUstream stream = makeStream(0);
  struct Seen {
    CUstream stream = nullptr;
    CUresult status = CUDA_ERROR_UNKNOWN;
  } seen;
  OK(CU(cuStreamAddCallback)(
      stream,
      [](CUstream s, CUresult status, void* data) {
        *static_cast<Seen*>(data) = {s, status};
      },
      &seen, 0));
  OK(CU(cuStreamSynchronize)(stream));
  CHECK(seen.stream == stream);
  CHECK_EQ(static_cast<int>(seen.status), 0);
  OK(CU(cuStreamDestroy_v2)(stream));
}

TEST("streams know their priority, flags, identity, context") {
  PrimaryContext context;
  CUstream stream = nullptr;
  OK(CU(cuStreamCreateWithPriority)(&stream, CU_STREAM_NON_BLOCKING, -99));
  int priority = 0;
  OK(CU(cuStreamGetPriority)(stream, &priority));
  int greatest = 0;
  OK(CU(cuCtxGetStreamPriorityRange)(nullptr, &greatest));
  CHECK_EQ(priority, greatest);
  unsigned flags = 0;
  OK(CU(cuStreamGetFlags)(stream, &flags));
  CHECK_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  unsigned long long id = 0;
  unsigned long long legacyId = 0;
  OK(CU(cuStreamGetId)(stream, &id));
  OK(CU(cuStreamGetId)(nullptr, &legacyId));
  CHECK(id != legacyId);
  CUcontext owner = nullptr;
  OK(CU(cuStreamGetCtx)(stream, &owner));
  CHECK(owner == context.handle());
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  OK(CU(cuStreamIsCapturing)(stream, &status));
  CHECK_EQ(static_cast<int>(status), static_cast<int>(CU_STREAM_CAPTURE_STATUS_NONE));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuStreamCreate)(&stream, 0x10));
  OK(CU(cuStreamDestroy_v2)(stream));
}

TEST("many threads share streams, events and memory") {
  PrimaryContext context;
  constexpr int kThreads = 4;
  constexpr uint32_t kRounds = 60;
  CUdeviceptr counters = 0;
  OK(CU(cuMemAlloc_v2)(&counters, kThreads * 4));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      OK(CU(cuCtxSetCurrent)(context.handle()));
      const CUdeviceptr mine = counters + static_cast<unsigned>(t) * 4;
      for (uint32_t round = 1; round <= kRounds; ++round) {
        CUstream stream = makeStream(round % 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
        CUevent event = makeEvent();
        CUdeviceptr scratch = 0;
        OK(CU(cuMemAlloc_v2)(&scratch, 10000));
        OK(CU(cuMemsetD32Async)(scratch, round, 2500, stream));
        OK(CU(cuMemcpyDtoDAsync_v2)(mine, scratch + 4, 4, stream));
        OK(CU(cuEventRecord)(event, stream));
        if (round % 6 == 3) OK(CU(cuMemsetD8Async)(scratch, 0, 16, nullptr));
        OK(CU(cuEventSynchronize)(event));
        uint32_t value = 0;
        OK(CU(cuMemcpyDtoH_v2)(&value, mine, 4));
        CHECK_EQ(value, round);
        OK(CU(cuEventDestroy_v2)(event));
        OK(CU(cuStreamDestroy_v2)(stream));
        OK(CU(cuMemFree_v2)(scratch));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  OK(CU(cuCtxSynchronize)());
  OK(CU(cuMemFree_v2)(counters));
}

}  // namespace
}  // namespace millpond::softgpu::testing
