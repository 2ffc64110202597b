// SPDX-License-Identifier: Apache-2.0
// A program that profiles itself as PyTorch does, by the same calls, and prints the records for test/programs/kineto.test.ts.
// It is linked as PyTorch is: to libcupti.so.13, which is looked for in a folder of its own first.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "testing/profilers/records.h"

using namespace millpond::profiler;

extern "C" {
Result cuptiGetVersion(uint32_t*);
Result cuptiSubscribe(void**, void (*)(void*, uint32_t, uint32_t, const void*), void*);
Result cuptiUnsubscribe(void*);
Result cuptiEnableCallback(uint32_t, void*, uint32_t, uint32_t);
Result cuptiEnableDomain(uint32_t, void*, uint32_t);
Result cuptiGetTimestamp(uint64_t*);
Result cuptiActivityRegisterTimestampCallback(uint64_t (*)());
Result cuptiActivityRegisterCallbacks(void (*)(uint8_t**, size_t*, size_t*),
                                      void (*)(void*, uint32_t, uint8_t*, size_t, size_t));
Result cuptiActivityEnable(uint32_t);
Result cuptiActivityDisable(uint32_t);
Result cuptiActivityEnableDriverApi(uint32_t, uint8_t);
Result cuptiActivityEnableRuntimeApi(uint32_t, uint8_t);
Result cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t);
Result cuptiActivitySetAttribute(uint32_t, size_t*, void*);
Result cuptiActivityFlushAll(uint32_t);
Result cuptiActivityGetNextRecord(uint8_t*, size_t, uint8_t**);
Result cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t*);
Result cuptiActivityPushExternalCorrelationId(uint32_t, uint64_t);
Result cuptiActivityPopExternalCorrelationId(uint32_t, uint64_t*);
Result cuptiGetResultString(Result, const char**);
Result cuptiPCSamplingStart(void*);
Result cuptiFinalize();
}

namespace {

constexpr uint32_t kResources = 3, kRuntimeDomain = 2, kContextCreated = 1;
constexpr uint32_t kCustom0 = 3, kCustom1 = 4;
/// Small, so that a session needs several.
constexpr size_t kBufferBytes = 4096;

void check(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s: %d\n", what, result);
  std::exit(1);
}
void must(bool holds, const char* what) { check(holds ? 0 : -1, what); }

/// The buffers, by their addresses, as in Kineto.
struct Buffers {
  std::mutex mutex;
  std::map<uint8_t*, std::vector<uint64_t>> given;
  std::vector<std::pair<std::vector<uint64_t>, size_t>> ready;
};
Buffers buffers;

void requested(uint8_t** buffer, size_t* bytes, size_t* mostRecords) {
  const std::lock_guard lock(buffers.mutex);
  std::vector<uint64_t> made(kBufferBytes / sizeof(uint64_t));
  *buffer = reinterpret_cast<uint8_t*>(made.data());
  *bytes = kBufferBytes;
  *mostRecords = 0;
  buffers.given.emplace(*buffer, std::move(made));
}

void completed(void* context, uint32_t stream, uint8_t* buffer, size_t, size_t validBytes) {
  size_t dropped = 1;
  check(cuptiActivityGetNumDroppedRecords(context, stream, &dropped), "dropped records");
  must(dropped == 0, "records were dropped");
  const std::lock_guard lock(buffers.mutex);
  const auto found = buffers.given.find(buffer);
  must(found != buffers.given.end(), "an unknown buffer");
  buffers.ready.emplace_back(std::move(found->second), validBytes);
  buffers.given.erase(found);
}

/// Like Kineto: only after it has provided a buffer.
void flush(uint32_t flag) {
  {
    const std::lock_guard lock(buffers.mutex);
    must(!buffers.given.empty(), "no buffer was asked for");
  }
  check(cuptiActivityFlushAll(flag), "flush");
}

void printAll() {
  std::vector<std::pair<std::vector<uint64_t>, size_t>> ready;
  {
    const std::lock_guard lock(buffers.mutex);
    ready = std::exchange(buffers.ready, {});
  }
  for (auto& [words, bytes] : ready) {
    auto* const begin = reinterpret_cast<uint8_t*>(words.data());
    uint8_t* record = nullptr;
    while (cuptiActivityGetNextRecord(begin, bytes, &record) == kSuccess) print(record, stdout);
  }
}

constexpr uint32_t kKinds[] = {kCopy,    kFill,   kConcurrentKernel, kExternalCorrelation, kSynchronization,
                               kRuntime, kDriver, kOverhead};

void enable() {
  uint8_t perThread = 0;
  size_t bytes = sizeof perThread;
  check(cuptiActivitySetAttribute(6, &bytes, &perThread), "attribute");
  check(cuptiActivityRegisterCallbacks(&requested, &completed), "callbacks of buffers");
  check(cuptiActivityEnableCudaEventDeviceTimestamps(1), "time stamps of events");
  for (const uint32_t kind : kKinds) check(cuptiActivityEnable(kind), "enable");
  check(cuptiActivityEnableRuntimeApi(16, 0), "without cudaGetDevice");
  check(cuptiActivityEnableDriverApi(304, 0), "without cuCtxGetCurrent");
  // The records of the warm-up.
  flush(0);
}

void disable() {
  for (const uint32_t kind : kKinds) check(cuptiActivityDisable(kind), "disable");
}

constexpr char kPtx[] = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry _Z4fillPfi(.param .u64 to, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [to];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.s32 %p1, %r5, %r1;
  @%p1 bra done;
  mul.wide.s32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r5;
done:
  ret;
}
.visible .entry second(.param .u64 to)
{
  ret;
}
)";

uint64_t ownClock() {
  const auto ns = std::chrono::steady_clock::now().time_since_epoch().count();
  return static_cast<uint64_t>(ns) * 3 + 5;
}

struct Device {
  CUcontext context = nullptr;
  CUfunction fill = nullptr, second = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
};
constexpr unsigned kElements = 4096;

void launch(const Device& device, CUfunction function, CUstream stream, uint64_t id) {
  check(cuptiActivityPushExternalCorrelationId(kCustom0, id), "push");
  check(cuptiActivityPushExternalCorrelationId(kCustom1, id + 1000), "push");
  CUdeviceptr to = device.memory;
  int n = kElements;
  void* parameters[] = {&to, &n};
  check(cuLaunchKernel(function, kElements / 256, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr), "launch");
  uint64_t last = 0;
  check(cuptiActivityPopExternalCorrelationId(kCustom1, &last), "pop");
  must(last == id + 1000, "what was pushed");
  check(cuptiActivityPopExternalCorrelationId(kCustom0, nullptr), "pop");
  std::printf("launched %llu %s\n", static_cast<unsigned long long>(id),
              function == device.fill ? "_Z4fillPfi" : "second");
}

void step(const Device& device, uint64_t firstId) {
  std::vector<int> host(kElements);
  check(cuMemsetD32Async(device.memory, 7, kElements, device.stream), "fill");
  check(cuMemcpyHtoDAsync_v2(device.memory, host.data(), kElements * 4, device.stream), "copy");
  for (uint64_t i = 0; i < 20; ++i) launch(device, i % 2 ? device.second : device.fill, device.stream, firstId + i);
  // Another thread's calls are among them, and its own external numbers.
  std::thread other([&] {
    check(cuCtxSetCurrent(device.context), "context");
    for (uint64_t i = 20; i < 40; ++i) launch(device, device.second, nullptr, firstId + i);
  });
  for (uint64_t i = 40; i < 60; ++i) launch(device, device.fill, device.stream, firstId + i);
  other.join();
  check(cuStreamSynchronize(device.stream), "wait");
  check(cuMemcpyDtoH_v2(host.data(), device.memory, kElements * 4), "copy");
  check(cuCtxSynchronize(), "wait");
  must(host[kElements - 1] == static_cast<int>(kElements) - 1, "the kernel's result");
}

void profile(const Device& device, const char* name, uint64_t firstId) {
  std::printf("session %s\n", name);
  enable();
  uint64_t begin = 0, end = 0;
  check(cuptiGetTimestamp(&begin), "time");
  step(device, firstId);
  check(cuptiGetTimestamp(&end), "time");
  disable();
  // Not part of the session.
  step(device, firstId + 500);
  flush(1);
  std::printf("window %llu %llu\n", static_cast<unsigned long long>(begin), static_cast<unsigned long long>(end));
  printAll();
}

}  // namespace

int main(int argc, char** argv) {
  uint32_t version = 0;
  check(cuptiGetVersion(&version), "version");
  std::printf("version %u\n", version);
  if (version != kVersion) return 3;
  check(cuInit(0), "cuInit");
  Device device;
  check(cuDevicePrimaryCtxRetain(&device.context, 0), "context");
  check(cuCtxSetCurrent(device.context), "context");

  void* subscriber = nullptr;
  check(cuptiSubscribe(
            &subscriber, [](void*, uint32_t, uint32_t, const void*) {}, nullptr),
        "subscribe");
  must(cuptiSubscribe(
           &subscriber, [](void*, uint32_t, uint32_t, const void*) {}, nullptr) == kMultipleSubscribersNotSupported,
       "a second subscriber");
  check(cuptiEnableCallback(1, subscriber, kResources, kContextCreated), "callback");
  must(cuptiEnableDomain(1, subscriber, kRuntimeDomain) == kNotSupported, "callbacks of the runtime");
  must(cuptiPCSamplingStart(nullptr) == kNotSupported, "samples");
  must(cuptiActivityEnable(30) == kNotSupported && cuptiActivityEnable(1000) == kInvalidKind, "other kinds");
  must(cuptiActivityPopExternalCorrelationId(kCustom0, nullptr) == kQueueEmpty, "nothing to pop");
  const char* text = nullptr;
  check(cuptiGetResultString(kNotSupported, &text), "text");
  must(std::string(text) == "CUPTI_ERROR_NOT_SUPPORTED", text);

  CUmodule module = nullptr;
  check(cuModuleLoadData(&module, kPtx), "module");
  check(cuModuleGetFunction(&device.fill, module, "_Z4fillPfi"), "function");
  check(cuModuleGetFunction(&device.second, module, "second"), "function");
  check(cuStreamCreate(&device.stream, CU_STREAM_NON_BLOCKING), "stream");
  check(cuMemAlloc_v2(&device.memory, kElements * 4), "memory");
  if (argc > 1 && std::strcmp(argv[1], "refused") == 0) {
    std::printf("enable %d\n", cuptiActivityEnable(kConcurrentKernel));
    return 0;
  }
  step(device, 0);
  profile(device, "first", 1000);
  profile(device, "again", 2000);
  check(cuptiActivityRegisterTimestampCallback(&ownClock), "clock");
  profile(device, "own-clock", 3000);
  check(cuptiUnsubscribe(subscriber), "unsubscribe");
  check(cuptiFinalize(), "finalize");
  step(device, 4500);
}
