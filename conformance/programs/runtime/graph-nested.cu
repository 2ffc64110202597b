// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void add(int* data, int value) { *data += value; }
static __global__ void twice(int* data) { *data *= 2; }

static cudaGraphNode_t kernelNode(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& after, void* function, void** parameters) {
  cudaKernelNodeParams params = {};
  params.func = function;
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = parameters;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &params));
  return node;
}

static void released(void* data) { ++*static_cast<int*>(data); }

PROGRAM("graph-nested", "graphs within graphs, clones, and objects that live as long as a graph") {
  conformance::Device<int> data(1);
  data.clear();
  int* pointer = data;
  int value = 5;
  void *addParameters[] = {&pointer, &value}, *twiceParameters[] = {&pointer};
  cudaGraph_t inner, outer;
  CHECK(cudaGraphCreate(&inner, 0));
  const cudaGraphNode_t a = kernelNode(inner, {}, reinterpret_cast<void*>(add), addParameters);
  kernelNode(inner, {a}, reinterpret_cast<void*>(twice), twiceParameters);
  CHECK(cudaGraphCreate(&outer, 0));
  cudaGraphNode_t child, last;
  CHECK(cudaGraphAddChildGraphNode(&child, outer, nullptr, 0, inner));
  last = kernelNode(outer, {child}, reinterpret_cast<void*>(add), addParameters);
  CHECK(cudaGraphAddChildGraphNode(&child, outer, &last, 1, inner));
  cudaGraph_t embedded;
  CHECK(cudaGraphChildGraphNodeGetGraph(child, &embedded));
  size_t count = 0;
  CHECK(cudaGraphGetNodes(embedded, nullptr, &count));
  say("embedded: %zu nodes, a copy: %s", count, embedded != inner ? "yes" : "no");
  CHECK(cudaGraphGetNodes(outer, nullptr, &count));
  say("outer: %zu nodes", count);

  cudaGraph_t clone;
  CHECK(cudaGraphClone(&clone, outer));
  cudaGraphNode_t found;
  SEE(cudaGraphNodeFindInClone(&found, last, clone));
  SEE(cudaGraphNodeFindInClone(&found, a, clone));
  cudaGetLastError();
  // Nodes that are added afterwards do not appear in the clone.
  kernelNode(outer, {child}, reinterpret_cast<void*>(twice), twiceParameters);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (cudaGraph_t graph : {outer, clone, inner}) {
    data.clear();
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("run: %d", data.take()[0]);
    CHECK(cudaGraphExecDestroy(exec));
  }

  int count1 = 0;
  cudaUserObject_t object;
  CHECK(cudaUserObjectCreate(&object, &count1, released, 1, cudaUserObjectNoDestructorSync));
  CHECK(cudaGraphRetainUserObject(inner, object, 1, cudaGraphUserObjectMove));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, inner, 0));
  CHECK(cudaGraphDestroy(inner));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  say("while something is made of the graph: released %d", count1);
  CHECK(cudaGraphExecDestroy(exec));
  // The destructor runs on a thread of the driver, some time after the last use.
  for (int i = 0; i < 5000 && *static_cast<volatile int*>(&count1) == 0; ++i) usleep(1000);
  say("afterwards: released %d", count1);
  CHECK(cudaGraphDestroy(outer));
  CHECK(cudaGraphDestroy(clone));
  CHECK(cudaStreamDestroy(stream));
}
