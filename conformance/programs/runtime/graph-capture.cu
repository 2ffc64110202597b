// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void add(int* data, int value) { data[threadIdx.x] += value; }
static __global__ void join(const int* a, const int* b, int* out) { out[threadIdx.x] = a[threadIdx.x] * b[threadIdx.x]; }

PROGRAM("graph-capture", "work of streams captured into a graph: forks, joins, copies, launches of it") {
  conformance::Device<int> a(32), b(32), out(32);
  a.clear(), b.clear(), out.clear();
  cudaStream_t first, second;
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  cudaEvent_t fork, joined;
  CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  std::vector<int> host(32, -1);
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(first, &status));
  say("before: %d", static_cast<int>(status));
  CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
  CHECK(cudaStreamIsCapturing(first, &status));
  say("during: %d", static_cast<int>(status));
  CHECK(cudaEventRecord(fork, first));
  CHECK(cudaStreamWaitEvent(second, fork, 0));
  add<<<1, 32, 0, first>>>(a, 2);
  add<<<1, 32, 0, second>>>(b, 3);
  CHECK(cudaMemsetAsync(out, 0xff, 64, second));
  CHECK(cudaEventRecord(joined, second));
  CHECK(cudaStreamWaitEvent(first, joined, 0));
  join<<<1, 32, 0, first>>>(a, b, out);
  CHECK(cudaMemcpyAsync(host.data(), out, 128, cudaMemcpyDeviceToHost, first));
  CHECK(cudaStreamIsCapturing(second, &status));
  say("of the forked stream: %d", static_cast<int>(status));
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(first, &graph));
  CHECK(cudaStreamIsCapturing(first, &status));
  say("after: %d; nothing has run: %d", static_cast<int>(status), a.take()[0]);
  size_t nodes = 0, edges = 0, roots = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
  say("%zu nodes, %zu edges, %zu roots", nodes, edges, roots);
  std::vector<cudaGraphNode_t> all(nodes);
  CHECK(cudaGraphGetNodes(graph, all.data(), &nodes));
  int kinds[20] = {};
  for (cudaGraphNode_t node : all) {
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(node, &type));
    ++kinds[type];
  }
  say("kernels %d, copies %d, sets %d", kinds[cudaGraphNodeTypeKernel], kinds[cudaGraphNodeTypeMemcpy], kinds[cudaGraphNodeTypeMemset]);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphUpload(exec, first));
  for (int i = 1; i <= 3; ++i) {
    CHECK(cudaGraphLaunch(exec, first));
    CHECK(cudaStreamSynchronize(first));
    say("launch %d: %d %d", i, host[0], host[31]);
  }
  for (int i = 0; i < 5; ++i) CHECK(cudaGraphLaunch(exec, i % 2 == 0 ? first : second));
  CHECK(cudaStreamSynchronize(first));
  CHECK(cudaStreamSynchronize(second));
  say("after eight: %d %d", a.take()[0], b.take()[31]);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaEventDestroy(fork));
  CHECK(cudaEventDestroy(joined));
  CHECK(cudaStreamDestroy(first));
  CHECK(cudaStreamDestroy(second));
}
