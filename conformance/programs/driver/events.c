// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("events", "events of the driver: flags, timing, records, waits of whole contexts") {
  CUcontext context = primary();
  CUmodule module = kernels();
  CUdeviceptr out = allocate(4);
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUevent begin, end, plain;
  CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
  CHECK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  float milliseconds = -1;
  SEE(cuEventElapsedTime_v2(&milliseconds, begin, end));
  CHECK(cuEventRecord(begin, stream));
  long long cycles = 100000;
  int value = 8;
  void* parameters[] = {&cycles, &out, &value};
  launch(kernel(module, "spin"), 1, 1, stream, parameters);
  CHECK(cuEventRecordWithFlags(end, stream, CU_EVENT_RECORD_DEFAULT));
  CHECK(cuEventSynchronize(end));
  SEE(cuEventElapsedTime_v2(&milliseconds, begin, end));
  say("some time: %s", yes(milliseconds > 0));
  SEE(cuEventElapsedTime(&milliseconds, begin, end));
  CHECK(cuEventRecord(plain, stream));
  CHECK(cuEventSynchronize(plain));
  SEE(cuEventElapsedTime_v2(&milliseconds, begin, plain));
  SEE(cuCtxRecordEvent(context, plain));
  SEE(cuCtxWaitEvent(context, plain));
  SEE(cuCtxSynchronize());
  SEE(cuEventQuery(plain));
  SEE(cuEventCreate(&plain, 0x100));
  SEE(cuEventRecord(NULL, stream));
  SEE(cuEventQuery(NULL));
  SEE(cuEventDestroy_v2(NULL));
  SEE(cuEventDestroy_v2(begin));
}
