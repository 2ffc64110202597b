// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void vote(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  unsigned* to = out + threadIdx.x * 8;
  const unsigned mask = 0xffffffff;
  to[0] = __ballot_sync(mask, lane % 3 == 1);
  to[1] = static_cast<unsigned>(__all_sync(mask, lane < 40) != 0) * 2 + static_cast<unsigned>(__all_sync(mask, lane > 3) != 0);
  to[2] = static_cast<unsigned>(__any_sync(mask, lane == 31) != 0) * 2 + static_cast<unsigned>(__any_sync(mask, lane > 31) != 0);
  to[3] = __match_any_sync(mask, lane / 5);
  int same = 0;
  to[4] = __match_all_sync(mask, lane / 32, &same) + static_cast<unsigned>(same != 0);
  to[5] = __match_all_sync(mask, lane / 16, &same) + static_cast<unsigned>(same != 0);
  to[6] = __match_any_sync(mask, static_cast<unsigned long long>(lane % 4) << 40);
  to[7] = __ballot_sync(mask, (lane & 5) != 0);
}

static __global__ void masks(unsigned* out) {
  unsigned eq, lt, le, gt, ge, lane;
  asm("mov.u32 %0, %%lanemask_eq;" : "=r"(eq));
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lt));
  asm("mov.u32 %0, %%lanemask_le;" : "=r"(le));
  asm("mov.u32 %0, %%lanemask_gt;" : "=r"(gt));
  asm("mov.u32 %0, %%lanemask_ge;" : "=r"(ge));
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  unsigned* to = out + threadIdx.x * 6;
  to[0] = eq, to[1] = lt, to[2] = le, to[3] = gt, to[4] = ge, to[5] = lane;
}

static __global__ void parts(unsigned* out) {
  const unsigned lane = threadIdx.x;
  out[lane] = 0;
  if (lane % 2 == 0) out[lane] = __ballot_sync(0x55555555, lane % 4 == 0);
  else out[lane] = __ballot_sync(0xaaaaaaaa, lane % 4 == 3);
  __syncwarp();
  if (lane < 8) out[32 + lane] = static_cast<unsigned>(__all_sync(0xff, lane < 8)) + __ballot_sync(0xff, lane > 5);
}

PROGRAM("votes", "votes, matches and lane masks, in whole warps and parts of them") {
  conformance::Device<unsigned> out(64 * 8);
  vote<<<1, 64>>>(out);
  const std::vector<unsigned> values = out.take();
  for (const size_t thread : {0u, 1u, 7u, 31u, 32u, 50u, 63u}) {
    const auto from = values.begin() + static_cast<long>(thread * 8);
    conformance::list("votes", std::vector<unsigned>(from, from + 8));
  }
  conformance::Device<unsigned> mask(32 * 6);
  masks<<<1, 32>>>(mask);
  say("lane masks: digest %016llx", static_cast<unsigned long long>(conformance::digest(mask.take().data(), 32 * 24)));
  conformance::Device<unsigned> part(40);
  parts<<<1, 32>>>(part);
  conformance::list("parts", part.take());
}
