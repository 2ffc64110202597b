// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

static void called(void* data) { ++*(int*)data; }

PROGRAM("graphs", "graphs of the driver: nodes of each kind, parameters, capture into one, stream capture info") {
  CUcontext context = primary();
  CUmodule module = kernels();
  CUdeviceptr data = allocate(64 * 4);
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUgraph graph;
  CHECK(cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS set = {.dst = data, .value = 7, .elementSize = 4, .width = 64, .height = 1};
  CUgraphNode nodes[4];
  SEE(cuGraphAddMemsetNode(&nodes[0], graph, NULL, 0, &set, context));
  CUdeviceptr target = data + 32;
  int value = 100;
  unsigned n = 8;
  void* parameters[] = {&target, &value, &n};
  CUDA_KERNEL_NODE_PARAMS fill = {.func = kernel(module, "fill"), .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1, .kernelParams = parameters};
  SEE(cuGraphAddKernelNode_v2(&nodes[1], graph, &nodes[0], 1, &fill));
  int out[64], count = 0;
  CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = data, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .WidthInBytes = 256, .Height = 1, .Depth = 1};
  SEE(cuGraphAddMemcpyNode(&nodes[2], graph, &nodes[1], 1, &copy, context));
  CUDA_HOST_NODE_PARAMS host = {.fn = called, .userData = &count};
  SEE(cuGraphAddHostNode(&nodes[3], graph, &nodes[2], 1, &host));
  CUgraphExec exec;
  SEE(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) {
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
  }
  say("ran: %d %d %d, called %d", out[0], out[8], out[15], count);
  value = 500;
  SEE(cuGraphExecKernelNodeSetParams_v2(exec, nodes[1], &fill));
  set.value = 9;
  SEE(cuGraphExecMemsetNodeSetParams(exec, nodes[0], &set, context));
  CHECK(cuGraphLaunch(exec, stream));
  CHECK(cuStreamSynchronize(stream));
  say("changed: %d %d", out[0], out[8]);
  for (int i = 0; i < 4; ++i) {
    CUgraphNodeType type;
    CHECK(cuGraphNodeGetType(nodes[i], &type));
    say("node %d is of type %d", i, (int)type);
  }
  CUDA_KERNEL_NODE_PARAMS seen;
  SEE(cuGraphKernelNodeGetParams_v2(nodes[1], &seen));
  say("block %u, value %d", seen.blockDimX, *(int*)seen.kernelParams[1]);
  cuuint64_t flags = 9;
  SEE(cuGraphExecGetFlags(exec, &flags));
  say("flags %llu", (unsigned long long)flags);

  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CHECK(cuMemsetD8Async(data, 1, 256, stream));
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph capturing = NULL;
  const CUgraphNode* dependencies = NULL;
  size_t number = 0;
  SEE(cuStreamGetCaptureInfo_v3(stream, &status, &id, &capturing, &dependencies, NULL, &number));
  say("capturing %d, an id %s, a graph %s, %zu dependencies", (int)status, yes(id != 0), yes(capturing != NULL), number);
  SEE(cuMemcpyDtoHAsync_v2(out, data, 256, stream));
  CUgraph captured;
  SEE(cuStreamEndCapture(stream, &captured));
  SEE(cuStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, NULL, NULL, NULL));
  say("capturing %d", (int)status);
  CUgraphNode child;
  SEE(cuGraphAddChildGraphNode(&child, graph, &nodes[3], 1, captured));
  CUgraphExecUpdateResultInfo info;
  SEE(cuGraphExecUpdate_v2(exec, graph, &info));
  CHECK(cuGraphExecDestroy(exec));
  SEE(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK(cuGraphLaunch(exec, stream));
  CHECK(cuStreamSynchronize(stream));
  say("with the child: %x, called %d", (unsigned)out[8], count);
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(captured));
  CHECK(cuGraphDestroy(graph));

  CHECK(cuGraphCreate(&graph, 0));
  SEE(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK(cuMemsetD8Async(data, 2, 256, stream));
  CUgraph same;
  SEE(cuStreamEndCapture(stream, &same));
  size_t all = 0;
  CHECK(cuGraphGetNodes(graph, NULL, &all));
  say("captured into the graph: %s, %zu nodes", yes(same == graph), all);
  CHECK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
  SEE(cuStreamEndCapture(stream, NULL));
  CHECK(cuGraphDestroy(graph));
  SEE(cuGraphCreate(NULL, 0));
  SEE(cuGraphDestroy(NULL));
  SEE(cuGraphLaunch(NULL, stream));
}
