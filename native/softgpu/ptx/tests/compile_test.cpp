// SPDX-License-Identifier: Apache-2.0
// Modules that are refused by the compiler, with their messages; and text that is not PTX at all.
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "softgpu/ptx/tests/fixture.h"

using namespace millpond::softgpu::ptx;
using namespace millpond::softgpu::ptx::testing;

namespace {

using Kind = CompileError::Kind;

void expectError(const std::string& text, Kind kind, const std::string& part, uint32_t line = 0) {
  Compiled compiled = compile(text);
  if (compiled) ::millpond::testing::fail(__FILE__, __LINE__, "compiled, but should be refused: " + part + "\n" + text);
  if (compiled.error.message.find(part) == std::string::npos) {
    ::millpond::testing::fail(__FILE__, __LINE__,
                              "the message is: " + compiled.error.message + "\n  it lacks: " + part);
  }
  CHECK(compiled.error.kind == kind);
  if (line) CHECK_EQ(compiled.error.line, line);
  if (compiled.error.line) CHECK(compiled.error.message.find("PTX line " + std::to_string(compiled.error.line)) == 0);
}
void expectBodyError(const std::string& body, Kind kind, const std::string& part) {
  expectError(kernelAround(body), kind, part);
}
void expectCompiles(const std::string& text) {
  Compiled compiled = compile(text);
  if (!compiled) ::millpond::testing::fail(__FILE__, __LINE__, compiled.error.message + "\n" + text);
}

const char* kHead = ".version 9.0\n.target sm_75\n.address_size 64\n";

}  // namespace

TEST("instructions of other architectures are refused by name") {
  const std::pair<const char*, const char*> kCases[] = {
      {"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, "
       "{%f1,%f2,%f3,%f4};",
       "mma.sync.aligned.m16n8k32"},
      {"cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, "
       "{%r2}], [%r3];",
       "cp.async.bulk.tensor"},
      {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 16;", "cp.reduce.async.bulk"},
      {"fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;", "fence.proxy.tensormap"},
      {"tex.2dms.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r1,%r2,%r3,%r3}];", "tex.2dms.v4"},
      {"wgmma.fence.sync.aligned;", "wgmma.fence"},
      {"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;", "tcgen05.alloc"},
      {"vset4.u32.u32.eq %r1, %r2.b0123, %r3.b4567, %r4;", "vset4.u32"},
      {"vshl.u32.u32.u32 %r1, %r2, %r3;", "vshl.u32.u32.u32"},
      {"cvt.pack.sat.u4.s32.b32 %r1, %r2, %r3, %r4;", "cvt.pack.sat.u4"},
      {"add.s33 %r1, %r2, %r3;", "add.s33"},
      {"add.wide.s32 %r1, %r2, %r3;", "add.wide.s32"},
      {"cvt.rm.tf32.f32 %r1, %f1;", "cvt.rm.tf32.f32"},
      {"atom.global.add.v2.f32 {%f1,%f2}, [%rd1], {%f3,%f4};", "atom.global.add.v2.f32"},
      {"redux.sync.add.f32 %f1, %f2, -1;", "redux.sync.add.f32"},
  };
  for (const auto& [text, part] : kCases) expectBodyError(text, Kind::kUnsupported, part);
  expectError(std::string(kHead) + "\n.entry k() {\n  ret;\n  foo.bar;\n}\n", Kind::kSyntax,
              "PTX line 7: there is no instruction 'foo.bar'", 7);
  expectError(".version 99.9\n.target sm_75\n.address_size 64\n", Kind::kVersion, "99.9");
  expectError(".version 7.0\n.target sm_999\n.address_size 64\n", Kind::kSyntax, "sm_999");
  expectError(".version 9.0\n.target sm_90a\n.address_size 64\n", Kind::kUnsupported, "sm_90a");
  expectError(".version 9.0\n.target sm_75\n.address_size 32\n", Kind::kUnsupported, "address size");
  expectError(std::string(kHead) + ".entry k() .explicitcluster .reqnctapercluster 2 { ret; }", Kind::kUnsupported,
              ".explicitcluster");
  expectError(std::string(kHead) + ".global .samplerref s;", Kind::kUnsupported, ".samplerref");
  expectError(std::string(kHead) + ".global .texref t[2];", Kind::kUnsupported, "an array of texture");
  expectError(std::string(kHead) + ".global .texref t = { width = 4 };", Kind::kUnsupported, "initial value");
  expectError(std::string(kHead) + ".alias a, b;", Kind::kUnsupported, ".alias");
}

TEST("operands that do not fit") {
  expectBodyError("add.s32 %r1, %r2;", Kind::kSyntax, "has 2 operands, not 3");
  expectBodyError("add.s32 %r1, %r2, %rd1;", Kind::kSyntax, "'%rd1' has 64 bits, not 32 bits");
  expectBodyError("add.s64 %r1, %rd2, %rd1;", Kind::kSyntax, "'%r1' has 32 bits, not 64 bits");
  expectBodyError("add.s32 %r1, %r2, -%r3;", Kind::kSyntax, "expected a register or a constant");
  expectBodyError("vmad.s32.s32.s32 %r1, -%r2, %r3, -%r4;", Kind::kSyntax, "cannot negate");
  expectBodyError(".reg .b128 %q;\nadd.u64 %rd1, %rd2, %q;", Kind::kSyntax, "'%q' has 128 bits");
  expectBodyError(".reg .b128 %q;\nld.global.u32 %q, [%rd1];", Kind::kSyntax, "'%q' has 128 bits");
  expectBodyError("mov.b128 %rd1, {%rd2, %rd3};", Kind::kSyntax, "expected a register of 128 bits");
  expectBodyError("add.s32 %r1, %r2, %nothing;", Kind::kSyntax, "'%nothing' is not declared");
  expectBodyError("add.s32 %r1, %r2, %r64;", Kind::kSyntax, "'%r64' is not declared");
  expectBodyError("add.s32 5, %r2, %r3;", Kind::kSyntax, "expected a register");
  expectBodyError("@%r1 add.s32 %r1, %r2, %r3;", Kind::kSyntax, "the guard '%r1' is not a predicate");
  expectBodyError("add.f32 %f1, %f2, 5;", Kind::kSyntax, "an integer where a floating-point");
  expectBodyError("add.s16 %rs1, %rs2, 0f3F800000;", Kind::kSyntax, "a floating-point number where an integer");
  expectBodyError("bra nowhere;", Kind::kSyntax, "'nowhere' is not declared");
  expectBodyError("bra %r1;", Kind::kSyntax, "'%r1' is not a label");
  expectBodyError("X: X:", Kind::kSyntax, "'X' is declared twice");
  expectBodyError("ld.param.u64 %rd1, [p2+8];", Kind::kSyntax, "outside 'p2'");
  expectBodyError("ld.param.u32 %r1, [p2+2];", Kind::kSyntax, "not aligned");
  expectBodyError("st.param.u32 [p2], %r1;", Kind::kSyntax, "cannot be written");
  expectBodyError("ld.global.u32 %r1, [%r2];", Kind::kSyntax, "32 bits is possible in shared");
  expectBodyError("ld.global.u64 %r1, [%rd2];", Kind::kSyntax, "too narrow");
  expectBodyError("ld.global.v2.u32 %r1, [%rd2];", Kind::kSyntax, "expected 2 registers");
  expectBodyError("ld.global.u32 %r1, %rd2;", Kind::kSyntax, "expected an address");
  expectBodyError("call nothing, ();", Kind::kSyntax, "'nothing' is not declared");
  expectBodyError("lop3.b32 %r1, %r2, %r3, %r4, 256;", Kind::kSyntax, "below 256");
  expectBodyError("mov.u32 %r1, %tid.q;", Kind::kSyntax, "'%tid.q' is not declared");
  expectBodyError("add.s32 %r1, %r2, !%r3;", Kind::kSyntax, "'!' needs a predicate");
}

TEST("text that is malformed") {
  expectError("", Kind::kNotPtx, "this is not PTX");
  expectError("#!/bin/sh\n", Kind::kSyntax, "unexpected character '#'", 1);
  expectError("hello", Kind::kNotPtx, "this is not PTX");
  expectError(
      "\x7f"
      "ELF\x02\x01",
      Kind::kSyntax, "unexpected character");
  expectError(".version 9.0\n", Kind::kSyntax, "'.target' is missing");
  expectError(".version nine\n.target sm_75\n", Kind::kSyntax, "malformed '.version'");
  expectError(std::string(kHead) + ".entry k(", Kind::kSyntax, "the end of the text");
  expectError(std::string(kHead) + ".entry k() { ret;", Kind::kSyntax, "expected '}'");
  expectError(std::string(kHead) + ".entry k() { add.s32 %r1, %r2 %r3; }", Kind::kSyntax, "expected ';'");
  expectError(std::string(kHead) + "/* no end", Kind::kSyntax, "comment without an end");
  expectError(std::string(kHead) + ".global .u32 x = 99999999999999999999;", Kind::kSyntax, "does not fit in 64 bits");
  expectError(std::string(kHead) + ".global .u32 x = 0f12;", Kind::kSyntax, "8 hexadecimal digits");
  expectError(std::string(kHead) + ".global .u32 x[2] = {1,2,3};", Kind::kSyntax, "more initial values");
  expectError(std::string(kHead) + ".global .u32 x; .global .u32 x;", Kind::kSyntax, "declared twice");
  expectError(std::string(kHead) + ".global .u32 x[1099511627777];", Kind::kSyntax, "too large");
  expectError(std::string(kHead) + ".global .u32 x[99999999][99999999][99999999];", Kind::kSyntax, "too large");
  expectError(std::string(kHead) + ".global .align 3 .u32 x;", Kind::kSyntax, "power of two");
  expectError(std::string(kHead) + ".entry k(.param .pred p) { ret; }", Kind::kSyntax, "a predicate cannot be");
  expectError(std::string(kHead) + ".entry k() { .param .pred p; ret; }", Kind::kSyntax, "a predicate cannot be");
  expectError(std::string(kHead) + ".entry k(.reg .pred p) { ret; }", Kind::kSyntax, "parameters are in .param");
  expectCompiles(std::string(kHead) + ".func f(.reg .pred p) { ret; } .entry k() { ret; }");
  expectError(std::string(kHead) + ".entry k() { .reg .b32 %r<99999999999>; ret; }", Kind::kSyntax,
              "too many registers");
  expectError(std::string(kHead) + ".func f(.param .b32 a); .func f(.param .b64 a) { ret; }", Kind::kSyntax,
              "other parameters");
  expectError(std::string(kHead) + ".func f() { ret; } .func f() { ret; }", Kind::kSyntax, "defined twice");
  expectError(std::string(kHead) + ".global .u64 p = nothing;", Kind::kSyntax, "'nothing' is not declared");
  expectError(std::string(kHead) + ".func f(.param .b32 a) { ret; } .entry k() { call f, (); ret; }", Kind::kSyntax,
              "passes 0 parameters");
  std::string deep = std::string(kHead) + ".global .u32 x = ";
  for (int i = 0; i < 100000; ++i) deep += "(";
  expectError(deep, Kind::kSyntax, "nested too deeply");
  std::string operands = std::string(kHead) + ".entry k() { add.s32 ";
  for (int i = 0; i < 100000; ++i) operands += "{";
  expectError(operands, Kind::kSyntax, "nested too deeply");
  std::string scopes = std::string(kHead) + ".entry k() ";
  for (int i = 0; i < 100000; ++i) scopes += "{";
  expectError(scopes, Kind::kSyntax, "nested too deeply");
}

TEST("what nothing defines, and what there is no room for") {
  expectError(std::string(kHead) + ".extern .func f(); .entry k() { call f, (); ret; }", Kind::kUnresolved,
              "'f' is called, but nothing defines it");
  expectError(std::string(kHead) + ".extern .global .u32 x; .entry k() { .reg .b64 %rd; mov.u64 %rd, x; ret; }",
              Kind::kUnresolved, "'x' is declared .extern");
  expectCompiles(std::string(kHead) + ".extern .func f(); .extern .global .u32 x; .entry k() { ret; }");
  // As declared by nvcc for a kernel that launches another one.
  const std::string launch =
      ".extern .func (.param .b32 r) __cudaCDP2LaunchDeviceV2(.param .b64 a, .param .b64 b);\n.entry k() {\n";
  expectError(std::string(kHead) + launch +
                  "  .reg .b64 %rd; .param .b64 a; .param .b64 b; .param .b32 r;\n"
                  "  call.uni (r), __cudaCDP2LaunchDeviceV2, (a, b);\n  ret;\n}\n",
              Kind::kUnsupported, "dynamic parallelism, here a call of '__cudaCDP2LaunchDeviceV2', is not supported");
  expectError(std::string(kHead) +
                  ".shared .b8 a[40000]; .shared .b8 b[10000]; .entry k() { .reg .b32 %r; mov.u32 %r, a; "
                  "mov.u32 %r, b; ret; }",
              Kind::kMemory, "shared memory");
  expectError(std::string(kHead) + ".const .b8 a[40000]; .const .b8 b[30000];", Kind::kMemory, "const variables");
  expectError(std::string(kHead) + ".entry k(.param .b8 x[40000]) { ret; }", Kind::kMemory, "parameters");
  expectError(std::string(kHead) + ".entry k() { .local .b8 x[1000000]; ret; }", Kind::kMemory, "local memory");
  // Kernels that do not share variables may use the same place.
  Compiled compiled = compile(std::string(kHead) +
                              ".shared .b8 a[40000]; .shared .b8 b[30000]; .shared .align 4 .b8 "
                              "c[400];\n.entry k() { .reg .b32 %r; mov.u32 %r, a; mov.u32 %r, c; ret; }\n"
                              ".entry l() { .reg .b32 %r; mov.u32 %r, b; call f, (); ret; } .func f() { .reg "
                              ".b32 %r; mov.u32 %r, c; ret; }");
  CHECK(static_cast<bool>(compiled));
  CHECK_EQ(compiled.program->kernels()[0].staticSharedBytes, 40400u);
  CHECK_EQ(compiled.program->kernels()[1].staticSharedBytes, 40400u);
}

TEST("forms that compilers and people write") {
  expectCompiles(std::string(kHead) +
                 "// comment\n/* another\n one */\n.file 1 \"x.cu\"\n.section .debug_str { .b8 1, 2\n info: "
                 ".b8 3 }\n.pragma \"nounroll\";\n"
                 ".visible .entry k(.param .u64 .ptr .global .align 8 a, .param .align 4 .b8 s[12]) .maxntid "
                 "128, 1, 1 .minnctapersm 2\n{\n.loc 1 3 5\n"
                 ".reg .pred %p<2>; .reg .b32 a1, a2;\n{ .reg .b32 t; mov.u32 t, 0x10U; add.u32 a1, t, "
                 "0b101; add.u32 a1, a1, 017; }\n"
                 ".loc 1 4 1, function_name $L__info, inlined_at 1 3 5\nsetp.eq.or.s32 %p0|%p1, a1, -3, "
                 "!%p1;\n@!%p0 bra $L_end;\nmov.b32 a2, 0f3F800000;\n$L_end:\nret;\n}\n");
  // The same label in separate scopes, as in inline assembly.
  expectCompiles(kernelAround("{ L: bra M; M: }\n{ L: bra M; M: }\n"));
  expectCompiles(
      std::string(".version 6.4\n.target sm_70, debug\n.address_size 64\n.weak .func (.reg .u32 r) f(.reg "
                  ".u32 x, .reg .u64 y) { add.u32 r, x, 1; ret; }\n"
                  ".entry k() { .reg .u32 a; .reg .u64 b; mov.u64 b, 3; call.uni (a), f, (5, b); @%p bra "
                  "END; END: ret; .reg .pred %p; }\n"));
}

TEST("values passed to functions in registers, numbers and memory") {
  Device device(
      kernelAround("mul.wide.u32 %rd60, %tid0, 8;\nadd.u64 %slot, %out, %rd60;\nsetp.gt.u32 %p1, %tid0, "
                   "20;\nmov.u32 %r1, 7;\n@%p1 call (%r1), f, (%tid0, 1000);\n"
                   "cvt.u64.u32 %rd1, %r1;\nst.global.u64 [%slot], %rd1;\n",
                   ".func (.reg .u32 r) f(.reg .u32 x, .reg .u64 y) { .reg .u32 t; cvt.u32.u64 t, y; "
                   "mad.lo.u32 r, x, 3, t; ret; }\n"));
  Array<uint64_t> out(device.memory, 32);
  device.run("k", {1, 1, 1}, {32, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0}));
  for (uint64_t i = 0; i < 32; ++i) CHECK_EQ(out[i], i > 20 ? 3 * i + 1000 : 7);
}

TEST("damaged text never does harm") {
  std::string text = readKernelFile("basic.ptx");
  std::mt19937 random(99);
  size_t compiledCount = 0;
  for (int round = 0; round < 400; ++round) {
    std::string damaged = text.substr(0, 6000 + random() % 3000);
    size_t edits = 1 + random() % 3;
    for (size_t i = 0; i < edits; ++i) {
      size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0: damaged[at] = static_cast<char>(random() % 256); break;
        case 1: damaged.erase(at, random() % 40); break;
        case 2: damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 40)); break;
        default: damaged[at] = "{}[]();,.%0-x"[random() % 13];
      }
    }
    Compiled compiled = compile(damaged);
    compiledCount += static_cast<bool>(compiled);
    if (!compiled) CHECK(!compiled.error.message.empty());
  }
  CHECK(compiledCount < 400);
}

TEST("damaged programs that compile run without harm to the host") {
  std::string text = readKernelFile("divergence.ptx");
  // The first kernels of the file, whole.
  size_t end = text.find("spin_lock");
  text = text.substr(0, text.rfind("}", end) + 1);
  std::mt19937 random(7);
  std::atomic<bool> cancel{false};
  std::atomic<int> round{0};
  std::atomic<bool> isOver{false};
  // Loops that a mutation made endless end after this thread has checked the same round twice.
  std::thread watch([&] {
    for (int seen = -1; !isOver; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      if (round == seen) cancel = true;
      seen = round;
    }
  });
  // On this thread only: a mutated program may race with itself, which is not the engine's fault.
  Executor alone(1);
  size_t launches = 0;
  for (; round < 150; ++round) {
    std::string damaged = text;
    for (int i = 0; i < 3; ++i) {
      // Another register, number or label, or a line removed or repeated: most of the results still compile.
      const char* kBefore[] = {"%r", "%rd", "%p", ", ", "BB0_", "BB1_", "BB3_", "\n\t", "\n\t"};
      size_t kind = random() % std::size(kBefore);
      size_t at = damaged.find(kBefore[kind], damaged.find("entry") + random() % damaged.size());
      if (at == std::string::npos) continue;
      at += std::strlen(kBefore[kind]);
      if (kind < 7) {
        size_t stop = damaged.find_first_not_of("-0123456789", at);
        if (stop == at || stop == std::string::npos) continue;
        damaged.replace(at, stop - at,
                        std::to_string(kind == 3 ? static_cast<int>(random() >> random() % 31)
                                                 : static_cast<int>(random() % 12 + 1)));
      } else {
        size_t stop = damaged.find('\n', at);
        if (stop == std::string::npos) continue;
        if (kind == 7)
          damaged.erase(at, stop - at);
        else
          damaged.insert(stop + 1, damaged.substr(at, stop + 1 - at));
      }
    }
    Compiled compiled = compile(damaged);
    if (!compiled) continue;
    TestMemory memory;
    auto module = Module::create(compiled.program, memory);
    CHECK(static_cast<bool>(module));
    Array<int> in(memory, 512, 3);
    Array<int> out(memory, 4096);
    Parameters parameters(in, out);
    for (const Kernel& kernel : (*module)->kernels()) {
      if (kernel.info().parameterBytes > 16) continue;
      Launch launch;
      launch.grid = {2, 1, 1};
      launch.block = {64, 1, 1};
      launch.parameters = parameters.bytes();
      launch.memory = &memory;
      launch.cancel = &cancel;
      cancel = false;
      LaunchResult result = alone.run(kernel, launch);
      CHECK(result.status != LaunchResult::Status::kInvalid);
      ++launches;
    }
  }
  isOver = true;
  watch.join();
  CHECK(launches > 100);
}
