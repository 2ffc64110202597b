// SPDX-License-Identifier: Apache-2.0
// Stream capture, and launches of captured graphs.
#include <functional>
#include <thread>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr size_t kCount = 1024;
constexpr size_t kBytes = kCount * sizeof(int);

void fill(CUstream s, CUdeviceptr to, int value) {
  int n = static_cast<int>(kCount);
  void* params[] = {&to, &n, &value};
  OK(CU(cuLaunchKernel)(kernel("fill"), 4, 1, 1, 256, 1, 1, 0, s, params, nullptr));
}

void scale(CUstream s, CUdeviceptr values, int n) {
  void* params[] = {&values, &n};
  OK(CU(cuLaunchKernel)(kernel("scale"), 4, 1, 1, 256, 1, 1, 0, s, params, nullptr));
}

CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec = nullptr;
  OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  return exec;
}

size_t nodesOf(CUgraph graph) {
  size_t count = 0;
  OK(CU(cuGraphGetNodes)(graph, nullptr, &count));
  return count;
}

CUstreamCaptureStatus statusOf(CUstream s) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  OK(CU(cuStreamIsCapturing)(s, &status));
  return status;
}

}  // namespace

TEST("what is captured runs at each launch, not before") {
  context();
  CUstream s = stream();
  const CUdeviceptr memory = allocate(kBytes);
  OK(CU(cuMemsetD32_v2)(memory, 0, kCount));
  kernel("fill");
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CHECK_EQ(statusOf(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  fill(s, memory, 41);
  CUgraph graph = nullptr;
  OK(CU(cuStreamEndCapture)(s, &graph));
  CHECK_EQ(statusOf(s), CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK_EQ(read(memory, 1)[0], 0);
  CHECK_EQ(nodesOf(graph), size_t{1});
  CUgraphExec exec = instantiate(graph);
  OK(CU(cuGraphDestroy)(graph));
  for (int round = 0; round < 3; ++round) {
    OK(CU(cuMemsetD32Async)(memory, 0, kCount, s));
    OK(CU(cuGraphLaunch)(exec, s));
    OK(CU(cuStreamSynchronize)(s));
    const auto values = read(memory, kCount);
    CHECK_EQ(values.front(), 41);
    CHECK_EQ(values.back(), 41);
  }
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("other streams join by events, and must be joined back") {
  context();
  CUstream a = stream(), b = stream();
  CUevent fork = event(), join = event();
  const CUdeviceptr x = allocate(kBytes), y = allocate(kBytes);
  OK(CU(cuStreamBeginCapture_v2)(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  fill(a, x, 5);
  OK(CU(cuEventRecord)(fork, a));
  OK(CU(cuStreamWaitEvent)(b, fork, 0));
  CHECK_EQ(statusOf(b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(CU(cuMemcpyDtoDAsync_v2)(y, x, kBytes, b));
  fill(a, x, 6);
  OK(CU(cuEventRecord)(join, b));
  OK(CU(cuStreamWaitEvent)(a, join, 0));
  OK(CU(cuMemsetD32Async)(x, 9, 1, a));
  CUgraph graph = nullptr;
  OK(CU(cuStreamEndCapture)(a, &graph));
  CHECK_EQ(nodesOf(graph), size_t{4});
  size_t edges = 0;
  OK(CU(cuGraphGetEdges)(graph, nullptr, nullptr, &edges));
  CHECK_EQ(edges, size_t{4});
  CUgraphExec exec = instantiate(graph);
  OK(CU(cuGraphLaunch)(exec, b));
  OK(CU(cuStreamSynchronize)(b));
  CHECK_EQ(read(x, 1)[0], 9);

  OK(CU(cuStreamBeginCapture_v2)(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(CU(cuEventRecord)(fork, a));
  OK(CU(cuStreamWaitEvent)(b, fork, 0));
  fill(b, y, 1);
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CU(cuStreamEndCapture)(a, &graph));
  CHECK(graph == nullptr);
  CHECK_EQ(statusOf(b), CU_STREAM_CAPTURE_STATUS_NONE);
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuMemFree_v2)(x));
  OK(CU(cuMemFree_v2)(y));
}

TEST("copies from this process read it anew at each launch, copies to it land before the wait returns") {
  context();
  CUstream s = stream();
  const CUdeviceptr memory = allocate(kBytes);
  std::vector<int> from(kCount, 1), to(kCount, 0);
  void* pinnedFrom = nullptr;
  void* pinnedTo = nullptr;
  OK(CU(cuMemHostAlloc)(&pinnedFrom, kBytes, 0));
  OK(CU(cuMemHostAlloc)(&pinnedTo, kBytes, 0));
  for (const bool pinned : {false, true}) {
    int* source = pinned ? static_cast<int*>(pinnedFrom) : from.data();
    int* target = pinned ? static_cast<int*>(pinnedTo) : to.data();
    OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(CU(cuMemcpyHtoDAsync_v2)(memory, source, kBytes, s));
    OK(CU(cuMemsetD32Async)(memory, 77, 1, s));
    OK(CU(cuMemcpyDtoHAsync_v2)(target, memory, kBytes, s));
    CUgraph graph = nullptr;
    OK(CU(cuStreamEndCapture)(s, &graph));
    CHECK_EQ(nodesOf(graph), size_t{3});
    CUgraphExec exec = instantiate(graph);
    OK(CU(cuGraphDestroy)(graph));
    for (int round = 1; round <= 5; ++round) {
      for (size_t i = 0; i < kCount; ++i) source[i] = round * 1000 + static_cast<int>(i);
      OK(CU(cuGraphLaunch)(exec, s));
      OK(CU(cuStreamSynchronize)(s));
      CHECK_EQ(target[0], 77);
      for (size_t i = 1; i < kCount; ++i) CHECK_EQ(target[i], round * 1000 + static_cast<int>(i));
    }
    CUevent done = event();
    for (size_t i = 0; i < kCount; ++i) source[i] = -1;
    OK(CU(cuGraphLaunch)(exec, s));
    OK(CU(cuEventRecord)(done, s));
    OK(CU(cuEventSynchronize)(done));
    CHECK_EQ(target[kCount - 1], -1);
    OK(CU(cuGraphExecDestroy)(exec));
  }
  OK(CU(cuMemFreeHost)(pinnedFrom));
  OK(CU(cuMemFreeHost)(pinnedTo));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("a captured host function runs at each launch and sees what was copied before it") {
  context();
  CUstream s = stream();
  const CUdeviceptr memory = allocate(kBytes);
  struct Seen {
    std::vector<int> values = std::vector<int>(kCount);
    int calls = 0, first = 0;
  } seen;
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(CU(cuMemcpyDtoHAsync_v2)(seen.values.data(), memory, kBytes, s));
  OK(CU(cuLaunchHostFunc)(
      s,
      [](void* data) {
        auto* at = static_cast<Seen*>(data);
        ++at->calls;
        at->first = at->values[0];
      },
      &seen));
  CUgraph graph = nullptr;
  OK(CU(cuStreamEndCapture)(s, &graph));
  CUgraphExec exec = instantiate(graph);
  for (int round = 1; round <= 3; ++round) {
    OK(CU(cuMemsetD32Async)(memory, static_cast<unsigned>(round), kCount, s));
    OK(CU(cuGraphLaunch)(exec, s));
    OK(CU(cuStreamSynchronize)(s));
    CHECK_EQ(seen.calls, round);
    CHECK_EQ(seen.first, round);
  }
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(graph));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("calls that could disturb a capture fail and end it; a relaxed thread may make them") {
  context();
  CUstream s = stream(), other = stream();
  CUgraph graph = nullptr;
  CUdeviceptr memory = 0;
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuMemAlloc_v2)(&memory, 64));
  CHECK_EQ(statusOf(s), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuStreamEndCapture)(s, &graph));

  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuStreamSynchronize)(s));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuStreamEndCapture)(s, &graph));

  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(CU(cuThreadExchangeStreamCaptureMode)(&mode));
  CHECK_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(CU(cuMemAlloc_v2)(&memory, kBytes));
  OK(CU(cuStreamSynchronize)(other));
  OK(CU(cuMemFree_v2)(memory));
  OK(CU(cuThreadExchangeStreamCaptureMode)(&mode));
  CHECK_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(CU(cuStreamEndCapture)(s, &graph));
  OK(CU(cuGraphDestroy)(graph));

  // Another thread, which only a capture in global mode prevents from such calls.
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::thread([] {
    OK(CU(cuCtxSetCurrent)(context()));
    const CUdeviceptr own = allocate(64);
    OK(CU(cuMemFree_v2)(own));
  }).join();
  std::thread([s] {
    OK(CU(cuCtxSetCurrent)(context()));
    CUgraph none = nullptr;
    FAILS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, CU(cuStreamEndCapture)(s, &none));
    CHECK_EQ(none, nullptr);
  }).join();
  // That has ended it nevertheless.
  CHECK_EQ(statusOf(s), CU_STREAM_CAPTURE_STATUS_NONE);
  FAILS(CUDA_ERROR_ILLEGAL_STATE, CU(cuStreamEndCapture)(s, &graph));
}

TEST("what a capture forbids, call by call, as on a card") {
  context();
  CUstream other = stream();
  const CUdeviceptr memory = allocate(4096);
  CUmodule module = nullptr;
  const char* image = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry e(){ ret; }\n";
  CUgraph empty = nullptr;
  OK(CU(cuGraphCreate)(&empty, 0));
  char here[64] = {};
  struct Attempt {
    const char* call;
    bool isForbidden;
    std::function<CUresult()> make;
  };
  const Attempt attempts[] = {
      {"cuMemcpyHtoD", false, [&] { return CU(cuMemcpyHtoD_v2)(memory, here, sizeof here); }},
      {"cuMemcpyDtoH", false, [&] { return CU(cuMemcpyDtoH_v2)(here, memory, sizeof here); }},
      {"cuMemcpyDtoD", false, [&] { return CU(cuMemcpyDtoD_v2)(memory, memory + 1024, 64); }},
      {"cuMemsetD8", false, [&] { return CU(cuMemsetD8_v2)(memory, 0, 64); }},
      {"cuMemcpyHtoDAsync", false, [&] { return CU(cuMemcpyHtoDAsync_v2)(memory, here, sizeof here, other); }},
      {"cuModuleLoadData", false, [&] { return CU(cuModuleLoadData)(&module, image); }},
      {"cuModuleUnload", true, [&] { return CU(cuModuleUnload)(module); }},
      {"cuMemFree of nothing", true, [&] { return CU(cuMemFree_v2)(0); }},
      {"cuCtxSetLimit", true, [&] { return CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 2048); }},
      {"cuGraphInstantiate", true,
       [&] {
         CUgraphExec exec = nullptr;
         return CU(cuGraphInstantiateWithFlags)(&exec, empty, 0);
       }},
      {"cuStreamQuery", true, [&] { return CU(cuStreamQuery)(other); }},
      {"cuCtxSynchronize", true, [&] { return CU(cuCtxSynchronize)(); }},
      {"cuLaunchHostFunc", false,
       [&] {
         return CU(cuLaunchHostFunc)(
             other, [](void*) {}, nullptr);
       }},
  };
  for (const Attempt& attempt : attempts) {
    CUstream s = stream();
    CUgraph graph = nullptr;
    OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    const CUresult result = attempt.make();
    const CUresult ended = CU(cuStreamEndCapture)(s, &graph);
    if (result != (attempt.isForbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS) ||
        ended != (attempt.isForbidden ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS))
      ::millpond::testing::fail(
          __FILE__, __LINE__, std::string(attempt.call) + ": " + std::to_string(result) + ", " + std::to_string(ended));
    if (graph) OK(CU(cuGraphDestroy)(graph));
    OK(CU(cuStreamDestroy_v2)(s));
  }
  // Not even a relaxed capture outlives a wait for its whole context.
  CUstream s = stream();
  CUgraph graph = nullptr;
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuCtxSynchronize)());
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuStreamEndCapture)(s, &graph));
  OK(CU(cuModuleUnload)(module));
  OK(CU(cuGraphDestroy)(empty));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("an event of a capture is neither asked about nor waited for, another one only where no capture forbids it") {
  context();
  CUstream s = stream(), other = stream();
  CUevent captured = nullptr, ordinary = nullptr;
  OK(CU(cuEventCreate)(&captured, 0));
  OK(CU(cuEventCreate)(&ordinary, 0));
  OK(CU(cuEventRecord)(ordinary, other));
  const CUdeviceptr memory = allocate(64);
  for (const bool isRelaxed : {false, true}) {
    CUgraph graph = nullptr;
    const auto mode = isRelaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL;
    OK(CU(cuStreamBeginCapture_v2)(s, mode));
    OK(CU(cuMemsetD32Async)(memory, 1, 1, s));
    OK(CU(cuEventRecord)(captured, s));
    FAILS(CUDA_ERROR_CAPTURED_EVENT, CU(cuEventSynchronize)(captured));
    FAILS(CUDA_ERROR_CAPTURED_EVENT, CU(cuEventQuery)(captured));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuStreamEndCapture)(s, &graph));
    OK(CU(cuStreamBeginCapture_v2)(s, mode));
    FAILS(isRelaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuEventSynchronize)(ordinary));
    CHECK_EQ(statusOf(s), isRelaxed ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    if (isRelaxed) {
      OK(CU(cuStreamEndCapture)(s, &graph));
      OK(CU(cuGraphDestroy)(graph));
    } else {
      FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuStreamEndCapture)(s, &graph));
    }
  }
  OK(CU(cuEventDestroy_v2)(captured));
  OK(CU(cuEventDestroy_v2)(ordinary));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("the legacy stream cannot be captured, nor used beside a blocking stream that is") {
  context();
  CUgraph graph = nullptr;
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuStreamBeginCapture_v2)(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstream blocking = stream(0);
  const CUdeviceptr memory = allocate(64);
  OK(CU(cuStreamBeginCapture_v2)(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CU(cuMemsetD32Async)(memory, 1, 1, nullptr));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CU(cuStreamEndCapture)(blocking, &graph));
  FAILS(CUDA_ERROR_ILLEGAL_STATE, CU(cuStreamEndCapture)(blocking, &graph));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("what a capture is like can be asked, and what its next node waits for can be changed") {
  context();
  CUstream s = stream();
  const CUdeviceptr memory = allocate(kBytes);
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  fill(s, memory, 1);
  fill(s, memory, 2);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  OK(CU(cuStreamGetCaptureInfo_v2)(s, &status, &id, &graph, &nodes, &count));
  CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(id != 0 && graph != nullptr);
  CHECK_EQ(count, size_t{1});
  const CUgraphEdgeData* edges = nullptr;
  OK(CU(cuStreamGetCaptureInfo_v3)(s, &status, &id, &graph, &nodes, &edges, &count));
  // No edge has data, so nothing is lost without it.
  OK(CU(cuStreamGetCaptureInfo_v3)(s, &status, &id, &graph, &nodes, nullptr, &count));
  CHECK_EQ(count, size_t{1});
  CHECK_EQ(nodesOf(graph), size_t{2});
  CUgraphNode first = nullptr;
  size_t one = 1;
  OK(CU(cuGraphGetRootNodes)(graph, &first, &one));
  CHECK(first != nodes[0]);
  OK(CU(cuStreamUpdateCaptureDependencies)(s, &first, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  OK(CU(cuStreamGetCaptureInfo_v2)(s, &status, &id, nullptr, &nodes, &count));
  CHECK_EQ(count, size_t{1});
  CHECK(nodes[0] == first);
  CUgraph ended = nullptr;
  OK(CU(cuStreamEndCapture)(s, &ended));
  CHECK(ended == graph);
  OK(CU(cuGraphDestroy)(graph));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("a stream that has joined a capture may be destroyed in it, and what it came to is waited for, or missed") {
  context();
  CUstream a = stream();
  CUevent fork = event(), join = event();
  const CUdeviceptr x = allocate(kBytes);
  for (const bool isJoined : {true, false}) {
    CUstream b = stream();
    OK(CU(cuStreamBeginCapture_v2)(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(CU(cuEventRecord)(fork, a));
    OK(CU(cuStreamWaitEvent)(b, fork, 0));
    fill(b, x, 5);
    OK(CU(cuEventRecord)(join, b));
    OK(CU(cuStreamDestroy_v2)(b));
    if (isJoined) OK(CU(cuStreamWaitEvent)(a, join, 0));
    CUgraph graph = nullptr;
    const CUresult ended = CU(cuStreamEndCapture)(a, &graph);
    CHECK_EQ(int{ended}, int{isJoined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED});
    if (!isJoined) continue;
    CUgraphExec exec = instantiate(graph);
    OK(CU(cuGraphLaunch)(exec, a));
    OK(CU(cuStreamSynchronize)(a));
    CHECK_EQ(read(x, 1)[0], 5);
    OK(CU(cuGraphExecDestroy)(exec));
    OK(CU(cuGraphDestroy)(graph));
  }
  OK(CU(cuMemFree_v2)(x));
}

TEST("memory that a captured stream allocates and frees becomes the graph's") {
  context();
  if (!::dlsym(driverLibrary(), "cuMemAllocAsync")) return;  // the software GPU's own driver leaves pools to the worker
  CUstream s = stream();
  const CUdeviceptr out = allocate(kBytes);
  kernel("fill");
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr memory = 0;
  OK(CU(cuMemAllocAsync)(&memory, kBytes, s));
  fill(s, memory, 17);
  OK(CU(cuMemcpyDtoDAsync_v2)(out, memory, kBytes, s));
  OK(CU(cuMemFreeAsync)(memory, s));
  CUgraph graph = nullptr;
  OK(CU(cuStreamEndCapture)(s, &graph));
  CHECK_EQ(nodesOf(graph), size_t{4});
  CUgraphExec exec = instantiate(graph);
  OK(CU(cuGraphDestroy)(graph));
  for (int round = 0; round < 3; ++round) {
    OK(CU(cuMemsetD32Async)(out, 0, kCount, s));
    OK(CU(cuGraphLaunch)(exec, s));
    OK(CU(cuStreamSynchronize)(s));
    CHECK_EQ(read(out, kCount)[kCount - 1], 17);
  }
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuMemFree_v2)(out));
}

TEST("memory that a captured stream allocates and does not free is freed by hand after each launch") {
  context();
  if (!::dlsym(driverLibrary(), "cuMemAllocAsync")) return;  // the software GPU's own driver leaves pools to the worker
  CUstream s = stream();
  kernel("fill");
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr memory = 0;
  OK(CU(cuMemAllocAsync)(&memory, kBytes, s));
  fill(s, memory, 23);
  CUgraph graph = nullptr;
  OK(CU(cuStreamEndCapture)(s, &graph));
  CUgraphExec exec = instantiate(graph);
  OK(CU(cuGraphDestroy)(graph));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFreeAsync)(memory, s));
  for (int round = 0; round < 3; ++round) {
    OK(CU(cuGraphLaunch)(exec, s));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphLaunch)(exec, s));
    OK(CU(cuStreamSynchronize)(s));
    CHECK_EQ(read(memory, kCount)[kCount - 1], 23);
    if (round == 2)
      OK(CU(cuMemFree_v2)(memory));
    else
      OK(CU(cuMemFreeAsync)(memory, s));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFreeAsync)(memory, s));
  }
  OK(CU(cuGraphExecDestroy)(exec));
}

TEST("many launches in a row, of many nodes each") {
  context();
  CUstream s = stream();
  const CUdeviceptr memory = allocate(kBytes);
  OK(CU(cuMemsetD32_v2)(memory, 0, kCount));
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < 50; ++i) scale(s, memory, static_cast<int>(kCount));
  fill(s, memory, 3);
  CUgraph graph = nullptr;
  OK(CU(cuStreamEndCapture)(s, &graph));
  CHECK_EQ(nodesOf(graph), size_t{51});
  CUgraphExec exec = instantiate(graph);
  for (int round = 0; round < 10; ++round) OK(CU(cuGraphLaunch)(exec, s));
  OK(CU(cuStreamSynchronize)(s));
  CHECK_EQ(read(memory, 1)[0], 3);
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(graph));
  OK(CU(cuMemFree_v2)(memory));
}

int main(int argc, char** argv) { return run(argc, argv); }
