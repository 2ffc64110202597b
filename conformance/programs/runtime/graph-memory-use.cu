// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static unsigned long long attributeOf(cudaGraphMemAttributeType which) {
  unsigned long long value = 0;
  CHECK(cudaDeviceGetGraphMemAttribute(0, which, &value));
  return value;
}
static void report(const char* when) {
  say("%s: used %llu, at most %llu, reserved %llu, at most %llu", when, attributeOf(cudaGraphMemAttrUsedMemCurrent),
      attributeOf(cudaGraphMemAttrUsedMemHigh), attributeOf(cudaGraphMemAttrReservedMemCurrent),
      attributeOf(cudaGraphMemAttrReservedMemHigh));
}

/// A graph that allocates memory, and frees it if `frees`.
static cudaGraph_t graphOf(size_t bytes, bool frees, void** memory) {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaMemAllocNodeParams params = {};
  params.poolProps.allocType = cudaMemAllocationTypePinned;
  params.poolProps.location.type = cudaMemLocationTypeDevice;
  params.bytesize = bytes;
  cudaGraphNode_t node, end;
  CHECK(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  if (frees) CHECK(cudaGraphAddMemFreeNode(&end, graph, &node, 1, params.dptr));
  *memory = params.dptr;
  return graph;
}

PROGRAM("graph-memory-use", "what a device says about the memory of its graphs") {
  if (!conformance::attribute(cudaDevAttrMemoryPoolsSupported)) conformance::skip("no memory pools");
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  report("at first");
  void *kept = nullptr, *passing = nullptr;
  cudaGraph_t keeping = graphOf(4096, false, &kept), closed = graphOf(100 << 20, true, &passing);
  report("graphs made");
  cudaGraphExec_t one, two;
  CHECK(cudaGraphInstantiate(&one, keeping, 0));
  CHECK(cudaGraphInstantiate(&two, closed, 0));
  report("made executable");
  CHECK(cudaGraphLaunch(one, stream));
  CHECK(cudaStreamSynchronize(stream));
  report("one launched");
  CHECK(cudaGraphLaunch(two, stream));
  CHECK(cudaStreamSynchronize(stream));
  report("both launched");
  SEE(cudaDeviceGraphMemTrim(0));
  report("trimmed");
  CHECK(cudaFreeAsync(kept, stream));
  CHECK(cudaStreamSynchronize(stream));
  report("freed");
  SEE(cudaDeviceGraphMemTrim(0));
  report("trimmed");
  cudaGraphExec_t again;
  SEE(cudaGraphInstantiate(&again, closed, 0));
  cudaGetLastError();
  cudaGraph_t twin;
  SEE(cudaGraphClone(&twin, closed));
  cudaGetLastError();
  cudaGraph_t around;
  cudaGraphNode_t child;
  CHECK(cudaGraphCreate(&around, 0));
  SEE(cudaGraphAddChildGraphNode(&child, around, nullptr, 0, closed));
  cudaGetLastError();
  CHECK(cudaGraphDestroy(around));
  CHECK(cudaGraphExecDestroy(one));
  CHECK(cudaGraphExecDestroy(two));
  report("nothing executable");
  CHECK(cudaGraphDestroy(keeping));
  report("one graph gone");
  CHECK(cudaGraphDestroy(closed));
  report("both gone");
  SEE(cudaDeviceGraphMemTrim(0));
  report("trimmed");
  unsigned long long none = 0;
  SEE(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &none));
  SEE(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &none));
  report("marks set back");
  CHECK(cudaStreamDestroy(stream));
}
