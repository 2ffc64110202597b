// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

PROGRAM("stream-memory-ops", "streams that write and wait for values in memory, alone and in batches") {
  primary();
  CUmodule module = kernels();
  CUstream first, second;
  CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  CUdeviceptr cells = allocate(64);
  CHECK(cuMemsetD32_v2(cells, 0, 16));
  CHECK(cuCtxSynchronize());
  // The second stream waits until the first has written.
  SEE(cuStreamWaitValue32_v2(second, cells, 5, CU_STREAM_WAIT_VALUE_EQ));
  SEE(cuStreamWriteValue32_v2(second, cells + 4, 77, CU_STREAM_WRITE_VALUE_DEFAULT));
  SEE(cuStreamWriteValue32_v2(first, cells, 5, CU_STREAM_WRITE_VALUE_DEFAULT));
  SEE(cuStreamSynchronize(second));
  unsigned out[16];
  CHECK(cuMemcpyDtoH_v2(out, cells, sizeof out));
  say("cells %u %u", out[0], out[1]);
  SEE(cuStreamWaitValue32_v2(second, cells, 6, CU_STREAM_WAIT_VALUE_GEQ));
  SEE(cuStreamWriteValue64_v2(second, cells + 16, 0x123456789aULL, CU_STREAM_WRITE_VALUE_DEFAULT));
  SEE(cuStreamWriteValue32_v2(first, cells, 9, CU_STREAM_WRITE_VALUE_DEFAULT));
  SEE(cuStreamWaitValue64_v2(first, cells + 16, 0x1000000000ULL, CU_STREAM_WAIT_VALUE_AND));
  SEE(cuStreamSynchronize(first));
  SEE(cuStreamSynchronize(second));
  CHECK(cuMemcpyDtoH_v2(out, cells, sizeof out));
  say("64 bits: %x %x", out[4], out[5]);
  CUstreamBatchMemOpParams batch[3];
  memset(batch, 0, sizeof batch);
  batch[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  batch[0].writeValue.address = cells + 32;
  batch[0].writeValue.value = 1;
  batch[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  batch[1].waitValue.address = cells + 32;
  batch[1].waitValue.value = 1;
  batch[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  batch[2].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  batch[2].writeValue.address = cells + 36;
  batch[2].writeValue.value = 2;
  SEE(cuStreamBatchMemOp_v2(first, 3, batch, 0));
  int value = 1000;
  unsigned n = 2;
  CUdeviceptr target = cells + 40;
  void* parameters[] = {&target, &value, &n};
  launch(kernel(module, "fill"), 1, 32, first, parameters);
  SEE(cuStreamSynchronize(first));
  CHECK(cuMemcpyDtoH_v2(out, cells, sizeof out));
  say("batch: %u %u, then %u %u", out[8], out[9], out[10], out[11]);
  SEE(cuStreamWriteValue32_v2(first, 0, 1, 0));
  SEE(cuStreamWriteValue32_v2(first, cells + 1, 1, 0));
  SEE(cuStreamBatchMemOp_v2(first, 0, batch, 0));
}
