// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static __global__ void instructions(unsigned long long* out) {
  unsigned a = 0xdeadbeef, b = 0x12345678, r, carry;
  unsigned long long w;
  int n = 0;
  asm("add.cc.u32 %0, %2, %3;\n\taddc.u32 %1, 0, 0;" : "=r"(r), "=r"(carry) : "r"(a), "r"(0x30000000u));
  out[n++] = (static_cast<unsigned long long>(carry) << 32) | r;
  asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(w) : "r"(a), "r"(b), "l"(77ull));
  out[n++] = w;
  asm("bfe.u32 %0, %1, 8, 12;" : "=r"(r) : "r"(a));
  out[n++] = r;
  asm("bfi.b32 %0, %1, %2, 4, 8;" : "=r"(r) : "r"(b), "r"(a));
  out[n++] = r;
  asm("lop3.b32 %0, %1, %2, %3, 0xe8;" : "=r"(r) : "r"(a), "r"(b), "r"(0xff00ff00u));
  out[n++] = r;
  asm("prmt.b32 %0, %1, %2, 0x7531;" : "=r"(r) : "r"(a), "r"(b));
  out[n++] = r;
  asm("shf.l.wrap.b32 %0, %1, %2, 9;" : "=r"(r) : "r"(a), "r"(b));
  out[n++] = r;
  asm("{ .reg .pred p; setp.gt.s32 p, %1, %2; selp.u32 %0, 111, 222, p; }" : "=r"(r) : "r"(a), "r"(b));
  out[n++] = r;
  asm("vadd.s32.u32.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  out[n++] = r;
  asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(b));
  out[n++] = r;
  asm("fns.b32 %0, %1, 0, 3;" : "=r"(r) : "r"(b));
  out[n++] = r;
  asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; mov.b32 %0, {hi, lo}; }" : "=r"(r) : "r"(a));
  out[n++] = r;
  float f;
  asm("ex2.approx.f32 %0, %1;" : "=f"(f) : "f"(3.0f));
  out[n++] = __float_as_uint(f);
  asm("cvt.rni.sat.u8.f32 %0, %1;" : "=r"(r) : "f"(300.7f));
  out[n++] = r;
  asm("{ .reg .pred p; .reg .u32 i; mov.u32 i, 0; mov.u32 %0, 1;\n"
      "loop: mul.lo.u32 %0, %0, 3; add.u32 i, i, 1; setp.lt.u32 p, i, 5; @p bra loop; }" : "=r"(r));
  out[n++] = r;
  unsigned x, y, z;
  asm volatile("mov.u32 %0, %%ntid.x; mov.u32 %1, %%ctaid.y; mov.u32 %2, %%nctaid.z;" : "=r"(x), "=r"(y), "=r"(z));
  out[n++] = x * 10000 + y * 100 + z;
}

PROGRAM("inline-ptx", "instructions that the language has no name for") {
  conformance::Device<unsigned long long> out(16);
  out.clear();
  instructions<<<1, 1>>>(out);
  int i = 0;
  for (unsigned long long value : out.take()) say("%d: %llx", i++, value);
}
