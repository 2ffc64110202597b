// SPDX-License-Identifier: Apache-2.0
// Graphs made node by node.
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr size_t kCount = 1024;
constexpr size_t kBytes = kCount * sizeof(int);

CUgraph graph() {
  CUgraph made = nullptr;
  OK(CU(cuGraphCreate)(&made, 0));
  return made;
}

CUgraphExec instantiate(CUgraph of) {
  CUgraphExec exec = nullptr;
  OK(CU(cuGraphInstantiateWithFlags)(&exec, of, 0));
  return exec;
}

/// The description of a graph that the driver writes.
std::string picture(CUgraph of, unsigned flags) {
  char path[] = "/tmp/graph-XXXXXX";
  const int file = ::mkstemp(path);
  CHECK(file >= 0);
  ::close(file);
  OK(CU(cuGraphDebugDotPrint)(of, path, flags));
  std::ifstream written(path);
  std::string text(std::istreambuf_iterator<char>(written), {});
  ::unlink(path);
  return text;
}

/// A node that fills memory with a kernel.
struct FillNode {
  CUdeviceptr to;
  int count = static_cast<int>(kCount);
  int value;
  void* pointers[3] = {&to, &count, &value};
  CUDA_KERNEL_NODE_PARAMS params{};

  FillNode(CUdeviceptr memory, int with) : to(memory), value(with) {
    params.func = kernel("fill");
    params.gridDimX = 4;
    params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = 256;
    params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = pointers;
  }
  CUgraphNode add(CUgraph in, const CUgraphNode* after = nullptr, size_t n = 0) {
    CUgraphNode node = nullptr;
    OK(CU(cuGraphAddKernelNode_v2)(&node, in, after, n, &params));
    return node;
  }
};

CUDA_MEMSET_NODE_PARAMS memset32(CUdeviceptr to, unsigned value) { return {to, 0, value, 4, kCount, 1}; }

CUDA_MEMCPY3D copy(CUmemorytype fromType, uint64_t from, CUmemorytype toType, uint64_t to, size_t bytes) {
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = fromType;
  c.srcHost = fromType == CU_MEMORYTYPE_HOST ? reinterpret_cast<const void*>(from) : nullptr;
  c.srcDevice = fromType == CU_MEMORYTYPE_HOST ? 0 : from;
  c.srcPitch = c.dstPitch = c.WidthInBytes = bytes;
  c.dstMemoryType = toType;
  c.dstHost = toType == CU_MEMORYTYPE_HOST ? reinterpret_cast<void*>(to) : nullptr;
  c.dstDevice = toType == CU_MEMORYTYPE_HOST ? 0 : to;
  c.srcHeight = c.dstHeight = c.Height = c.Depth = 1;
  return c;
}

void launch(CUgraphExec exec) {
  static CUstream s = stream();
  OK(CU(cuGraphLaunch)(exec, s));
  OK(CU(cuStreamSynchronize)(s));
}

uint64_t address(const void* p) { return reinterpret_cast<uint64_t>(p); }

}  // namespace

TEST("kernels, fills, copies and functions in the order of their edges") {
  context();
  const CUdeviceptr a = allocate(kBytes), b = allocate(kBytes);
  std::vector<int> to(kCount);
  struct Seen {
    int* at;
    int value = 0;
  } seen{to.data()};
  CUgraph g = graph();
  FillNode fill(a, 5);
  CUgraphNode first = fill.add(g), second = nullptr, third = nullptr, last = nullptr, empty = nullptr;
  const auto inside = copy(CU_MEMORYTYPE_DEVICE, a, CU_MEMORYTYPE_DEVICE, b, kBytes);
  OK(CU(cuGraphAddMemcpyNode)(&second, g, &first, 1, &inside, context()));
  const auto out = copy(CU_MEMORYTYPE_DEVICE, b, CU_MEMORYTYPE_HOST, address(to.data()), kBytes);
  OK(CU(cuGraphAddMemcpyNode)(&third, g, &second, 1, &out, context()));
  const CUDA_HOST_NODE_PARAMS host{[](void* data) {
                                     auto* s = static_cast<Seen*>(data);
                                     s->value = s->at[7];
                                   },
                                   &seen};
  OK(CU(cuGraphAddHostNode)(&last, g, &third, 1, &host));
  OK(CU(cuGraphAddEmptyNode)(&empty, g, nullptr, 0));
  OK(CU(cuGraphAddDependencies)(g, &last, &empty, 1));

  size_t count = 0;
  OK(CU(cuGraphGetNodes)(g, nullptr, &count));
  CHECK_EQ(count, size_t{5});
  OK(CU(cuGraphGetRootNodes)(g, nullptr, &count));
  CHECK_EQ(count, size_t{1});
  CUgraphNode from[8], upTo[8];
  count = 8;
  OK(CU(cuGraphGetEdges)(g, from, upTo, &count));
  CHECK_EQ(count, size_t{4});
  CHECK(from[4] == nullptr);
  CUgraphNode before = nullptr;
  count = 1;
  OK(CU(cuGraphNodeGetDependencies)(third, &before, &count));
  CHECK(before == second);
  CUgraphNode behind = nullptr;
  count = 1;
  OK(CU(cuGraphNodeGetDependentNodes)(third, &behind, &count));
  CHECK(behind == last);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  OK(CU(cuGraphNodeGetType)(second, &type));
  CHECK_EQ(type, CU_GRAPH_NODE_TYPE_MEMCPY);
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddDependencies)(g, &last, &first, 1));

  CUgraphExec exec = instantiate(g);
  launch(exec);
  CHECK_EQ(to[0], 5);
  CHECK_EQ(seen.value, 5);
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroyNode)(empty));
  OK(CU(cuGraphGetNodes)(g, nullptr, &count));
  CHECK_EQ(count, size_t{4});
  OK(CU(cuGraphDestroy)(g));
  OK(CU(cuMemFree_v2)(a));
  OK(CU(cuMemFree_v2)(b));
}

TEST("parameters are given back as they were given, and changed in graphs and in executable ones") {
  context();
  const CUdeviceptr a = allocate(kBytes), b = allocate(kBytes);
  CUgraph g = graph();
  FillNode fill(a, 5);
  CUgraphNode node = fill.add(g), set = nullptr;
  const auto zeros = memset32(b, 3);
  OK(CU(cuGraphAddMemsetNode)(&set, g, &node, 1, &zeros, context()));
  CUDA_KERNEL_NODE_PARAMS got{};
  OK(CU(cuGraphKernelNodeGetParams_v2)(node, &got));
  CHECK_EQ(got.gridDimX, 4u);
  CHECK_EQ(got.blockDimX, 256u);
  CHECK_EQ(*static_cast<CUdeviceptr*>(got.kernelParams[0]), a);
  CHECK_EQ(*static_cast<int*>(got.kernelParams[2]), 5);
  CUDA_MEMSET_NODE_PARAMS gotSet{};
  OK(CU(cuGraphMemsetNodeGetParams)(set, &gotSet));
  CHECK_EQ(gotSet.dst, b);
  CHECK_EQ(gotSet.value, 3u);
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphMemsetNodeGetParams)(node, &gotSet));

  CUgraphExec exec = instantiate(g);
  fill.value = 6;
  OK(CU(cuGraphExecKernelNodeSetParams_v2)(exec, node, &fill.params));
  const auto fours = memset32(b, 4);
  OK(CU(cuGraphExecMemsetNodeSetParams)(exec, set, &fours, context()));
  launch(exec);
  CHECK_EQ(read(a, 1)[0], 6);
  CHECK_EQ(read(b, 1)[0], 4);
  // The graph itself has not changed; when it does, an update adopts the change.
  OK(CU(cuGraphKernelNodeGetParams_v2)(node, &got));
  CHECK_EQ(*static_cast<int*>(got.kernelParams[2]), 5);
  fill.value = 8;
  OK(CU(cuGraphKernelNodeSetParams_v2)(node, &fill.params));
  CUgraphExecUpdateResultInfo info{};
  OK(CU(cuGraphExecUpdate_v2)(exec, g, &info));
  CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  launch(exec);
  CHECK_EQ(read(a, 1)[0], 8);
  CHECK_EQ(read(b, 1)[0], 3);
  FillNode more(b, 1);
  more.add(g);
  FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CU(cuGraphExecUpdate_v2)(exec, g, &info));
  CHECK(info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS);

  unsigned enabled = 0;
  OK(CU(cuGraphNodeSetEnabled)(exec, set, 0));
  OK(CU(cuGraphNodeGetEnabled)(exec, set, &enabled));
  CHECK_EQ(enabled, 0u);
  OK(CU(cuMemsetD32_v2)(b, 77, 1));
  launch(exec);
  CHECK_EQ(read(b, 1)[0], 77);
  OK(CU(cuGraphExecDestroy)(exec));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(g));
  OK(CU(cuMemFree_v2)(a));
  OK(CU(cuMemFree_v2)(b));
}

TEST("copies from rows of this process's memory to rows of it leave what lies between alone") {
  context();
  const CUdeviceptr memory = allocate(kBytes);
  std::vector<int> from(64, 1), to(64, -1);
  CUgraph g = graph();
  auto in = copy(CU_MEMORYTYPE_HOST, address(from.data()), CU_MEMORYTYPE_DEVICE, memory, 4 * sizeof(int));
  in.Height = in.srcHeight = in.dstHeight = 8;
  in.srcPitch = 8 * sizeof(int);
  auto out = copy(CU_MEMORYTYPE_DEVICE, memory, CU_MEMORYTYPE_HOST, address(to.data()), 4 * sizeof(int));
  out.Height = out.srcHeight = out.dstHeight = 8;
  out.dstPitch = 8 * sizeof(int);
  CUgraphNode first = nullptr, second = nullptr;
  OK(CU(cuGraphAddMemcpyNode)(&first, g, nullptr, 0, &in, context()));
  OK(CU(cuGraphAddMemcpyNode)(&second, g, &first, 1, &out, context()));
  CUDA_MEMCPY3D got{};
  OK(CU(cuGraphMemcpyNodeGetParams)(first, &got));
  CHECK(got.srcHost == from.data());
  CUgraphExec exec = instantiate(g);
  for (int round = 1; round < 4; ++round) {
    for (size_t i = 0; i < from.size(); ++i) from[i] = round * 100 + static_cast<int>(i);
    launch(exec);
    for (size_t i = 0; i < to.size(); ++i) CHECK_EQ(to[i], i % 8 < 4 ? from[i] : -1);
  }
  // Another source only for the executable graph.
  std::vector<int> other(64, 9);
  in.srcHost = other.data();
  OK(CU(cuGraphExecMemcpyNodeSetParams)(exec, first, &in, context()));
  launch(exec);
  CHECK_EQ(to[0], 9);
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(g));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("graphs in graphs, clones, and what they bring along") {
  context();
  const CUdeviceptr memory = allocate(kBytes);
  std::vector<int> to(kCount);
  static std::atomic<int> calls;
  calls = 0;
  CUgraph child = graph();
  FillNode fill(memory, 11);
  CUgraphNode inner = fill.add(child), out = nullptr, host = nullptr;
  const auto back = copy(CU_MEMORYTYPE_DEVICE, memory, CU_MEMORYTYPE_HOST, address(to.data()), kBytes);
  OK(CU(cuGraphAddMemcpyNode)(&out, child, &inner, 1, &back, context()));
  CUgraph g = graph();
  CUgraphNode node = nullptr;
  OK(CU(cuGraphAddChildGraphNode)(&node, g, nullptr, 0, child));
  const CUDA_HOST_NODE_PARAMS function{[](void* at) { calls += *static_cast<int*>(at); }, to.data()};
  OK(CU(cuGraphAddHostNode)(&host, g, &node, 1, &function));
  CUgraph embedded = nullptr;
  OK(CU(cuGraphChildGraphNodeGetGraph)(node, &embedded));
  CHECK(embedded != child);
  size_t count = 0;
  OK(CU(cuGraphGetNodes)(embedded, nullptr, &count));
  CHECK_EQ(count, size_t{2});
  CUgraph clone = nullptr;
  OK(CU(cuGraphClone)(&clone, g));
  CUgraphNode twin = nullptr;
  OK(CU(cuGraphNodeFindInClone)(&twin, host, clone));
  CHECK(twin != host);
  CUDA_HOST_NODE_PARAMS got{};
  OK(CU(cuGraphHostNodeGetParams)(twin, &got));
  CHECK(got.fn == function.fn && got.userData == function.userData);
  OK(CU(cuGraphDestroy)(child));
  OK(CU(cuGraphDestroy)(g));
  CUgraphExec exec = instantiate(clone);
  OK(CU(cuGraphDestroy)(clone));
  launch(exec);
  launch(exec);
  CHECK_EQ(to[kCount - 1], 11);
  CHECK_EQ(calls.load(), 22);
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("a graph that is moved into another one belongs to it") {
  context();
  const CUdeviceptr memory = allocate(kBytes);
  std::vector<int> to(kCount);
  static std::atomic<int> calls;
  calls = 0;
  CUgraph inner = graph();
  FillNode fill(memory, 13);
  CUgraphNode first = fill.add(inner), out = nullptr, host = nullptr;
  const auto back = copy(CU_MEMORYTYPE_DEVICE, memory, CU_MEMORYTYPE_HOST, address(to.data()), kBytes);
  OK(CU(cuGraphAddMemcpyNode)(&out, inner, &first, 1, &back, context()));
  CUgraph middle = graph(), outer = graph();
  CUgraphNodeParams child{};
  child.type = CU_GRAPH_NODE_TYPE_GRAPH;
  child.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  child.graph.graph = inner;
  CUgraphNode node = nullptr, top = nullptr;
  OK(CU(cuGraphAddNode_v2)(&node, middle, nullptr, nullptr, 0, &child));
  // It is moved once, and never into itself.
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddNode_v2)(&top, outer, nullptr, nullptr, 0, &child));
  child.graph.graph = middle;
  OK(CU(cuGraphAddNode_v2)(&top, outer, nullptr, nullptr, 0, &child));
  CUgraph embedded = nullptr;
  OK(CU(cuGraphChildGraphNodeGetGraph)(top, &embedded));
  CHECK(embedded == middle);
  OK(CU(cuGraphChildGraphNodeGetGraph)(node, &embedded));
  CHECK(embedded == inner);
  const CUDA_HOST_NODE_PARAMS function{[](void* at) { calls += *static_cast<int*>(at); }, to.data()};
  OK(CU(cuGraphAddHostNode)(&host, outer, &top, 1, &function));
  CUgraphExec exec = instantiate(outer);
  launch(exec);
  // The parameters of a node in it can be changed as before.
  fill.value = 100;
  OK(CU(cuGraphExecKernelNodeSetParams_v2)(exec, first, &fill.params));
  launch(exec);
  CHECK_EQ(to[kCount - 1], 100);
  CHECK_EQ(calls.load(), 113);
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(outer));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("events are recorded and waited for by graphs") {
  context();
  const CUdeviceptr memory = allocate(kBytes);
  CUevent done = event();
  CUgraph g = graph();
  FillNode fill(memory, 21);
  CUgraphNode first = fill.add(g), record = nullptr;
  OK(CU(cuGraphAddEventRecordNode)(&record, g, &first, 1, done));
  CUevent got = nullptr;
  OK(CU(cuGraphEventRecordNodeGetEvent)(record, &got));
  CHECK(got == done);
  CUgraphExec exec = instantiate(g);
  CUstream s = stream(), other = stream();
  Gate gate;
  gate.close(s);
  OK(CU(cuGraphLaunch)(exec, s));
  FAILS(CUDA_ERROR_NOT_READY, CU(cuEventQuery)(done));
  OK(CU(cuStreamWaitEvent)(other, done, 0));
  OK(CU(cuMemsetD32Async)(memory, 22, 1, other));
  gate.open();
  OK(CU(cuStreamSynchronize)(other));
  CHECK_EQ(read(memory, 2)[0], 22);
  CHECK_EQ(read(memory, 2)[1], 21);
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(g));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("user objects end with the last graph that holds them") {
  context();
  static std::atomic<int> ended;
  ended = 0;
  CUuserObject object = nullptr;
  OK(CU(cuUserObjectCreate)(
      &object, nullptr, [](void*) { ++ended; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CUgraph g = graph();
  OK(CU(cuGraphRetainUserObject)(g, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  FillNode fill(0, 0);
  CUgraphExec exec = instantiate(g);
  CHECK_EQ(ended.load(), 0);
  OK(CU(cuGraphDestroy)(g));
  OK(CU(cuGraphExecDestroy)(exec));
  for (int i = 0; i < 2000 && ended.load() == 0; ++i) ::usleep(1000);
  CHECK_EQ(ended.load(), 1);
}

TEST("allocation nodes give an address that the graph may use") {
  context();
  CUgraph g = graph();
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  params.bytesize = kBytes;
  CUgraphNode allocation = nullptr, release = nullptr, out = nullptr;
  OK(CU(cuGraphAddMemAllocNode)(&allocation, g, nullptr, 0, &params));
  CHECK(params.dptr != 0);
  FillNode fill(params.dptr, 31);
  CUgraphNode use = fill.add(g, &allocation, 1);
  std::vector<int> to(kCount);
  const auto back = copy(CU_MEMORYTYPE_DEVICE, params.dptr, CU_MEMORYTYPE_HOST, address(to.data()), kBytes);
  OK(CU(cuGraphAddMemcpyNode)(&out, g, &use, 1, &back, context()));
  OK(CU(cuGraphAddMemFreeNode)(&release, g, &out, 1, params.dptr));
  CUDA_MEM_ALLOC_NODE_PARAMS got{};
  OK(CU(cuGraphMemAllocNodeGetParams)(allocation, &got));
  CHECK_EQ(got.dptr, params.dptr);
  CHECK_EQ(got.bytesize, kBytes);
  CUgraphExec exec = instantiate(g);
  launch(exec);
  CHECK_EQ(to[0], 31);
  launch(exec);
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(g));
  OK(CU(cuDeviceGraphMemTrim)(0));
}

TEST("memory that a launch leaves is the program's until it is freed, and then the graph's again") {
  context();
  CUgraph g = graph();
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  params.bytesize = kBytes;
  CUgraphNode allocation = nullptr;
  OK(CU(cuGraphAddMemAllocNode)(&allocation, g, nullptr, 0, &params));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(params.dptr));
  CUgraphExec exec = instantiate(g);
  CUstream s = stream();
  for (int round = 0; round < 2; ++round) {
    OK(CU(cuGraphLaunch)(exec, s));
    OK(CU(cuMemsetD32Async)(params.dptr, 40 + static_cast<unsigned>(round), kCount, s));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphLaunch)(exec, s));
    OK(CU(cuStreamSynchronize)(s));
    int last = 0;
    OK(CU(cuMemcpyDtoH_v2)(&last, params.dptr + kBytes - 4, 4));
    CHECK_EQ(last, 40 + round);
    OK(CU(cuMemFree_v2)(params.dptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2)(params.dptr));
  }
  CUgraphExec freeing = nullptr;
  FAILS(CUDA_ERROR_NOT_SUPPORTED,
        CU(cuGraphInstantiateWithFlags)(&freeing, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphInstantiateWithFlags)(&freeing, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  for (int round = 0; round < 3; ++round) OK(CU(cuGraphLaunch)(freeing, s));
  OK(CU(cuStreamSynchronize)(s));
  // It outlives the graph, too.
  OK(CU(cuGraphExecDestroy)(freeing));
  OK(CU(cuGraphDestroy)(g));
  OK(CU(cuMemsetD32_v2)(params.dptr, 50, kCount));
  OK(CU(cuMemFree_v2)(params.dptr));
}

TEST("what is wrong is told, and a description is written where the program is") {
  context();
  CUgraph g = graph();
  CUgraphNode node = nullptr;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphCreate)(nullptr, 0));
  CUgraph none = nullptr;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphCreate)(&none, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddEmptyNode)(nullptr, g, nullptr, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddEmptyNode)(&node, nullptr, nullptr, 0));
  OK(CU(cuGraphAddEmptyNode)(&node, g, nullptr, 0));
  CUgraphNode twice[2] = {node, node};
  CUgraphNode other = nullptr;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddEmptyNode)(&other, g, twice, 2));
  CHECK_EQ(picture(g, 0).substr(0, 7), std::string("digraph"));
  OK(CU(cuGraphDestroy)(g));
}

TEST("a verbose picture tells what the nodes do") {
  CUcontext current = context();
  CUgraph g = graph();
  CUdeviceptr memory = 0;
  OK(CU(cuMemAlloc_v2)(&memory, kBytes));
  CUDA_MEMSET_NODE_PARAMS fill{.dst = memory, .pitch = 0, .value = 9, .elementSize = 4, .width = 77, .height = 1};
  CUgraphNode node = nullptr;
  OK(CU(cuGraphAddMemsetNode)(&node, g, nullptr, 0, &fill, current));
  const std::string plain = picture(g, 0);
  const std::string verbose = picture(g, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);
  CHECK(plain.find("77") == std::string::npos);
  CHECK(verbose.find("77") != std::string::npos);
  OK(CU(cuGraphDestroy)(g));
  OK(CU(cuMemFree_v2)(memory));
}

int main(int argc, char** argv) { return run(argc, argv); }
