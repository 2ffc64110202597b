// SPDX-License-Identifier: Apache-2.0
#include "testing/model/kernels.h"

namespace millpond::model {
namespace {

constexpr char kHeader[] = ".version 6.4\n.target sm_70\n.address_size 64\n";

/// To: %p1, from: %p2, words: %r5, value: %r6.
constexpr char kBody[] = R"(
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %q, %r4, %r5;
  @%q bra END;
  mul.wide.u32 %p3, %r4, 4;
  add.u64 %p1, %p1, %p3;
  add.u64 %p2, %p2, %p3;
  ld.u32 %r7, [%p1];
  ld.u32 %r8, [%p2];
  mad.lo.u32 %r7, %r7, 3, %r8;
  add.u32 %r7, %r7, %r6;
  st.u32 [%p1], %r7;
END:
  ret;
}
)";

std::string entry(const std::string& name, const std::string& parameters, const std::string& loads) {
  return ".visible .entry " + name + "(" + parameters +
         ") {\n  .reg .u32 %r<10>;\n  .reg .u64 %p<6>;\n  .reg .u16 %h;\n  .reg .pred %q;\n" + loads + kBody;
}

/// A number of `bytes` bytes of `packed`: unaligned numbers are not loaded as a whole.
std::string unpack(const std::string& into, const std::string& part, size_t offset, size_t bytes) {
  const std::string bits = std::to_string(bytes * 8);
  std::string text = "  mov.u" + bits + " " + into + ", 0;\n";
  for (size_t i = 0; i < bytes; ++i) {
    text += "  ld.param.u8 %h, [packed+" + std::to_string(offset + i) + "];\n";
    text += "  cvt.u" + bits + ".u16 " + part + ", %h;\n";
    text += "  shl.b" + bits + " " + part + ", " + part + ", " + std::to_string(8 * i) + ";\n";
    text += "  or.b" + bits + " " + into + ", " + into + ", " + part + ";\n";
  }
  return text;
}

}  // namespace

std::string kernels() {
  const std::string plain = R"(
  ld.param.u64 %p1, [to];
  ld.param.u64 %p2, [from];
  ld.param.u32 %r5, [words];
  ld.param.u32 %r6, [value];
)";
  const std::string table = R"(
  ld.param.u64 %p4, [table];
  ld.param.u32 %r9, [to];
  mul.wide.u32 %p5, %r9, 8;
  add.u64 %p5, %p4, %p5;
  ld.u64 %p1, [%p5];
  ld.param.u32 %r9, [from];
  mul.wide.u32 %p5, %r9, 8;
  add.u64 %p5, %p4, %p5;
  ld.u64 %p2, [%p5];
  ld.param.u32 %r5, [words];
  ld.param.u32 %r6, [value];
)";
  const std::string packed = unpack("%p1", "%p4", Packed::kTo, 8) + unpack("%p2", "%p4", Packed::kFrom, 8) +
                             unpack("%r5", "%r9", Packed::kWords, 4) + unpack("%r6", "%r9", Packed::kValue, 4);
  return kHeader + entry("mix", ".param .u64 to, .param .u64 from, .param .u32 words, .param .u32 value", plain) +
         entry("mixTable", ".param .u64 table, .param .u32 to, .param .u32 from, .param .u32 words, .param .u32 value",
               table) +
         entry("mixPacked", ".param .align 1 .b8 packed[27]", packed);
}

}  // namespace millpond::model
