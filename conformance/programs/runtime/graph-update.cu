// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void set(int* data, int value) { data[threadIdx.x] = value; }
static __global__ void add(int* data, int value) { data[threadIdx.x] += value; }

static cudaGraph_t capture(cudaStream_t stream, int* data, int first, int second, bool isLonger) {
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  set<<<1, 4, 0, stream>>>(data, first);
  add<<<1, 4, 0, stream>>>(data, second);
  if (isLonger) add<<<1, 4, 0, stream>>>(data, 1000);
  CHECK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

PROGRAM("graph-update", "graphs changed after they were made: node parameters, whole updates, switched nodes") {
  conformance::Device<int> data(4);
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto run = [&](cudaGraphExec_t exec, const char* what) {
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("%s: %d", what, data.take()[3]);
  };
  cudaGraph_t graph = capture(stream, data, 10, 5, false);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  run(exec, "as captured");
  cudaGraphExecUpdateResultInfo info;
  cudaGraph_t other = capture(stream, data, 70, 7, false);
  SEE(cudaGraphExecUpdate(exec, other, &info));
  say("result %d", static_cast<int>(info.result));
  run(exec, "updated");
  cudaGraph_t longer = capture(stream, data, 1, 1, true);
  SEE(cudaGraphExecUpdate(exec, longer, &info));
  say("result %d", static_cast<int>(info.result));
  cudaGetLastError();
  run(exec, "after a failed update");
  cudaGraphNode_t nodes[2];
  size_t count = 2;
  CHECK(cudaGraphGetNodes(graph, nodes, &count));
  cudaGraphNode_t root;
  count = 1;
  CHECK(cudaGraphGetRootNodes(graph, &root, &count));
  const cudaGraphNode_t second = nodes[0] == root ? nodes[1] : nodes[0];
  int* pointer = data;
  int value = 900;
  void* parameters[] = {&pointer, &value};
  cudaKernelNodeParams params = {};
  params.func = reinterpret_cast<void*>(add);
  params.gridDim = dim3(1);
  params.blockDim = dim3(4);
  params.kernelParams = parameters;
  SEE(cudaGraphExecKernelNodeSetParams(exec, second, &params));
  run(exec, "one node set");
  SEE(cudaGraphNodeSetEnabled(exec, second, 0));
  unsigned isEnabled = 9;
  CHECK(cudaGraphNodeGetEnabled(exec, second, &isEnabled));
  say("enabled %u", isEnabled);
  run(exec, "switched off");
  SEE(cudaGraphNodeSetEnabled(exec, second, 1));
  run(exec, "switched on");
  value = 33;
  SEE(cudaGraphKernelNodeSetParams(second, &params));
  run(exec, "the graph changed, not what was made of it");
  cudaGraphExec_t fresh;
  CHECK(cudaGraphInstantiate(&fresh, graph, 0));
  run(fresh, "made anew");
  CHECK(cudaGraphDestroy(graph));
  run(fresh, "the graph destroyed");
  for (cudaGraphExec_t each : {exec, fresh}) CHECK(cudaGraphExecDestroy(each));
  for (cudaGraph_t each : {other, longer}) CHECK(cudaGraphDestroy(each));
  CHECK(cudaStreamDestroy(stream));
}
