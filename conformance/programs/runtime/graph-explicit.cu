// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void scale(int* data, int factor, int offset) { data[threadIdx.x] = data[threadIdx.x] * factor + offset; }

static void onHost(void* data) { *static_cast<int*>(data) += 1; }

PROGRAM("graph-explicit", "a graph made node by node: kernels, copies, sets, host functions, events, edges") {
  conformance::Device<int> data(64);
  std::vector<int> in(64), out(64, -1);
  for (int i = 0; i < 64; ++i) in[static_cast<size_t>(i)] = i;
  int called = 0;
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t copyIn, kernel, set, host, copyOut, empty, record;
  CHECK(cudaGraphAddMemcpyNode1D(&copyIn, graph, nullptr, 0, data, in.data(), 256, cudaMemcpyHostToDevice));
  int* pointer = data;
  int factor = 3, offset = 100;
  void* parameters[] = {&pointer, &factor, &offset};
  cudaKernelNodeParams kernelParams = {};
  kernelParams.func = reinterpret_cast<void*>(scale);
  kernelParams.gridDim = dim3(1);
  kernelParams.blockDim = dim3(64);
  kernelParams.kernelParams = parameters;
  CHECK(cudaGraphAddKernelNode(&kernel, graph, &copyIn, 1, &kernelParams));
  cudaMemsetParams setParams = {};
  setParams.dst = pointer;
  setParams.value = 0x01;
  setParams.elementSize = 1;
  setParams.width = 8;
  setParams.height = 1;
  CHECK(cudaGraphAddMemsetNode(&set, graph, &kernel, 1, &setParams));
  cudaHostNodeParams hostParams = {onHost, &called};
  CHECK(cudaGraphAddHostNode(&host, graph, &set, 1, &hostParams));
  CHECK(cudaGraphAddEmptyNode(&empty, graph, nullptr, 0));
  CHECK(cudaGraphAddMemcpyNode1D(&copyOut, graph, nullptr, 0, out.data(), data, 256, cudaMemcpyDeviceToHost));
  const cudaGraphNode_t from[] = {host, empty}, to[] = {copyOut, copyOut};
  CHECK(cudaGraphAddDependencies(graph, from, to, nullptr, 2));
  cudaEvent_t event;
  CHECK(cudaEventCreate(&event));
  CHECK(cudaGraphAddEventRecordNode(&record, graph, &copyOut, 1, event));
  size_t dependencies = 0, dependents = 0;
  CHECK(cudaGraphNodeGetDependencies(copyOut, nullptr, nullptr, &dependencies));
  CHECK(cudaGraphNodeGetDependentNodes(kernel, nullptr, nullptr, &dependents));
  say("the copy depends on %zu, on the kernel %zu", dependencies, dependents);
  CHECK(cudaGraphRemoveDependencies(graph, &empty, &copyOut, nullptr, 1));
  CHECK(cudaGraphDestroyNode(empty));
  cudaKernelNodeParams seen;
  CHECK(cudaGraphKernelNodeGetParams(kernel, &seen));
  say("kernel: block %u, factor %d", seen.blockDim.x, *static_cast<int*>(seen.kernelParams[1]));
  cudaMemsetParams seenSet;
  CHECK(cudaGraphMemsetNodeGetParams(set, &seenSet));
  say("set: value %u, width %zu, element %u", seenSet.value, seenSet.width, seenSet.elementSize);
  for (cudaGraphNode_t node : {copyIn, kernel, set, host, record}) {
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(node, &type));
    say("type %d", static_cast<int>(type));
  }
  cudaGraphExec_t exec;
  SEE(cudaGraphInstantiate(&exec, graph, 0));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (int i = 0; i < 2; ++i) {
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("launched: %08x %d %d, called %d", static_cast<unsigned>(out[0]), out[2], out[63], called);
  }
  SEE(cudaEventQuery(event));
  // A cyclic graph cannot be run.
  cudaGraph_t circle;
  cudaGraphNode_t a, b;
  CHECK(cudaGraphCreate(&circle, 0));
  CHECK(cudaGraphAddEmptyNode(&a, circle, nullptr, 0));
  CHECK(cudaGraphAddEmptyNode(&b, circle, &a, 1));
  const cudaError_t added = cudaGraphAddDependencies(circle, &b, &a, nullptr, 1);
  cudaGraphExec_t none = nullptr;
  const cudaError_t made = added == cudaSuccess ? cudaGraphInstantiate(&none, circle, 0) : added;
  say("a circle: %s", cudaGetErrorName(made));
  cudaGetLastError();
  SEE(cudaGraphAddDependencies(graph, &a, &kernel, nullptr, 1));
  cudaGetLastError();
  SEE(cudaGraphLaunch(nullptr, stream));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(circle));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
}
