// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/tests/instruction.h"

namespace millpond::softgpu::ptx::testing {

void runInstruction(const InstructionCase& test) {
  constexpr const char* kNames[] = {"%a", "%b", "%c", "%e"};
  constexpr uint64_t kUntouched = 0x0123456789abcdefu;
  size_t count = test.inputs.size();
  auto bits = [](size_t bytes) { return std::to_string(bytes * 8); };
  auto reg = [&](size_t bytes) { return bits(bytes == 1 ? 2 : bytes); };
  std::string body =
      ".reg .b" + reg(test.resultBytes) + " %d;\n.reg .b32 %mode;\nld.param.u32 %mode, [p2];\n";
  for (size_t k = 0; k < test.sourceBytes.size(); ++k)
    body += ".reg .b" + reg(test.sourceBytes[k]) + " " + kNames[k] + ";\n";
  body +=
      "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmad.lo.s32 %r3, %r1, %r2, %tid0;\n"
      "setp.ge.u32 %p1, %r3, " +
      std::to_string(count) +
      ";\n@%p1 ret;\n"
      "mul.wide.u32 %rd1, %r3, 8;\nadd.u64 %out, %out, %rd1;\nadd.u64 %in, %in, %rd1;\n";
  for (size_t k = 0; k < test.sourceBytes.size(); ++k) {
    body += "ld.global.b" + bits(test.sourceBytes[k]) + " " + kNames[k] + ", [%in+" +
            std::to_string(8 * count * k) + "];\n";
  }
  body += "ld.global.b" + bits(test.resultBytes) +
          " %d, [%out];\n"
          "setp.ne.u32 %p3, %mode, 0;\n@%p3 bra SOME;\n" +
          test.text +
          "\nbra.uni DONE;\nSOME:\n"
          "rem.u32 %r4, %r3, 3;\nsetp.eq.u32 %p2, %r4, 1;\n@%p2 bra DONE;\n" +
          test.text + "\nDONE:\nst.global.b" + bits(test.resultBytes) + " [%out], %d;\n";
  Device device(kernelAround(body));
  Array<uint64_t> in(device.memory, std::max<size_t>(test.sourceBytes.size() * count, 1));
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < test.sourceBytes.size(); ++k) in[count * k + i] = test.inputs[i][k];
  }
  for (uint64_t mode = 0; mode < 2; ++mode) {
    Array<uint64_t> out(device.memory, count, kUntouched);
    device.run("k", {(static_cast<uint32_t>(count) + 63) / 64, 1, 1}, {64, 1, 1}, Parameters(out, in, mode));
    for (size_t i = 0; i < count; ++i) {
      bool isSkipped = mode == 1 && i % 3 == 1;
      if (isSkipped ? out[i] == kUntouched : test.isGood(out[i], test.inputs[i])) continue;
      ::millpond::testing::fail(
          __FILE__, __LINE__,
          test.text + (isSkipped ? " changed an inactive lane" : "") + test.describe(out[i], test.inputs[i]));
    }
  }
}

}  // namespace millpond::softgpu::ptx::testing
