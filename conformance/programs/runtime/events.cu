// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void set(int* out, int value) { *out = value; }
static __global__ void copy(const int* from, int* to) { *to = *from; }

PROGRAM("events", "events: timing, waiting in every form, queries, flags, errors") {
  cudaEvent_t begin, end, untimed, waiting;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
  CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&waiting, cudaEventBlockingSync | cudaEventDisableTiming));
  float milliseconds = -1;
  SEE(cudaEventQuery(begin));
  SEE(cudaEventSynchronize(begin));
  SEE(cudaEventElapsedTime(&milliseconds, begin, end));
  cudaStream_t first, second;
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  conformance::Device<int> a(1), b(1);
  CHECK(cudaEventRecord(begin, first));
  for (int i = 0; i <= 100; ++i) set<<<1, 1, 0, first>>>(a, i);
  CHECK(cudaEventRecord(untimed, first));
  CHECK(cudaStreamWaitEvent(second, untimed, 0));
  copy<<<1, 1, 0, second>>>(a, b);
  CHECK(cudaEventRecordWithFlags(end, second, cudaEventRecordDefault));
  CHECK(cudaEventSynchronize(end));
  SEE(cudaEventQuery(end));
  SEE(cudaEventElapsedTime(&milliseconds, begin, end));
  say("time passed: %s", milliseconds > 0 ? "yes" : "no");
  CHECK(cudaEventElapsedTime(&milliseconds, begin, begin));
  say("from an event to itself: %g ms", static_cast<double>(milliseconds));
  SEE(cudaEventElapsedTime(&milliseconds, begin, untimed));
  int value = 0;
  CHECK(cudaMemcpyAsync(&value, b, sizeof value, cudaMemcpyDeviceToHost, second));
  CHECK(cudaEventRecord(waiting, second));
  CHECK(cudaEventSynchronize(waiting));
  say("the second stream saw %d", value);
  // A wait sees the record before it, not the one after.
  CHECK(cudaEventRecord(untimed, first));
  CHECK(cudaStreamWaitEvent(second, untimed, 0));
  CHECK(cudaEventRecord(untimed, second));
  CHECK(cudaStreamWaitEvent(first, untimed, 0));
  CHECK(cudaStreamSynchronize(first));
  CHECK(cudaStreamSynchronize(second));
  cudaEvent_t wrong;
  SEE(cudaEventCreateWithFlags(&wrong, 0x80));
  SEE(cudaEventCreateWithFlags(&wrong, cudaEventInterprocess));
  SEE(cudaEventSynchronize(nullptr));
  SEE(cudaStreamWaitEvent(first, nullptr, 0));
  for (cudaEvent_t event : {begin, end, untimed, waiting}) SEE(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(first));
  CHECK(cudaStreamDestroy(second));
}
