// SPDX-License-Identifier: Apache-2.0
// Copies of graphs with ends other than device memory: arrays, and memory of the program at both ends.
#include <cstring>
#include <numeric>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

constexpr size_t kWidth = 16, kHeight = 4;
constexpr size_t kRowBytes = kWidth * sizeof(int);
constexpr size_t kCount = kWidth * kHeight;
constexpr size_t kBytes = kCount * sizeof(int);

struct End {
  CUmemorytype type;
  const void* host = nullptr;
  CUdeviceptr device = 0;
  CUarray array = nullptr;
};
End at(const std::vector<int>& memory) { return {.type = CU_MEMORYTYPE_HOST, .host = memory.data()}; }
End at(CUdeviceptr memory) { return {.type = CU_MEMORYTYPE_DEVICE, .device = memory}; }
End at(CUarray array) { return {.type = CU_MEMORYTYPE_ARRAY, .array = array}; }

CUDA_MEMCPY3D copy(const End& from, const End& to) {
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = from.type;
  c.srcHost = from.host;
  c.srcDevice = from.device;
  c.srcArray = from.array;
  c.dstMemoryType = to.type;
  c.dstHost = const_cast<void*>(to.host);
  c.dstDevice = to.device;
  c.dstArray = to.array;
  c.srcPitch = c.dstPitch = c.WidthInBytes = kRowBytes;
  c.srcHeight = c.dstHeight = c.Height = kHeight;
  c.Depth = 1;
  return c;
}

CUgraphNode add(CUgraph graph, const CUDA_MEMCPY3D& params, CUgraphNode after) {
  CUgraphNode node = nullptr;
  OK(CU(cuGraphAddMemcpyNode)(&node, graph, &after, after ? 1 : 0, &params, context()));
  return node;
}

CUarray array() {
  const CUDA_ARRAY_DESCRIPTOR shape{
      .Width = kWidth, .Height = kHeight, .Format = CU_AD_FORMAT_SIGNED_INT32, .NumChannels = 1};
  CUarray made = nullptr;
  OK(CU(cuArrayCreate_v2)(&made, &shape));
  return made;
}

/// Its location stays fixed, because graphs store its address.
void set(std::vector<int>& values, int first) { std::iota(values.begin(), values.end(), first); }

std::vector<int> numbers(int first) {
  std::vector<int> values(kCount);
  std::iota(values.begin(), values.end(), first);
  return values;
}

struct Graph {
  CUgraph handle = nullptr;
  CUgraphExec exec = nullptr;
  Graph() { OK(CU(cuGraphCreate)(&handle, 0)); }
  ~Graph() {
    if (exec) OK(CU(cuGraphExecDestroy)(exec));
    OK(CU(cuGraphDestroy)(handle));
  }
  void launch() {
    static CUstream s = stream();
    if (!exec) OK(CU(cuGraphInstantiateWithFlags)(&exec, handle, 0));
    OK(CU(cuGraphLaunch)(exec, s));
    OK(CU(cuStreamSynchronize)(s));
  }
};

}  // namespace

TEST("copies of a graph go into arrays, between them, and out of them") {
  context();
  CUarray one = array(), two = array();
  CUdeviceptr memory = allocate(kBytes);
  std::vector<int> in = numbers(5), out(kCount);
  Graph graph;
  const CUDA_MEMCPY3D inside = copy(at(one), at(two));
  CUgraphNode node = add(graph.handle, copy(at(in), at(one)), nullptr);
  const CUgraphNode between = node = add(graph.handle, inside, node);
  node = add(graph.handle, copy(at(two), at(memory)), node);
  node = add(graph.handle, copy(at(memory), at(one)), node);
  add(graph.handle, copy(at(one), at(out)), node);
  graph.launch();
  CHECK(out == numbers(5));
  set(in, 100);
  graph.launch();
  CHECK(out == numbers(100));
  CUDA_MEMCPY3D got{};
  OK(CU(cuGraphMemcpyNodeGetParams)(between, &got));
  CHECK(got.srcArray == one && got.dstArray == two);
  CHECK_EQ(got.WidthInBytes, kRowBytes);

  // Beyond the array's end.
  CUDA_MEMCPY3D beyond = inside;
  beyond.dstY = 1;
  CUgraphNode none = nullptr;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddMemcpyNode)(&none, graph.handle, nullptr, 0, &beyond, context()));
  OK(CU(cuMemFree_v2)(memory));
  OK(CU(cuArrayDestroy)(one));
  OK(CU(cuArrayDestroy)(two));
}

TEST("a copy between memory of the program happens where its edges put it") {
  context();
  CUdeviceptr memory = allocate(2 * kBytes);
  CUdeviceptr behind = memory + kBytes;
  std::vector<int> in = numbers(1), middle(kCount), moved(kCount), out(kCount);
  Graph graph;
  const CUDA_MEMCPY3D inside = copy(at(middle), at(moved));
  CUgraphNode node = add(graph.handle, copy(at(in), at(memory)), nullptr);
  node = add(graph.handle, copy(at(memory), at(middle)), node);
  const CUgraphNode own = node = add(graph.handle, inside, node);
  node = add(graph.handle, copy(at(moved), at(behind)), node);
  add(graph.handle, copy(at(behind), at(out)), node);
  for (int round = 0; round < 4; ++round) {
    set(in, round * 1000);
    graph.launch();
    CHECK(moved == numbers(round * 1000));
    CHECK(out == numbers(round * 1000));
  }
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  OK(CU(cuGraphNodeGetType)(own, &type));
  CHECK_EQ(static_cast<int>(type), static_cast<int>(CU_GRAPH_NODE_TYPE_MEMCPY));
  CUDA_MEMCPY3D got{};
  OK(CU(cuGraphMemcpyNodeGetParams)(own, &got));
  CHECK(got.srcHost == middle.data() && got.dstHost == moved.data());
  CUDA_HOST_NODE_PARAMS function{};
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphHostNodeGetParams)(own, &function));

  std::vector<int> elsewhere(kCount);
  const CUDA_MEMCPY3D other = copy(at(middle), at(elsewhere));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecMemcpyNodeSetParams)(graph.exec, own, &other, context()));
  OK(CU(cuGraphMemcpyNodeSetParams)(own, &other));
  OK(CU(cuGraphMemcpyNodeGetParams)(own, &got));
  CHECK(got.dstHost == elsewhere.data());
  CUDA_MEMCPY3D nowhere = inside;
  nowhere.dstHost = nullptr;
  CUgraphNode none = nullptr;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddMemcpyNode)(&none, graph.handle, nullptr, 0, &nowhere, context()));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("device memory that a copy calls the program's own is device memory") {
  context();
  CUdeviceptr memory = allocate(2 * kBytes);
  const auto behind = reinterpret_cast<int*>(memory + kBytes);
  std::vector<int> in = numbers(9);
  OK(CU(cuMemcpyHtoD_v2)(memory, in.data(), kBytes));
  OK(CU(cuMemcpyDtoH_v2)(behind, memory, kBytes));
  CHECK(read(memory + kBytes, kCount) == numbers(9));
  set(in, 30);
  OK(CU(cuMemcpyHtoD_v2)(memory + kBytes, in.data(), kBytes));
  OK(CU(cuMemcpyHtoD_v2)(memory, behind, kBytes));
  CHECK(read(memory, kCount) == numbers(30));
  Graph graph;
  add(graph.handle, copy(at(memory), {.type = CU_MEMORYTYPE_HOST, .host = behind}), nullptr);
  set(in, 60);
  OK(CU(cuMemcpyHtoD_v2)(memory, in.data(), kBytes));
  graph.launch();
  CHECK(read(memory + kBytes, kCount) == numbers(60));
  OK(CU(cuMemFree_v2)(memory));
}

TEST("a fill or a copy of memory that is not the GPU's is refused by its own call") {
  context();
  std::vector<int> own(kCount);
  const auto place = reinterpret_cast<CUdeviceptr>(own.data());
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD32_v2)(place, 1, kCount));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD2D8_v2)(place, kRowBytes, 1, kWidth, kHeight));
  CHECK(own == std::vector<int>(kCount));
}

TEST("copies of every shape and kind of memory can be captured") {
  context();
  CUstream s = stream();
  CUarray one = array();
  CUdeviceptr memory = allocate(kBytes);
  std::vector<int> in = numbers(5), middle(kCount), moved(kCount), out(kCount);
  const auto copyNow = [&](const End& from, const End& to) {
    const CUDA_MEMCPY3D params = copy(from, to);
    OK(CU(cuMemcpy3DAsync_v2)(&params, s));
  };
  Graph graph;
  OK(CU(cuGraphDestroy)(graph.handle));
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  copyNow(at(in), at(one));
  copyNow(at(one), at(memory));
  copyNow(at(memory), at(middle));
  copyNow(at(middle), at(moved));
  copyNow(at(moved), at(one));
  copyNow(at(one), at(out));
  OK(CU(cuStreamEndCapture)(s, &graph.handle));
  graph.launch();
  CHECK(out == numbers(5));
  set(in, 50);
  graph.launch();
  CHECK(out == numbers(50));
  CHECK(moved == numbers(50));
  OK(CU(cuMemFree_v2)(memory));
  OK(CU(cuArrayDestroy)(one));
  OK(CU(cuStreamDestroy_v2)(s));
}

TEST("what an executable graph cannot be given is refused by the call that gives it") {
  context();
  CUdeviceptr memory = allocate(kBytes);
  Graph graph;
  CUgraphNode fill = nullptr, empty = nullptr;
  CUDA_MEMSET_NODE_PARAMS params{.dst = memory, .pitch = 0, .value = 3, .elementSize = 4, .width = kCount, .height = 1};
  OK(CU(cuGraphAddMemsetNode)(&fill, graph.handle, nullptr, 0, &params, context()));
  OK(CU(cuGraphAddEmptyNode)(&empty, graph.handle, nullptr, 0));
  graph.launch();
  CHECK(read(memory, kCount) == std::vector<int>(kCount, 3));
  CUDA_MEMSET_NODE_PARAMS wrong = params;
  wrong.elementSize = 3;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecMemsetNodeSetParams)(graph.exec, fill, &wrong, context()));
  wrong = params;
  wrong.dst = 0;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecMemsetNodeSetParams)(graph.exec, fill, &wrong, context()));
  int value = 9, count = static_cast<int>(kCount);
  void* pointers[3] = {&memory, &count, &value};
  CUDA_KERNEL_NODE_PARAMS kernelParams{};
  kernelParams.func = kernel("fill");
  kernelParams.gridDimX = kernelParams.gridDimY = kernelParams.gridDimZ = 1;
  kernelParams.blockDimX = 64;
  kernelParams.blockDimY = kernelParams.blockDimZ = 1;
  kernelParams.kernelParams = pointers;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecKernelNodeSetParams_v2)(graph.exec, empty, &kernelParams));
  Graph other;
  CUgraphNode kernelNode = nullptr;
  OK(CU(cuGraphAddKernelNode_v2)(&kernelNode, other.handle, nullptr, 0, &kernelParams));
  other.launch();
  // Arguments change with each launch; the first change of another kind is checked again.
  for (value = 20; value < 24; ++value) {
    OK(CU(cuGraphExecKernelNodeSetParams_v2)(other.exec, kernelNode, &kernelParams));
    other.launch();
    CHECK(read(memory, kCount) == std::vector<int>(kCount, value));
  }
  kernelParams.blockDimX = 1u << 20;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecKernelNodeSetParams_v2)(other.exec, kernelNode, &kernelParams));
  CUgraphExec refused = nullptr;
  FAILS(CUDA_ERROR_INVALID_VALUE,
        CU(cuGraphInstantiateWithFlags)(&refused, graph.handle, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
  OK(CU(cuMemFree_v2)(memory));
}

int main(int argc, char** argv) { return run(argc, argv); }
