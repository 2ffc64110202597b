// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void add(int* data, int value) { *data += value; }

PROGRAM("capture", "the thread's own default stream captured into a graph, copies and sets by it") {
  conformance::Device<int> data(1);
  data.clear();
  CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal));
  add<<<1, 1>>>(data, 7);
  int host = -1;
  CHECK(cudaMemcpyAsync(&host, data, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(cudaStreamEndCapture(cudaStreamPerThread, &graph));
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  say("%zu nodes", nodes);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, cudaStreamPerThread));
  CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  say("launched: %d", host);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  const int one = 1000;
  CHECK(cudaMemcpy(data, &one, sizeof one, cudaMemcpyHostToDevice));
  add<<<1, 1>>>(data, 1);
  CHECK(cudaMemcpy(&host, data, sizeof host, cudaMemcpyDeviceToHost));
  say("copied: %d", host);
  CHECK(cudaMemset(data, 0, sizeof(int)));
  add<<<1, 1>>>(data, 1);
  CHECK(cudaMemcpy(&host, data, sizeof host, cudaMemcpyDeviceToHost));
  say("set: %d", host);
}
