// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "conformance.h"

static constexpr int kResults = 18;

/// One instruction on three words.
#define RUN(instruction) asm(instruction : "=r"(*out++) : "r"(a), "r"(b), "r"(c))

static __global__ void run(const uint32_t* words, int count, uint32_t* results) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= count) return;
  const uint32_t a = words[i], b = words[(i + 1) % count], c = words[(i + 3) % count];
  uint32_t* out = results + i * kResults;
  // Only combinations that ptxas compiles as the PTX ISA specifies: if more than one of saturation, a partial result and
  // unsigned sums are combined, it does something else.
  RUN("vadd.s32.u32.s32.sat %0, %1.b0, %2.h1;");
  RUN("vadd.u32.u32.u32.add %0, %1.b3, %2.b2, %3;");
  RUN("vsub.s32.s32.s32 %0.b1, %1.h0, %2, %3;");
  RUN("vsub.u32.u32.u32.sat %0, %1, %2;");
  RUN("vabsdiff.u32.u32.u32.add %0, %1, %2, %3;");
  RUN("vabsdiff.u32.s32.s32.max %0, %1, %2, %3;");
  RUN("vmin.s32.u32.s32 %0.b1, %1.h0, %2.h1, %3;");
  RUN("vmax.u32.u32.u32.min %0, %1, %2.b1, %3;");
  RUN("vshl.u32.u32.u32.clamp %0, %1, %2;");
  RUN("vshr.u32.s32.u32.wrap.add %0, %1.b1, %2, %3;");
  RUN("vmad.s32.s32.u32.sat.shr7 %0, %1.h1, %2.h0, %3;");
  RUN("vmad.s32.s32.s32.po.shr15 %0, %1.h1, %2.h0, %3;");
  RUN("vset.s32.u32.ge.add %0, %1, %2.h0, %3;");
  RUN("vset4.u32.u32.lt %0, %1, %2, %3;");
  RUN("vset2.s32.s32.gt.add %0, %1, %2, %3;");
  RUN("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;");
  RUN("cvt.pack.sat.u16.s32 %0, %1, %2;");
  RUN("{ .reg .pred p, q; setp.ne.b32 q, %3, 0; lop3.and.b32 _|p, %1, %2, 0, 0xc0, q; selp.b32 %0, 1, 0, p; }");
}

PROGRAM("video-instructions", "arithmetic on one byte or half of words, packing with saturation, lop3 with a predicate") {
  const std::vector<uint32_t> words = {0, 1, 0x80000000, 0x7fffffff, 0xffffffff, 0x12345678, 0x80ff017f, 33, 0xfffffff0, 300};
  const conformance::Device<uint32_t> in(words);
  const conformance::Device<uint32_t> out(words.size() * kResults);
  run<<<1, 32>>>(in, static_cast<int>(words.size()), out);
  CHECK(cudaGetLastError());
  const std::vector<uint32_t> results = out.take();
  for (size_t i = 0; i < words.size(); ++i) {
    const auto first = results.begin() + static_cast<ptrdiff_t>(i * kResults);
    conformance::list(std::to_string(i).c_str(), std::vector<uint32_t>(first, first + kResults));
  }
}
