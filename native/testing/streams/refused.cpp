// SPDX-License-Identifier: Apache-2.0
// Calls that a driver refuses itself: the call returns the error, and the next one is unharmed.
#include <array>

#include "testing/streams/program.h"

using namespace millpond::streams;

namespace {

CUgraph graph() {
  CUgraph made = nullptr;
  OK(CU(cuGraphCreate)(&made, 0));
  return made;
}

CUgraphNode emptyNode(CUgraph in) {
  CUgraphNode made = nullptr;
  OK(CU(cuGraphAddEmptyNode)(&made, in, nullptr, 0));
  return made;
}

CUgraphNode kernelNode(CUgraph in) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = kernel("nothing");
  params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  CUgraphNode made = nullptr;
  OK(CU(cuGraphAddKernelNode_v2)(&made, in, nullptr, 0, &params));
  return made;
}

CUgraphNode childNode(CUgraph in, CUgraph child) {
  CUgraphNode made = nullptr;
  OK(CU(cuGraphAddChildGraphNode)(&made, in, nullptr, 0, child));
  return made;
}

CUgraph graphOf(CUgraphNode node) {
  CUgraph found = nullptr;
  OK(CU(cuGraphChildGraphNodeGetGraph)(node, &found));
  return found;
}

size_t nodes(CUgraph of) {
  size_t count = 0;
  OK(CU(cuGraphGetNodes)(of, nullptr, &count));
  return count;
}

CUgraphEdgeData edge(unsigned char type, unsigned char fromPort, unsigned char toPort = 0) {
  CUgraphEdgeData data{};
  data.type = type;
  data.from_port = fromPort;
  data.to_port = toPort;
  return data;
}

}  // namespace

TEST("a graph does not become part of itself, at any depth") {
  context();
  CUgraph outer = graph(), middle = graph(), inner = graph();
  emptyNode(inner);
  childNode(middle, inner);
  const CUgraph within = graphOf(childNode(outer, middle));
  std::array<CUgraphNode, 1> found{};
  size_t count = found.size();
  OK(CU(cuGraphGetNodes)(within, found.data(), &count));
  const CUgraph innermost = graphOf(found[0]);
  CUgraphNode node = nullptr;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddChildGraphNode)(&node, outer, nullptr, 0, outer));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddChildGraphNode)(&node, innermost, nullptr, 0, outer));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddChildGraphNode)(&node, innermost, nullptr, 0, within));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddChildGraphNode)(&node, innermost, nullptr, 0, innermost));
  CHECK_EQ(nodes(outer), 1u);
  CHECK_EQ(nodes(innermost), 1u);
  // The other way round, an inner graph is one like any other.
  OK(CU(cuGraphAddChildGraphNode)(&node, outer, nullptr, 0, innermost));
  CUgraphExec exec = nullptr;
  OK(CU(cuGraphInstantiateWithFlags)(&exec, outer, 0));
  OK(CU(cuGraphLaunch)(exec, nullptr));
  OK(CU(cuCtxSynchronize)());
  for (CUgraph each : {outer, middle, inner}) OK(CU(cuGraphDestroy)(each));
}

TEST("the graph of a node is not destroyed by itself, and stays usable") {
  context();
  CUgraph outer = graph(), child = graph(), moved = graph();
  emptyNode(child);
  emptyNode(moved);
  const CUgraph clone = graphOf(childNode(outer, child));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroy)(clone));
  CHECK_EQ(nodes(clone), 1u);
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = moved;
  params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  CUgraphNode node = nullptr;
  OK(CU(cuGraphAddNode_v2)(&node, outer, nullptr, nullptr, 0, &params));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroy)(moved));
  CHECK_EQ(nodes(moved), 1u);
  CUgraphExec exec = nullptr;
  OK(CU(cuGraphInstantiateWithFlags)(&exec, outer, 0));
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(outer));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroy)(outer));
  OK(CU(cuGraphDestroy)(child));
}

TEST("the graph of a capture is not destroyed while the capture lasts") {
  context();
  CUstream s = stream();
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(CU(cuLaunchKernel)(kernel("nothing"), 1, 1, 1, 1, 1, 1, 0, s, nullptr, nullptr));
  CUstreamCaptureStatus status{};
  CUgraph captured = nullptr, ended = nullptr;
  OK(CU(cuStreamGetCaptureInfo_v2)(s, &status, nullptr, &captured, nullptr, nullptr));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroy)(captured));
  OK(CU(cuStreamEndCapture)(s, &ended));
  CHECK(ended == captured);
  CHECK_EQ(nodes(ended), 1u);
  OK(CU(cuGraphDestroy)(ended));
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(CU(cuStreamEndCapture)(s, &ended));
  OK(CU(cuGraphDestroy)(ended));
  OK(CU(cuStreamDestroy_v2)(s));
}

TEST("edges have only ports and types that their nodes know, and are removed with the same data") {
  context();
  CUgraph g = graph();
  CUgraphNode a = kernelNode(g), b = kernelNode(g), empty = emptyNode(g);
  const auto add = [&](CUgraphNode from, CUgraphNode to, CUgraphEdgeData data) {
    return CU(cuGraphAddDependencies_v2)(g, &from, &to, &data, 1);
  };
  const auto remove = [&](CUgraphEdgeData data) { return CU(cuGraphRemoveDependencies_v2)(g, &a, &b, &data, 1); };
  constexpr auto kProgrammatic = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  FAILS(CUDA_ERROR_INVALID_VALUE, add(a, b, edge(kProgrammatic, 7)));
  FAILS(CUDA_ERROR_INVALID_VALUE, add(a, b, edge(kProgrammatic, CU_GRAPH_KERNEL_NODE_PORT_DEFAULT)));
  FAILS(CUDA_ERROR_INVALID_VALUE, add(a, b, edge(9, CU_GRAPH_KERNEL_NODE_PORT_DEFAULT)));
  FAILS(CUDA_ERROR_INVALID_VALUE, add(a, b, edge(0, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC)));
  FAILS(CUDA_ERROR_INVALID_VALUE, add(a, b, edge(0, 0, 1)));
  FAILS(CUDA_ERROR_INVALID_VALUE, add(a, empty, edge(kProgrammatic, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC)));
  FAILS(CUDA_ERROR_INVALID_VALUE, add(empty, b, edge(0, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER)));
  OK(add(a, b, edge(kProgrammatic, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER)));
  FAILS(CUDA_ERROR_INVALID_VALUE, remove(edge(0, 0)));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphRemoveDependencies_v2)(g, &a, &b, nullptr, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, remove(edge(kProgrammatic, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC)));
  OK(remove(edge(kProgrammatic, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER)));
  OK(CU(cuGraphDestroy)(g));
}

TEST("memory of a graph is freed once in it, and such a graph loses neither nodes nor edges") {
  context();
  CUgraph g = graph();
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  params.bytesize = 4096;
  CUgraphNode allocated = nullptr, freed = nullptr, again = nullptr, other = emptyNode(g);
  OK(CU(cuGraphAddMemAllocNode)(&allocated, g, nullptr, 0, &params));
  OK(CU(cuGraphAddMemFreeNode)(&freed, g, &allocated, 1, params.dptr));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddMemFreeNode)(&again, g, &allocated, 1, params.dptr));
  const CUdeviceptr ordinary = allocate(4096);
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddMemFreeNode)(&again, g, nullptr, 0, ordinary));
  CHECK(CU(cuGraphDestroyNode)(other) != CUDA_SUCCESS);
  CHECK(CU(cuGraphRemoveDependencies_v2)(g, &allocated, &freed, nullptr, 1) != CUDA_SUCCESS);
  CHECK_EQ(nodes(g), 3u);
  CUgraphExec exec = nullptr;
  OK(CU(cuGraphInstantiateWithFlags)(&exec, g, 0));
  OK(CU(cuGraphLaunch)(exec, nullptr));
  OK(CU(cuCtxSynchronize)());
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(g));
  OK(CU(cuMemFree_v2)(ordinary));
}

TEST("a fill of an executable graph gets other memory and values, and several rows keep their shape") {
  const CUcontext in = context();
  CUgraph g = graph();
  const CUdeviceptr data = allocate(4096);
  OK(CU(cuMemsetD8_v2)(data, 0, 4096));
  CUDA_MEMSET_NODE_PARAMS row{data, 0, 1, 4, 4, 1}, rows{data + 1024, 64, 1, 4, 4, 3};
  CUgraphNode one = nullptr, several = nullptr;
  OK(CU(cuGraphAddMemsetNode)(&one, g, nullptr, 0, &row, in));
  OK(CU(cuGraphAddMemsetNode)(&several, g, nullptr, 0, &rows, in));
  CUgraphExec exec = nullptr;
  OK(CU(cuGraphInstantiateWithFlags)(&exec, g, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecMemsetNodeSetParams)(exec, one, &rows, in));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecMemsetNodeSetParams)(exec, several, &row, in));
  rows.width = 5;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphExecMemsetNodeSetParams)(exec, several, &rows, in));
  OK(CU(cuGraphMemsetNodeSetParams)(several, &rows));
  CUgraphExecUpdateResultInfo info{};
  FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CU(cuGraphExecUpdate_v2)(exec, g, &info));
  rows.width = 4;
  rows.value = 9;
  rows.dst = data + 2048;
  OK(CU(cuGraphExecMemsetNodeSetParams)(exec, several, &rows, in));
  row.width = 6;
  row.value = 8;
  OK(CU(cuGraphExecMemsetNodeSetParams)(exec, one, &row, in));
  OK(CU(cuGraphLaunch)(exec, nullptr));
  const std::vector<int> first{8, 8, 8, 8, 8, 8, 0}, second{9, 9, 9, 9, 0};
  CHECK(read(data, 7) == first);
  CHECK(read(data + 2048 + 128, 5) == second);
  CHECK_EQ(read(data + 1024, 1)[0], 0);
  OK(CU(cuGraphExecDestroy)(exec));
  OK(CU(cuGraphDestroy)(g));
  OK(CU(cuMemFree_v2)(data));
}

TEST("an event that was last recorded in a capture has no time") {
  context();
  CUstream s = stream();
  CUevent before = event(0), captured = event(0);
  OK(CU(cuEventRecord)(before, s));
  OK(CU(cuEventRecord)(captured, s));
  OK(CU(cuStreamSynchronize)(s));
  float milliseconds = 0;
  OK(CU(cuEventElapsedTime_v2)(&milliseconds, before, captured));
  OK(CU(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(CU(cuEventRecord)(captured, s));
  FAILS(CUDA_ERROR_CAPTURED_EVENT, CU(cuEventElapsedTime_v2)(&milliseconds, before, captured));
  FAILS(CUDA_ERROR_CAPTURED_EVENT, CU(cuEventElapsedTime_v2)(&milliseconds, captured, before));
  CUgraph ended = nullptr;
  OK(CU(cuStreamEndCapture)(s, &ended));
  OK(CU(cuGraphDestroy)(ended));
  OK(CU(cuEventRecord)(captured, s));
  OK(CU(cuStreamSynchronize)(s));
  OK(CU(cuEventElapsedTime_v2)(&milliseconds, before, captured));
}

TEST("a pitch above the device's largest is refused before memory is touched") {
  context();
  const CUdeviceptr data = allocate(4096);
  std::array<char, 64> host{};
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = data;
  copy.srcPitch = 64;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host.data();
  copy.dstPitch = size_t{1} << 40;
  copy.WidthInBytes = 4;
  copy.Height = 2;
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpy2D_v2)(&copy));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpy2DAsync_v2)(&copy, nullptr));
  std::swap(copy.srcPitch, copy.dstPitch);
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpy2D_v2)(&copy));
  OK(CU(cuMemFree_v2)(data));
}

int main(int argc, char** argv) { return run(argc, argv); }
