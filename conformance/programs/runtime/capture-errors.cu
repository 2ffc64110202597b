// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

#include <thread>

static __global__ void nothing() {}

static void end(cudaStream_t stream, const char* what) {
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(stream, &status));
  cudaGraph_t graph = nullptr;
  const cudaError_t result = cudaStreamEndCapture(stream, &graph);
  say("%s: status %d, end %s, graph %s", what, static_cast<int>(status), cudaGetErrorName(result), graph ? "some" : "none");
  if (graph) CHECK(cudaGraphDestroy(graph));
  cudaGetLastError();
}

PROGRAM("capture-errors", "capture modes: what is refused while a stream captures, and what ends the capture") {
  conformance::Device<int> data(4);
  cudaStream_t stream, other;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  cudaEvent_t event;
  CHECK(cudaEventCreate(&event));
  const auto begin = [&](cudaStreamCaptureMode mode) { CHECK(cudaStreamBeginCapture(stream, mode)); };
  cudaGraph_t graph = nullptr;
  SEE(cudaStreamEndCapture(stream, &graph));
  SEE(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal));
  cudaGetLastError();
  begin(cudaStreamCaptureModeGlobal);
  end(stream, "nothing captured");
  begin(cudaStreamCaptureModeGlobal);
  SEE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cudaGetLastError();
  end(stream, "begun twice");
  begin(cudaStreamCaptureModeGlobal);
  SEE(cudaStreamSynchronize(stream));
  cudaGetLastError();
  end(stream, "synchronized");
  begin(cudaStreamCaptureModeGlobal);
  SEE(cudaStreamQuery(stream));
  cudaGetLastError();
  end(stream, "queried");
  begin(cudaStreamCaptureModeGlobal);
  nothing<<<1, 1, 0, stream>>>();
  CHECK(cudaEventRecord(event, stream));
  SEE(cudaEventSynchronize(event));
  cudaGetLastError();
  end(stream, "event synchronized");
  CHECK(cudaEventRecord(event, other));
  CHECK(cudaStreamSynchronize(other));
  begin(cudaStreamCaptureModeGlobal);
  void* memory = nullptr;
  SEE(cudaMalloc(&memory, 16));
  cudaGetLastError();
  end(stream, "allocation in global mode");
  begin(cudaStreamCaptureModeThreadLocal);
  std::thread([&] {
    void* inner = nullptr;
    SEE(cudaMalloc(&inner, 16));
    SEE(cudaFree(inner));
  }).join();
  end(stream, "allocation in another thread, thread-local mode");
  begin(cudaStreamCaptureModeRelaxed);
  SEE(cudaMalloc(&memory, 16));
  end(stream, "allocation in relaxed mode");
  CHECK(cudaFree(memory));
  begin(cudaStreamCaptureModeGlobal);
  nothing<<<1, 1, 0, stream>>>();
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaStreamWaitEvent(other, event, 0));
  nothing<<<1, 1, 0, other>>>();
  end(stream, "a fork without a join");
  CHECK(cudaDeviceSynchronize());
  begin(cudaStreamCaptureModeGlobal);
  int value = 0;
  SEE(cudaMemcpy(&value, data, sizeof value, cudaMemcpyDeviceToHost));
  cudaGetLastError();
  end(stream, "a waiting copy");
  begin(cudaStreamCaptureModeGlobal);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  say("the mode was %d", static_cast<int>(mode));
  SEE(cudaMalloc(&memory, 16));
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  end(stream, "an exchanged mode");
  CHECK(cudaFree(memory));
  begin(cudaStreamCaptureModeGlobal);
  std::thread([&] { end(stream, "ended by another thread"); }).join();
  end(stream, "then by its own");
  SEE(cudaDeviceSynchronize());
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaStreamDestroy(other));
}
