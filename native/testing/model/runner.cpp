// SPDX-License-Identifier: Apache-2.0
#include "testing/model/runner.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "testing/model/driver.h"
#include "testing/model/host_function.h"
#include "testing/model/kernels.h"
#include "testing/model/program_memory.h"

namespace millpond::model {

std::array<std::atomic<size_t>, kMostThreads> progress;
std::atomic<const char*> stage = "begins";

namespace {

constexpr uint32_t kBlock = 128;

CUcontext context = nullptr;
CUcontext peer = nullptr;
CUfunction mix = nullptr;
CUfunction mixTable = nullptr;
CUfunction mixPacked = nullptr;

class Run {
 public:
  Run(const Program& program, const Outcome& outcome)
      : program_(program),
        outcome_(outcome),
        memory_(program, context, peer),
        events_(program.events),
        promises_(program.promises),
        signals_(program.signals),
        graphs_(program.graphs),
        executables_(program.graphs) {
    for (const Stream& stream : program.streams)
      must("cuStreamCreate", CU(cuStreamCreate)(&streams_.emplace_back(),
                                                stream.isBlocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    for (CUstream& stream : capturing_) must("cuStreamCreate", CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    for (CUevent& event : marks_) {
      must("cuEventCreate", CU(cuEventCreate)(&event, CU_EVENT_DEFAULT));
      must("cuEventRecord", CU(cuEventRecord)(event, streams_[0]));
    }
    must("cuEventCreate", CU(cuEventCreate)(&fork_, CU_EVENT_DISABLE_TIMING));
    must("cuCtxSynchronize", CU(cuCtxSynchronize)());
  }

  void threads() {
    if (program_.threads == 1) return thread(0);
    size_t first = 0;
    while (first < program_.ops.size() && program_.ops[first].kind == OpKind::graph) execute(first++);
    std::vector<std::thread> threads;
    for (uint8_t i = 0; i < program_.threads; ++i) {
      threads.emplace_back([this, i, first] {
        must("cuCtxSetCurrent", CU(cuCtxSetCurrent)(context));
        thread(i, first);
      });
    }
    for (std::thread& each : threads) each.join();
  }

  void compareAll() {
    place_ = program_.ops.size();
    must("cuCtxSynchronize", CU(cuCtxSynchronize)());
    for (int slot = 0; slot < static_cast<int>(slotCount(program_)); ++slot) {
      const Buffer& buffer = bufferOf(program_, slot);
      std::vector<uint32_t> words(buffer.words);
      if (isHost(buffer.memory)) {
        std::memcpy(words.data(), host(slot), buffer.words * sizeof(uint32_t));
      } else {
        must("cuMemcpyDtoH", CU(cuMemcpyDtoH_v2)(words.data(), device(slot), buffer.words * sizeof(uint32_t)));
      }
      compare(slot, words.data(), outcome_.slots[static_cast<size_t>(slot)], "in the end");
    }
  }

  void clear() {
    for (const CUgraphExec each : executables_)
      if (each) must("cuGraphExecDestroy", CU(cuGraphExecDestroy)(each));
    for (const CUgraph each : graphs_)
      if (each) must("cuGraphDestroy", CU(cuGraphDestroy)(each));
    for (const CUevent each : events_)
      if (each) must("cuEventDestroy", CU(cuEventDestroy_v2)(each));
    for (const CUevent each : marks_) must("cuEventDestroy", CU(cuEventDestroy_v2)(each));
    must("cuEventDestroy", CU(cuEventDestroy_v2)(fork_));
    for (const CUstream each : streams_) must("cuStreamDestroy", CU(cuStreamDestroy_v2)(each));
    for (const CUstream each : capturing_) must("cuStreamDestroy", CU(cuStreamDestroy_v2)(each));
    memory_.free();
  }

 private:
  /// What failed, and where.
  void must(const char* call, CUresult result) {
    if (result == CUDA_SUCCESS) return;
    give(std::string("error: ") + call + ": " + errorName(result) + where());
  }
  std::string where() const {
    return place_ < program_.ops.size()
               ? " at op " + std::to_string(place_) + ", " + describe(program_, program_.ops[place_])
               : std::string(" before or behind the ops");
  }

  CUdeviceptr device(int slot) const { return memory_.device(slot); }
  uint32_t* host(int slot) const { return memory_.host(slot); }
  CUdeviceptr address(int slot) const { return memory_.address(slot); }

  void compare(int slot, const uint32_t* words, const std::vector<uint32_t>& expected, const char* when) const {
    for (size_t i = 0; i < expected.size(); ++i) {
      if (words[i] == expected[i]) continue;
      give("difference: slot " + std::to_string(slot) + " (" + std::to_string(bufferOf(program_, slot).words) +
           " words, buffer " + std::to_string(placeOf(program_, slot).buffer) + ") has " + std::to_string(words[i]) +
           " at word " + std::to_string(i) + " instead of " + std::to_string(expected[i]) + " " + when + where());
    }
  }

  // Ops

  void thread(uint8_t number, size_t first = 0) {
    for (size_t i = first; i < program_.ops.size(); ++i) {
      if (program_.ops[i].thread != number) continue;
      progress[number] = i;
      execute(i);
    }
    progress[number] = program_.ops.size();
  }

  CUstream stream(const Op& op) const {
    if (op.stream == kLegacy) return CU_STREAM_LEGACY;
    if (op.stream == kPerThread) return CU_STREAM_PER_THREAD;
    return streams_[op.stream - kFirstStream];
  }

  void execute(size_t place) {
    place_ = place;
    const Op& op = program_.ops[place];
    switch (op.kind) {
      case OpKind::launch:
      case OpKind::copy:
      case OpKind::fill:
      case OpKind::hostFunction: return submit(op, op.isSynchronous ? nullptr : stream(op));
      case OpKind::record:
        // Others may wait for it only after this op.
        if (!events_[op.object]) must("cuEventCreate", CU(cuEventCreate)(&events_[op.object], CU_EVENT_DISABLE_TIMING));
        return must("cuEventRecord", CU(cuEventRecord)(events_[op.object], stream(op)));
      case OpKind::waitEvent:
        return must("cuStreamWaitEvent", CU(cuStreamWaitEvent)(stream(op), events_[op.object], 0));
      case OpKind::syncEvent: return must("cuEventSynchronize", CU(cuEventSynchronize)(events_[op.object]));
      case OpKind::queryEvent: return must("cuEventQuery", CU(cuEventQuery)(events_[op.object]));
      case OpKind::syncStream: return must("cuStreamSynchronize", CU(cuStreamSynchronize)(stream(op)));
      case OpKind::queryStream: {
        const CUresult result = CU(cuStreamQuery)(stream(op));
        if (result != CUDA_ERROR_NOT_READY) give(std::string("error: a held stream is ") + errorName(result) + where());
        return;
      }
      case OpKind::syncContext: return must("cuCtxSynchronize", CU(cuCtxSynchronize)());
      case OpKind::waitValue:
        return must("cuStreamWaitValue32", CU(cuStreamWaitValue32_v2)(stream(op), memory_.wordOnDevice(op.object), 1,
                                                                      CU_STREAM_WAIT_VALUE_GEQ));
      case OpKind::writeValue:
        return must("cuStreamWriteValue32", CU(cuStreamWriteValue32_v2)(stream(op), memory_.wordOnDevice(op.object), 1,
                                                                        CU_STREAM_WRITE_VALUE_DEFAULT));
      case OpKind::storeWord: return std::atomic_ref(memory_.word(op.object)).store(1, std::memory_order_release);
      case OpKind::fulfil: return promises_[op.object].open();
      case OpKind::hostUpdate:
        for (uint32_t i = 0; i < bufferOf(program_, op.to).words; ++i)
          host(op.to)[i] = updated(host(op.to)[i], op.value);
        return;
      case OpKind::hostCheck: return compare(op.from, host(op.from), outcome_.checks.at(place), "by then");
      case OpKind::send: return signals_[op.object].open();
      case OpKind::receive: return signals_[op.object].wait();
      case OpKind::graph: return capture(op);
      case OpKind::launchGraph: return must("cuGraphLaunch", CU(cuGraphLaunch)(executables_[op.object], stream(op)));
      case OpKind::updateGraph: {
        CUgraphExecUpdateResultInfo info{};
        return must("cuGraphExecUpdate", CU(cuGraphExecUpdate_v2)(executables_[op.object], graphs_[op.count], &info));
      }
      case OpKind::ask: return ask();
    }
  }

  void submit(const Op& op, CUstream into) {
    if (op.kind == OpKind::launch) return launch(op, into);
    if (op.kind == OpKind::copy && isByWay(op.variant)) return copyByWay(op, into);
    if (op.kind == OpKind::copy)
      return op.variant == Variant::rows  ? copyRows(op, into)
             : op.variant == Variant::box ? copyBox(op, into)
                                          : copy(op, into);
    if (op.kind == OpKind::fill) return fill(op, into);
    HostFunction* function = nullptr;
    {
      const std::scoped_lock lock(functionsMutex_);
      function = &functions_.emplace_back();
    }
    function->sleepMs = op.count;
    function->promise = op.object == kNone ? nullptr : &promises_[op.object];
    if (op.to >= 0) function->words = host(op.to), function->count = bufferOf(program_, op.to).words;
    function->value = op.value;
    must("cuLaunchHostFunc", CU(cuLaunchHostFunc)(into, &callHostFunction, function));
  }

  void launch(const Op& op, CUstream into) {
    uint32_t words = std::min(bufferOf(program_, op.to).words, bufferOf(program_, op.from).words);
    CUdeviceptr to = device(op.to);
    CUdeviceptr from = device(op.from);
    uint32_t value = op.value;
    uint32_t toIndex = static_cast<uint32_t>(op.to);
    uint32_t fromIndex = static_cast<uint32_t>(op.from);
    Packed packed;
    std::memcpy(&packed.bytes[Packed::kTo], &to, sizeof to);
    std::memcpy(&packed.bytes[Packed::kFrom], &from, sizeof from);
    std::memcpy(&packed.bytes[Packed::kWords], &words, sizeof words);
    std::memcpy(&packed.bytes[Packed::kValue], &value, sizeof value);
    void* plain[] = {&to, &from, &words, &value};
    CUdeviceptr places = memory_.table();
    void* table[] = {&places, &toIndex, &fromIndex, &words, &value};
    void* whole[] = {packed.bytes.data()};
    const bool isTable = op.variant == Variant::table;
    const bool isPacked = op.variant == Variant::packed;
    for (uint32_t i = 0; i < op.count; ++i)
      must("cuLaunchKernel", CU(cuLaunchKernel)(isTable    ? mixTable
                                                : isPacked ? mixPacked
                                                           : mix,
                                                (words + kBlock - 1) / kBlock, 1, 1, kBlock, 1, 1, 0, into,
                                                isTable    ? table
                                                : isPacked ? whole
                                                           : plain,
                                                nullptr));
  }

  void copy(const Op& op, CUstream into) {
    const Memory from = bufferOf(program_, op.from).memory;
    const Memory to = bufferOf(program_, op.to).memory;
    const size_t bytes =
        std::min(bufferOf(program_, op.to).words, bufferOf(program_, op.from).words) * sizeof(uint32_t);
    const bool sync = op.isSynchronous;
    if ((from == Memory::peer) != (to == Memory::peer) && !isHost(from) && !isHost(to)) {
      const CUcontext fromContext = from == Memory::peer ? peer : context;
      const CUcontext toContext = to == Memory::peer ? peer : context;
      return must("cuMemcpyPeer",
                  sync ? CU(cuMemcpyPeer)(device(op.to), toContext, device(op.from), fromContext, bytes)
                       : CU(cuMemcpyPeerAsync)(device(op.to), toContext, device(op.from), fromContext, bytes, into));
    }
    if (op.variant == Variant::unified || isHost(from) == isHost(to))
      return must("cuMemcpy", sync ? CU(cuMemcpy)(address(op.to), address(op.from), bytes)
                                   : CU(cuMemcpyAsync)(address(op.to), address(op.from), bytes, into));
    if (isHost(from))
      return must("cuMemcpyHtoD", sync ? CU(cuMemcpyHtoD_v2)(device(op.to), host(op.from), bytes)
                                       : CU(cuMemcpyHtoDAsync_v2)(device(op.to), host(op.from), bytes, into));
    must("cuMemcpyDtoH", sync ? CU(cuMemcpyDtoH_v2)(host(op.to), device(op.from), bytes)
                              : CU(cuMemcpyDtoHAsync_v2)(host(op.to), device(op.from), bytes, into));
  }

  /// All words but the last of each row.
  void copyRows(const Op& op, CUstream into) {
    const uint32_t words = std::min(bufferOf(program_, op.to).words, bufferOf(program_, op.from).words);
    CUDA_MEMCPY2D rows{};
    const auto isHostEnd = [&](int slot) {
      return isHost(bufferOf(program_, slot).memory) && bufferOf(program_, slot).memory != Memory::managed;
    };
    rows.srcMemoryType = isHostEnd(op.from) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    rows.dstMemoryType = isHostEnd(op.to) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    rows.srcHost = isHostEnd(op.from) ? host(op.from) : nullptr;
    rows.srcDevice = isHostEnd(op.from) ? 0 : device(op.from);
    rows.dstHost = isHostEnd(op.to) ? host(op.to) : nullptr;
    rows.dstDevice = isHostEnd(op.to) ? 0 : device(op.to);
    rows.srcPitch = rows.dstPitch = kRowWords * sizeof(uint32_t);
    rows.WidthInBytes = (kRowWords - 1) * sizeof(uint32_t);
    rows.Height = words / kRowWords;
    must("cuMemcpy2D", op.isSynchronous ? CU(cuMemcpy2D_v2)(&rows) : CU(cuMemcpy2DAsync_v2)(&rows, into));
  }

  /// The same words in two slices.
  void copyBox(const Op& op, CUstream into) {
    const uint32_t rows = std::min(bufferOf(program_, op.to).words, bufferOf(program_, op.from).words) / kRowWords;
    CUDA_MEMCPY3D box{};
    box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    box.srcDevice = address(op.from);
    box.dstDevice = address(op.to);
    box.srcPitch = box.dstPitch = kRowWords * sizeof(uint32_t);
    box.srcHeight = box.dstHeight = rows / 2;
    box.WidthInBytes = (kRowWords - 1) * sizeof(uint32_t);
    box.Height = rows / 2;
    box.Depth = 2;
    must("cuMemcpy3D", op.isSynchronous ? CU(cuMemcpy3D_v2)(&box) : CU(cuMemcpy3DAsync_v2)(&box, into));
  }

  void copyByWay(const Op& op, CUstream into) {
    const size_t bytes =
        std::min(bufferOf(program_, op.to).words, bufferOf(program_, op.from).words) * sizeof(uint32_t);
    const bool isPooled = op.variant == Variant::pooled;
    CUdeviceptr way = 0;
    must("cuMemAlloc", isPooled ? CU(cuMemAllocAsync)(&way, bytes, into) : CU(cuMemAlloc_v2)(&way, bytes));
    must("cuMemcpyAsync", CU(cuMemcpyAsync)(way, address(op.from), bytes, into));
    must("cuMemcpyAsync", CU(cuMemcpyAsync)(address(op.to), way, bytes, into));
    must("cuMemFree", isPooled ? CU(cuMemFreeAsync)(way, into) : CU(cuMemFree_v2)(way));
  }

  void fill(const Op& op, CUstream into) {
    const size_t words = bufferOf(program_, op.to).words;
    const CUdeviceptr to = device(op.to);
    if (op.variant == Variant::rows) {
      constexpr size_t pitch = kRowWords * sizeof(uint32_t);
      return must("cuMemsetD2D32",
                  op.isSynchronous
                      ? CU(cuMemsetD2D32_v2)(to, pitch, op.value, kRowWords - 1, words / kRowWords)
                      : CU(cuMemsetD2D32Async)(to, pitch, op.value, kRowWords - 1, words / kRowWords, into));
    }
    must("cuMemsetD32",
         op.isSynchronous ? CU(cuMemsetD32_v2)(to, op.value, words) : CU(cuMemsetD32Async)(to, op.value, words, into));
  }

  void capture(const Op& op) {
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2)(capturing_[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    const auto follow = [&](size_t from, size_t to) {
      must("cuEventRecord", CU(cuEventRecord)(fork_, capturing_[from]));
      must("cuStreamWaitEvent", CU(cuStreamWaitEvent)(capturing_[to], fork_, 0));
    };
    follow(0, 1);
    for (const Op& each : op.body) {
      if (each.joins) follow(1, 0), follow(0, 1);
      submit(each, capturing_[each.branch]);
    }
    follow(1, 0);
    must("cuStreamEndCapture", CU(cuStreamEndCapture)(capturing_[0], &graphs_[op.object]));
    must("cuGraphInstantiate", CU(cuGraphInstantiateWithFlags)(&executables_[op.object], graphs_[op.object], 0));
  }

  void ask() {
    size_t left = 0;
    size_t all = 0;
    must("cuMemGetInfo", CU(cuMemGetInfo_v2)(&left, &all));
    float ms = 0;
    must("cuEventElapsedTime", CU(cuEventElapsedTime)(&ms, marks_[0], marks_[1]));
    CUdeviceptr memory = 0;
    must("cuMemAlloc", CU(cuMemAlloc_v2)(&memory, 4096));
    const std::scoped_lock lock(functionsMutex_);
    asked_.push_back(memory);
  }

 public:
  ~Run() {
    for (const CUdeviceptr each : asked_) must("cuMemFree", CU(cuMemFree_v2)(each));
  }

 private:
  const Program& program_;
  const Outcome& outcome_;
  ProgramMemory memory_;
  std::vector<CUstream> streams_;
  std::array<CUstream, 2> capturing_{};
  std::array<CUevent, 2> marks_{};
  CUevent fork_ = nullptr;
  std::vector<CUevent> events_;
  std::vector<Latch> promises_;
  std::vector<Latch> signals_;
  std::vector<CUgraph> graphs_;
  std::vector<CUgraphExec> executables_;
  std::mutex functionsMutex_;
  std::deque<HostFunction> functions_;
  std::vector<CUdeviceptr> asked_;
  static thread_local size_t place_;
};

thread_local size_t Run::place_ = SIZE_MAX;

void start(const char* call, CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", call, errorName(result));
  std::exit(2);
}

}  // namespace

void startDriver(bool needsPeer) {
  start("cuInit", CU(cuInit)(0));
  CUdevice device = 0;
  start("cuDeviceGet", CU(cuDeviceGet)(&device, 0));
  start("cuDevicePrimaryCtxRetain", CU(cuDevicePrimaryCtxRetain)(&context, device));
  if (needsPeer) start("cuDevicePrimaryCtxRetain", CU(cuDevicePrimaryCtxRetain)(&peer, 1));
  start("cuCtxSetCurrent", CU(cuCtxSetCurrent)(context));
  CUmodule module = nullptr;
  start("cuModuleLoadData", CU(cuModuleLoadData)(&module, kernels().c_str()));
  start("cuModuleGetFunction", CU(cuModuleGetFunction)(&mix, module, "mix"));
  start("cuModuleGetFunction", CU(cuModuleGetFunction)(&mixTable, module, "mixTable"));
  start("cuModuleGetFunction", CU(cuModuleGetFunction)(&mixPacked, module, "mixPacked"));
}

void run(const Program& program, const Outcome& outcome) {
  stage = "makes memory and streams";
  Run each(program, outcome);
  stage = "runs, or waits for the end of its threads";
  each.threads();
  stage = "compares";
  each.compareAll();
  stage = "frees";
  each.clear();
}

}  // namespace millpond::model
