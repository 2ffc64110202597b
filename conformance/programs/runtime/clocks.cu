// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void clocks(int* out) {
  const long long start = clock64();
  const clock_t shortStart = clock();
  unsigned long long timerStart, timerEnd;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timerStart));
  __nanosleep(1000);
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timerEnd));
  out[0] = clock64() > start;
  out[1] = static_cast<int>(static_cast<unsigned>(clock()) - static_cast<unsigned>(shortStart)) != 0;
  out[2] = timerEnd >= timerStart;
}

static __global__ void registers(unsigned* out, unsigned multiprocessors) {
  unsigned smid, nsmid, warpid, nwarpid, grid, lane;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
  asm volatile("mov.u32 %0, %%nsmid;" : "=r"(nsmid));
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(warpid));
  asm volatile("mov.u32 %0, %%nwarpid;" : "=r"(nwarpid));
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(grid));
  if (threadIdx.x != 37 || blockIdx.x != 2) return;
  out[0] = smid < nsmid, out[1] = nsmid >= multiprocessors, out[2] = warpid < nwarpid, out[3] = lane, out[4] = grid;
  out[5] = warpSize;
}

PROGRAM("clocks", "clocks that go forward, and the special registers") {
  conformance::Device<int> out(3);
  clocks<<<1, 1>>>(out);
  conformance::list("clocks", out.take());
  conformance::Device<unsigned> seen(6);
  registers<<<5, 64>>>(seen, static_cast<unsigned>(conformance::attribute(cudaDevAttrMultiProcessorCount)));
  conformance::list("registers", seen.take());
}
