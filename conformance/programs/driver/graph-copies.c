// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

enum { kBytes = 1024, kWords = kBytes / 4, kEnds = 4 };

static CUcontext context;
static CUfunction spin;
static CUdeviceptr flag;

/// Memory at the two ends of a copy.
struct end {
  const char* name;
  CUmemorytype type;
  void* source;
  void* target;
};

static CUDA_MEMCPY3D copy_of(const struct end* from, const struct end* to) {
  return (CUDA_MEMCPY3D){.srcMemoryType = from->type,
                         .srcHost = from->source,
                         .srcDevice = (CUdeviceptr)from->source,
                         .dstMemoryType = to->type,
                         .dstHost = to->target,
                         .dstDevice = (CUdeviceptr)to->target,
                         .WidthInBytes = kBytes,
                         .Height = 1,
                         .Depth = 1};
}

/// A kernel of some milliseconds and the copy behind it.
static CUgraph delayed(const CUDA_MEMCPY3D* copy) {
  CUgraph graph;
  CUgraphNode wait, move;
  CHECK(cuGraphCreate(&graph, 0));
  long long cycles = 20000000;
  int value = 1;
  void* parameters[] = {&cycles, &flag, &value};
  CUDA_KERNEL_NODE_PARAMS kernel = {.func = spin, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = parameters};
  CHECK(cuGraphAddKernelNode_v2(&wait, graph, NULL, 0, &kernel));
  CHECK(cuGraphAddMemcpyNode(&move, graph, &wait, 1, copy, context));
  return graph;
}

static void fill(const struct end* end, void* memory, unsigned value) {
  if (end->type == CU_MEMORYTYPE_DEVICE) {
    CHECK(cuMemsetD32_v2((CUdeviceptr)memory, value, kWords));
    return;
  }
  for (int i = 0; i < kWords; ++i) ((unsigned*)memory)[i] = value;
}

static unsigned last_word(const struct end* end) {
  return end->type == CU_MEMORYTYPE_DEVICE ? word_at((CUdeviceptr)end->target + kBytes - 4)
                                           : ((volatile unsigned*)end->target)[kWords - 1];
}

/// The driver itself makes copies to pageable memory, and those between host memory: the launch returns after them, and a
/// program reads the bytes without waiting for the stream.
static void launch_delayed(const struct end* from, const struct end* to, bool is_child) {
  const bool ends = (to->type == CU_MEMORYTYPE_HOST && from->type == CU_MEMORYTYPE_HOST) || !strcmp(to->name, "pageable");
  const CUDA_MEMCPY3D copy = copy_of(from, to);
  CUgraph graph = delayed(&copy), part = NULL;
  if (is_child) {
    CUgraphNode node;
    part = graph;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, part));
  }
  CUgraphExec exec;
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (unsigned i = 0; i < 3; ++i) {
    CUstream stream = NULL;
    if (i > 0) CHECK(cuStreamCreate(&stream, i == 1 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    fill(from, from->source, 7 + i);
    fill(to, to->target, 0);
    CHECK(cuCtxSynchronize());
    CHECK(cuGraphLaunch(exec, stream));
    const unsigned seen = ends ? last_word(to) : 0;
    const CUresult now = ends ? cuStreamQuery(stream) : CUDA_SUCCESS;
    CHECK(cuStreamSynchronize(stream));
    say("%s to %s%s, stream %u: read %u, then %s, in the end %u", from->name, to->name, is_child ? " in a child" : "", i,
        seen, error_name(now), last_word(to));
    if (stream) CHECK(cuStreamDestroy_v2(stream));
  }
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
  if (part) CHECK(cuGraphDestroy(part));
}

/// An executable graph accepts other host memory for a copy between host memory, and launches wait for that one too.
static void update(const struct end* from, const struct end* to, const struct end* new_from, const struct end* new_to) {
  const CUDA_MEMCPY3D before = copy_of(from, to), after = copy_of(new_from, new_to);
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec exec;
  CHECK(cuGraphCreate(&graph, 0));
  CHECK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &before, context));
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  const CUresult set = cuGraphExecMemcpyNodeSetParams(exec, node, &after, context);
  fill(new_from, new_from->source, 5);
  fill(new_to, new_to->target, 0);
  CHECK(cuGraphLaunch(exec, NULL));
  say("%s to %s becomes %s to %s: %s, read %u", from->name, to->name, new_from->name, new_to->name, error_name(set),
      last_word(new_to));
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
}

PROGRAM("graph-copies", "copies of graphs that the driver itself makes: the launch returns after them") {
  static unsigned pageable[2][kWords];
  static char registered[2][4096] __attribute__((aligned(4096)));
  void* pinned[2];
  context = primary();
  spin = kernel(kernels(), "spin");
  flag = allocate(4);
  for (int i = 0; i < 2; ++i) CHECK(cuMemHostAlloc(&pinned[i], kBytes, 0));
  CHECK(cuMemHostRegister_v2(registered, sizeof registered, 0));
  const struct end ends[kEnds] = {{"device", CU_MEMORYTYPE_DEVICE, (void*)allocate(kBytes), (void*)allocate(kBytes)},
                                  {"pageable", CU_MEMORYTYPE_HOST, pageable[0], pageable[1]},
                                  {"pinned", CU_MEMORYTYPE_HOST, pinned[0], pinned[1]},
                                  {"registered", CU_MEMORYTYPE_HOST, registered[0], registered[1]}};
  for (int from = 0; from < kEnds; ++from)
    for (int to = 0; to < kEnds; ++to)
      for (int is_child = 0; is_child < 2; ++is_child) launch_delayed(&ends[from], &ends[to], is_child);
  for (int from = 1; from < 3; ++from)
    for (int to = 1; to < 3; ++to)
      for (int new_from = 1; new_from < 3; ++new_from)
        for (int new_to = 1; new_to < 3; ++new_to) update(&ends[from], &ends[to], &ends[new_from], &ends[new_to]);
  CHECK(cuMemHostUnregister(registered));
}
