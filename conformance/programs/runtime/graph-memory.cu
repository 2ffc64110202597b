// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void fill(int* data, int value) { data[threadIdx.x] = value + static_cast<int>(threadIdx.x); }
static __global__ void copy(const int* from, int* to) { to[threadIdx.x] = from[threadIdx.x]; }

PROGRAM("graph-memory", "graphs that take and give back memory: captured, node by node, across launches") {
  if (!conformance::attribute(cudaDevAttrMemoryPoolsSupported)) conformance::skip("no memory pools");
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  conformance::Device<int> out(32);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  int *a = nullptr, *b = nullptr;
  CHECK(cudaMallocAsync(&a, 128, stream));
  fill<<<1, 32, 0, stream>>>(a, 100);
  CHECK(cudaMallocAsync(&b, 1 << 20, stream));
  copy<<<1, 32, 0, stream>>>(a, b);
  CHECK(cudaFreeAsync(a, stream));
  copy<<<1, 32, 0, stream>>>(b, out);
  CHECK(cudaFreeAsync(b, stream));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  size_t count = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  say("%zu nodes", count);
  cudaGraphExec_t exec;
  SEE(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  say("captured: %d %d", out.take()[0], out.take()[31]);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));

  // Memory that outlives the launch is freed explicitly.
  CHECK(cudaGraphCreate(&graph, 0));
  cudaMemAllocNodeParams params = {};
  params.poolProps.allocType = cudaMemAllocationTypePinned;
  params.poolProps.location.type = cudaMemLocationTypeDevice;
  params.bytesize = 4096;
  cudaGraphNode_t node;
  SEE(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  int* memory = static_cast<int*>(params.dptr);
  say("an address: %s", memory ? "yes" : "no");
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  fill<<<1, 32, 0, stream>>>(memory, 7);
  copy<<<1, 32, 0, stream>>>(memory, out);
  CHECK(cudaStreamSynchronize(stream));
  say("kept: %d", out.take()[31]);
  SEE(cudaGraphLaunch(exec, stream));
  cudaGetLastError();
  SEE(cudaFreeAsync(memory, stream));
  SEE(cudaGraphLaunch(exec, stream));
  SEE(cudaFreeAsync(memory, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
  for (int i = 0; i < 3; ++i) SEE(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaFree(memory));
  CHECK(cudaGraphExecDestroy(exec));
  SEE(cudaDeviceGraphMemTrim(0));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
}
