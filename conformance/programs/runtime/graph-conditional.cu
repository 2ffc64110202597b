// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void countdown(int* left, int* rounds, cudaGraphConditionalHandle handle) {
  *rounds += 1;
  *left -= 1;
  cudaGraphSetConditional(handle, *left > 0 ? 1 : 0);
}
static __global__ void decide(const int* value, cudaGraphConditionalHandle handle) { cudaGraphSetConditional(handle, *value > 10 ? 1 : 0); }
static __global__ void mark(int* out) { *out += 100; }

static cudaGraphNode_t add(cudaGraph_t graph, const cudaGraphNode_t* after, void* function, void** parameters) {
  cudaKernelNodeParams params = {};
  params.func = function;
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = parameters;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &params));
  return node;
}

PROGRAM("graph-conditional", "loops and branches in a graph, decided by kernels") {
  int driver = 0;
  CHECK(cudaDriverGetVersion(&driver));
  if (driver < 12040) conformance::skip("needs driver 12.4");
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  conformance::Device<int> left(1), rounds(1), out(1);
  {
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = cudaGraphCondTypeWhile;
    params.conditional.size = 1;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
    int *leftPointer = left, *roundsPointer = rounds;
    void* parameters[] = {&leftPointer, &roundsPointer, &handle};
    add(params.conditional.phGraph_out[0], nullptr, reinterpret_cast<void*>(countdown), parameters);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (const int count : {5, 1}) {
      left.put({count}), rounds.clear();
      CHECK(cudaGraphLaunch(exec, stream));
      CHECK(cudaStreamSynchronize(stream));
      say("while %d: %d rounds, %d left", count, rounds.take()[0], left.take()[0]);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
  }
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
  int *leftPointer = left, *outPointer = out;
  void *decideParameters[] = {&leftPointer, &handle}, *markParameters[] = {&outPointer};
  const cudaGraphNode_t first = add(graph, nullptr, reinterpret_cast<void*>(decide), decideParameters);
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = cudaGraphCondTypeIf;
  params.conditional.size = 1;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddNode(&node, graph, &first, nullptr, 1, &params));
  add(params.conditional.phGraph_out[0], nullptr, reinterpret_cast<void*>(mark), markParameters);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  out.clear();
  for (const int value : {3, 30, 11, 10}) {
    left.put({value});
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("if %d: %d", value, out.take()[0]);
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
}
