// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

static CUstream stream, other;

/// Makes a query while a stream is being captured, and prints what became of the capture.
#define ASK(mode, call)                                               \
  do {                                                                \
    CHECK(cuStreamBeginCapture_v2(stream, mode));                     \
    const CUresult asked = (call);                                    \
    CUgraph graph = NULL;                                             \
    const CUresult ended = cuStreamEndCapture(stream, &graph);        \
    say("  %s: %s, %s", #call, error_name(asked), error_name(ended)); \
    if (graph) CHECK(cuGraphDestroy(graph));                          \
  } while (0)

static void ask_all(CUstreamCaptureMode mode) {
  unsigned flags;
  int priority;
  unsigned long long id;
  CUcontext context;
  CUdevice gpu;
  ASK(mode, cuStreamGetFlags(stream, &flags));
  ASK(mode, cuStreamGetFlags(NULL, &flags));
  ASK(mode, cuStreamGetFlags(other, &flags));
  ASK(mode, cuStreamGetPriority(stream, &priority));
  ASK(mode, cuStreamGetPriority(NULL, &priority));
  ASK(mode, cuStreamGetId(stream, &id));
  ASK(mode, cuStreamGetId(NULL, &id));
  ASK(mode, cuStreamGetCtx(stream, &context));
  ASK(mode, cuStreamGetCtx(NULL, &context));
  ASK(mode, cuStreamGetDevice(stream, &gpu));
  ASK(mode, cuStreamGetDevice(NULL, &gpu));
  ASK(mode, cuStreamQuery(NULL));
  ASK(mode, cuStreamQuery(stream));
  ASK(mode, cuStreamQuery(other));
  ASK(mode, cuStreamSynchronize(NULL));
  ASK(mode, cuStreamSynchronize(stream));
  ASK(mode, cuStreamSynchronize(other));
}

PROGRAM("capture-questions", "what streams are asked while one is captured, blocking or not, in every mode") {
  primary();
  static const char* const modes[] = {"global", "of the thread", "relaxed"};
  CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  for (unsigned flags = 0; flags < 2; ++flags) {
    CHECK(cuStreamCreate(&stream, flags));
    for (int mode = 0; mode < 3; ++mode) {
      say("%s, %s", flags ? "not blocking" : "blocking", modes[mode]);
      ask_all((CUstreamCaptureMode)mode);
    }
    CHECK(cuStreamDestroy_v2(stream));
  }
  CHECK(cuStreamDestroy_v2(other));
}
