// SPDX-License-Identifier: Apache-2.0
// Streams that wait for a word, and kernels that poll one, which the program writes only after a pause, or while another of
// its threads is in a call that waits for the device.
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

/// Longer than a worker keeps pinned memory that it no longer uses.
constexpr auto kPause = std::chrono::milliseconds(2500);
constexpr auto kMoment = std::chrono::milliseconds(150);
/// More than an idle worker keeps.
constexpr size_t kMuch = size_t{96} << 20;

/// Leaves the worker with much unused pinned memory: data that it receives behind a function, it stores there.
void moveMuch() {
  const CUdeviceptr memory = allocate(kMuch);
  const std::vector<std::byte> host(kMuch);
  const CUstream on = stream();
  Gate gate;
  gate.close(on);
  std::thread opener([&] {
    std::this_thread::sleep_for(4 * kMoment);
    gate.open();
  });
  OK(CU(cuMemcpyHtoDAsync_v2)(memory, host.data(), kMuch, on));
  OK(CU(cuStreamSynchronize)(on));
  opener.join();
  OK(CU(cuStreamDestroy_v2)(on));
  OK(CU(cuMemFree_v2)(memory));
}

/// A word that stream and host share. The stream waits until the host stores 1 there.
struct Word {
  Word() {
    context();
    OK(CU(cuMemHostAlloc)(reinterpret_cast<void**>(&value), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    *value = 0;
    OK(CU(cuMemHostGetDevicePointer_v2)(&address, value, 0));
    OK(CU(cuStreamWaitValue32_v2)(in, address, 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  Word(const Word&) = delete;
  Word& operator=(const Word&) = delete;
  ~Word() {
    OK(CU(cuStreamSynchronize)(in));
    OK(CU(cuStreamDestroy_v2)(in));
    OK(CU(cuMemFreeHost)(value));
  }
  void set() const { std::atomic_ref<int>(*value).store(1); }

  CUstream in = stream();
  int* value = nullptr;
  CUdeviceptr address = 0;
};

/// Makes `call` on a thread, and sets the word a moment later.
void whileAStreamWaits(const std::function<void()>& call) {
  const Word word;
  std::thread caller([&] {
    OK(CU(cuCtxSetCurrent)(context()));
    call();
  });
  std::this_thread::sleep_for(kMoment);
  word.set();
  caller.join();
}

/// Gives a stream that waits for a word `work` on a thread, and sets the word a moment later, after `meanwhile`.
void behindAWord(
    const std::function<void(CUstream)>& work, const std::function<void()>& meanwhile = [] {}) {
  const Word word;
  std::thread caller([&] {
    OK(CU(cuCtxSetCurrent)(context()));
    work(word.in);
  });
  std::this_thread::sleep_for(kMoment);
  meanwhile();
  word.set();
  caller.join();
}

/// Makes `call` on a thread while a blocking stream, its argument, waits for a word that another blocking stream sets a moment later.
void whileABlockingStreamWaits(const std::function<void(CUstream)>& call) {
  context();
  const CUdeviceptr word = allocate(sizeof(int)), sum = allocate(sizeof(int));
  const CUstream waits = stream(CU_STREAM_DEFAULT), sets = stream(CU_STREAM_DEFAULT);
  OK(CU(cuMemsetD32_v2)(word, 0, 1));
  OK(CU(cuMemsetD32_v2)(sum, 0, 1));
  OK(CU(cuStreamWaitValue32_v2)(waits, word, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(CU(cuMemsetD32Async)(sum, 5, 1, waits));
  std::thread caller([&] {
    OK(CU(cuCtxSetCurrent)(context()));
    call(waits);
    OK(CU(cuStreamQuery)(waits));
  });
  std::this_thread::sleep_for(kMoment);
  OK(CU(cuStreamWriteValue32_v2)(sets, word, 1, 0));
  caller.join();
  CHECK_EQ(read(sum, 1)[0], 5);
  for (const CUstream each : {waits, sets}) OK(CU(cuStreamDestroy_v2)(each));
  for (const CUdeviceptr each : {word, sum}) OK(CU(cuMemFree_v2)(each));
}

}  // namespace

TEST("a call that waits for blocking streams keeps none of them from what the others wait for") {
  whileABlockingStreamWaits([](CUstream) { OK(CU(cuCtxSynchronize)()); });
  whileABlockingStreamWaits([](CUstream) { OK(CU(cuStreamSynchronize)(nullptr)); });
  whileABlockingStreamWaits([](CUstream waits) { OK(CU(cuStreamSynchronize)(waits)); });
  whileABlockingStreamWaits([](CUstream waits) {
    const CUevent behind = event();
    OK(CU(cuEventRecord)(behind, waits));
    OK(CU(cuEventSynchronize)(behind));
    OK(CU(cuEventDestroy_v2)(behind));
  });
}

TEST("a call that waits for all returns after the default stream's work, though a blocking stream got work since") {
  context();
  const CUstream blocking = stream(CU_STREAM_DEFAULT);
  const CUdeviceptr memory = allocate(2 * sizeof(int));
  for (const bool waitsForContext : {true, false}) {
    OK(CU(cuMemsetD32Async)(memory, 1, 2, nullptr));
    // Nothing else has used the default stream of this thread.
    OK(CU(cuLaunchHostFunc)(
        nullptr, [](void*) { std::this_thread::sleep_for(kMoment); }, nullptr));
    OK(CU(cuMemsetD32Async)(memory, 2, 1, nullptr));
    OK(CU(cuMemsetD32Async)(memory + sizeof(int), 3, 1, blocking));
    OK(waitsForContext ? CU(cuCtxSynchronize)() : CU(cuStreamSynchronize)(nullptr));
    OK(CU(cuStreamQuery)(nullptr));
    OK(CU(cuStreamQuery)(blocking));
    CHECK_EQ(read(memory, 2)[0], 2);
    CHECK_EQ(read(memory, 2)[1], 3);
  }
  OK(CU(cuStreamDestroy_v2)(blocking));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("a wait for the context includes the work of streams that were destroyed") {
  context();
  const CUdeviceptr memory = allocate(sizeof(int));
  for (const unsigned flags : {CU_STREAM_NON_BLOCKING, CU_STREAM_DEFAULT}) {
    OK(CU(cuMemsetD32_v2)(memory, 1, 1));
    OK(CU(cuCtxSynchronize)());
    const CUstream ends = stream(flags), other = stream(CU_STREAM_DEFAULT);
    OK(CU(cuLaunchHostFunc)(
        ends, [](void*) { std::this_thread::sleep_for(kMoment); }, nullptr));
    OK(CU(cuMemsetD32Async)(memory, 2, 1, ends));
    OK(CU(cuStreamDestroy_v2)(ends));
    OK(CU(cuCtxSynchronize)());
    CUdeviceptr copy = allocate(sizeof(int));
    OK(CU(cuMemcpyDtoDAsync_v2)(copy, memory, sizeof(int), other));
    OK(CU(cuStreamSynchronize)(other));
    CHECK_EQ(read(copy, 1)[0], 2);
    OK(CU(cuStreamDestroy_v2)(other));
    OK(CU(cuMemFree_v2)(copy));
  }
  OK(CU(cuMemFree_v2)(memory));
}

TEST("after a pause, commands still reach a kernel that polls memory of the device") {
  context();
  const CUfunction await = kernel("await");
  moveMuch();
  CUdeviceptr words = allocate(2 * sizeof(int));
  CUdeviceptr seen = words + sizeof(int);
  const CUstream polling = stream(), other = stream();
  OK(CU(cuMemsetD32Async)(words, 0, 2, polling));
  void* arguments[] = {&words, &seen};
  OK(CU(cuLaunchKernel)(await, 1, 1, 1, 1, 1, 1, 0, polling, arguments, nullptr));
  std::this_thread::sleep_for(kPause);
  OK(CU(cuMemsetD32Async)(words, 3, 1, other));
  OK(CU(cuStreamSynchronize)(polling));
  CHECK_EQ(read(seen, 1)[0], 3);
  OK(CU(cuStreamDestroy_v2)(polling));
  OK(CU(cuStreamDestroy_v2)(other));
  OK(CU(cuMemFree_v2)(words));
}

TEST("after a pause, the program's store still reaches a stream that waits for it") {
  context();
  moveMuch();
  const Word word;
  std::this_thread::sleep_for(kPause);
  word.set();
}

TEST("a module is loaded and unloaded while a stream waits for a word") {
  context();
  std::ifstream file(kernelFile, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  CUmodule module = nullptr;
  whileAStreamWaits([&] { OK(CU(cuModuleLoadData)(&module, text.c_str())); });
  whileAStreamWaits([&] { OK(CU(cuModuleUnload)(module)); });
}

TEST("memory and arrays are freed while a stream waits for a word") {
  context();
  const CUdeviceptr memory = allocate(1 << 20);
  whileAStreamWaits([&] { OK(CU(cuMemFree_v2)(memory)); });
  void* host = nullptr;
  OK(CU(cuMemHostAlloc)(&host, 1 << 20, 0));
  whileAStreamWaits([&] { OK(CU(cuMemFreeHost)(host)); });
  const CUDA_ARRAY_DESCRIPTOR wanted{64, 64, CU_AD_FORMAT_FLOAT, 1};
  CUarray array = nullptr;
  OK(CU(cuArrayCreate_v2)(&array, &wanted));
  whileAStreamWaits([&] { OK(CU(cuArrayDestroy)(array)); });
}

TEST("much is uploaded behind a stream that waits for a word") {
  context();
  const CUdeviceptr memory = allocate(kMuch);
  const std::vector<int> host(kMuch / sizeof(int), 7);
  behindAWord([&](CUstream in) { OK(CU(cuMemcpyHtoDAsync_v2)(memory, host.data(), kMuch, in)); });
  CHECK_EQ(read(memory + kMuch - sizeof(int), 1)[0], 7);
  OK(CU(cuMemFree_v2)(memory));
}

TEST("more is given to such a stream than it takes, and another thread's work goes on meanwhile") {
  context();
  const CUdeviceptr counter = allocate(sizeof(int)), other = allocate(sizeof(int));
  const CUstream free = stream();
  behindAWord(
      [&](CUstream in) {
        for (int n = 0; n < 3000; ++n) OK(CU(cuMemsetD32Async)(counter, static_cast<unsigned>(n), 1, in));
      },
      [&] {
        OK(CU(cuMemsetD32Async)(other, 5, 1, free));
        OK(CU(cuStreamSynchronize)(free));
      });
  CHECK_EQ(read(counter, 1)[0], 2999);
  CHECK_EQ(read(other, 1)[0], 5);
  OK(CU(cuStreamDestroy_v2)(free));
  OK(CU(cuMemFree_v2)(counter));
  OK(CU(cuMemFree_v2)(other));
}

TEST("writes of words and waits for them become nodes of a capture, which run with each launch") {
  context();
  const CUdeviceptr words = allocate(4 * sizeof(int));
  OK(CU(cuMemsetD32_v2)(words, 0, 4));
  const CUstream captured = stream(), on = stream();
  OK(CU(cuStreamBeginCapture_v2)(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(CU(cuStreamWaitValue32_v2)(captured, words, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(CU(cuStreamWriteValue32_v2)(captured, words, 5, 0));
  CUstreamBatchMemOpParams both[2] = {};
  both[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  both[0].writeValue.address = words + 4;
  both[0].writeValue.value = 6;
  both[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  both[1].waitValue.address = words + 4;
  both[1].waitValue.value = 6;
  both[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  OK(CU(cuStreamBatchMemOp_v2)(captured, 2, both, 0));
  CUgraph graph = nullptr;
  OK(CU(cuStreamEndCapture)(captured, &graph));
  CUgraphNode nodes[4] = {};
  size_t count = 4;
  OK(CU(cuGraphGetNodes)(graph, nodes, &count));
  CHECK_EQ(count, 3u);
  CUgraphNodeType type{};
  OK(CU(cuGraphNodeGetType)(nodes[0], &type));
  CHECK_EQ(static_cast<int>(type), static_cast<int>(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP));
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
  OK(CU(cuGraphBatchMemOpNodeGetParams)(nodes[2], &params));
  CHECK_EQ(params.count, 2u);
  CHECK_EQ(static_cast<int>(params.paramArray[1].operation), static_cast<int>(CU_STREAM_MEM_OP_WAIT_VALUE_32));
  CUgraphExec exec = nullptr;
  OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  for (int round = 0; round < 3; ++round) {
    OK(CU(cuGraphLaunch)(exec, on));
    FAILS(CUDA_ERROR_NOT_READY, CU(cuStreamQuery)(on));
    OK(CU(cuStreamWriteValue32_v2)(captured, words, 1, 0));
    OK(CU(cuStreamSynchronize)(on));
    CHECK_EQ(read(words, 1)[0], 5);
    CHECK_EQ(read(words + 4, 1)[0], 6);
    OK(CU(cuMemsetD32_v2)(words + 4, 0, 1));
  }
  // Other parameters, of the executable graph only: it writes another word, and waits for none.
  both[0].writeValue.address = words + 8;
  params.paramArray = both;
  params.count = 1;
  params.ctx = context();
  OK(CU(cuGraphExecBatchMemOpNodeSetParams)(exec, nodes[2], &params));
  OK(CU(cuStreamWriteValue32_v2)(captured, words, 1, 0));
  OK(CU(cuGraphLaunch)(exec, on));
  OK(CU(cuStreamSynchronize)(on));
  CHECK_EQ(read(words + 4, 2)[0], 0);
  CHECK_EQ(read(words + 8, 1)[0], 6);
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(graph));
  for (CUstream each : {captured, on}) OK(CU(cuStreamDestroy_v2)(each));
  OK(CU(cuMemFree_v2)(words));
}

int main(int argc, char** argv) { return run(argc, argv); }
