// SPDX-License-Identifier: Apache-2.0
// Loads and stores of every width and space, atomics, and the faults that bad accesses end in.
#include <algorithm>
#include <numeric>

#include "softgpu/ptx/tests/fixture.h"

using namespace millpond::softgpu::ptx;
using namespace millpond::softgpu::ptx::testing;

namespace {

/// Runs a body on 32 threads; %slot is the thread's 8 bytes of `out`.
std::vector<uint64_t> runBody(const std::string& body, uint64_t p1 = 0, uint64_t p2 = 0,
                              const std::string& moduleText = "", uint32_t blocks = 1, uint64_t fill = 0) {
  Device device(kernelAround("mul.wide.u32 %rd60, %tid0, 8;\nadd.u64 %slot, %out, %rd60;\n" + body, moduleText));
  Array<uint64_t> out(device.memory, 64, fill);
  device.run("k", {blocks, 1, 1}, {32, 1, 1}, Parameters(out, p1, p2));
  return {out.begin(), out.end()};
}

LaunchResult faultOf(const std::string& body, const std::string& moduleText = "", uint32_t blocks = 1,
                     uint32_t outBytes = 256) {
  Device device(kernelAround(body, moduleText));
  Array<std::byte> out(device.memory, outBytes);
  LaunchResult result = device.tryRun("k", {blocks, 1, 1}, {32, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0}));
  CHECK(result.status == LaunchResult::Status::kFault);
  CHECK(!result.message.empty());
  CHECK_EQ(result.fault.function, std::string("k"));
  return result;
}
void expectFault(Fault::Kind kind, const std::string& body, uint32_t thread, const std::string& moduleText = "") {
  LaunchResult result = faultOf(body, moduleText);
  CHECK_EQ(faultName(result.fault.kind), faultName(kind));
  CHECK_EQ(result.fault.thread.x, thread);
  CHECK(result.fault.line > 5);
}

constexpr uint64_t kPattern = 0x8182838485868788u;

}  // namespace

TEST("loads extend to the width of the register") {
  struct Case {
    const char* type;
    const char* reg;
    uint64_t expected;
  };
  const Case cases[] = {
      {"u8", "%rs1", 0x88},
      {"s8", "%rs1", 0xff88},
      {"b8", "%r1", 0x88},
      {"s8", "%r1", 0xffffff88},
      {"u8", "%rd1", 0x88},
      {"s8", "%rd1", 0xffffffffffffff88},
      {"u16", "%rs1", 0x8788},
      {"u16", "%r1", 0x8788},
      {"s16", "%r1", 0xffff8788},
      {"s16", "%rd1", 0xffffffffffff8788},
      {"u32", "%r1", 0x85868788},
      {"u32", "%rd1", 0x85868788},
      {"s32", "%rd1", 0xffffffff85868788},
      {"b64", "%rd1", kPattern},
      {"f32", "%f1", 0x85868788},
      {"f64", "%fd1", kPattern},
  };
  for (const Case& c : cases) {
    std::string reg = c.reg;
    std::string width = reg.substr(0, 3) == "%rs"                                ? "16"
                        : reg.substr(0, 3) == "%rd" || reg.substr(0, 3) == "%fd" ? "64"
                                                                                 : "32";
    for (const char* space : {".global", ""}) {
      std::vector<uint64_t> got =
          runBody("ld" + std::string(space) + "." + c.type + " " + reg +
                      ", [%slot];\nmov.u64 %rd5, 0;\nst.global.b64 [%slot], %rd5;\nst.global.b" + width + " [%slot], " +
                      reg + ";\n",
                  0, 0, "", 1, kPattern);
      for (size_t l = 0; l < 32; ++l) CHECK_EQ(got[l], c.expected);
    }
  }
}

TEST("stores write their width and nothing else") {
  const std::pair<const char*, uint64_t> kCases[] = {{"b8 [%slot+3], %rd1", 0x33000000},
                                                     {"b16 [%slot+2], %rd1", 0x22330000},
                                                     {"b32 [%slot+4], %rd1", 0x0011223300000000},
                                                     {"b64 [%slot], %rd1", 0x7700112233},
                                                     {"u8 [%slot], 200", 200}};
  for (const auto& [text, expected] : kCases) {
    std::vector<uint64_t> got = runBody(std::string("mov.u64 %rd1, 0x7700112233;\nst.global.") + text + ";\n");
    for (size_t l = 0; l < 32; ++l) CHECK_EQ(got[l], expected);
    CHECK_EQ(got[32], 0u);
  }
}

TEST("vectors in every space, contiguous and scattered") {
  const char* kArea = ".shared .align 16 .b8 area[1024];\n";
  const std::pair<const char*, const char*> kSpaces[] = {
      {".shared", "mov.u32 %r9, area;\nmad.lo.u32 %r9, %tid0, 16, %r9;\n"},
      {".shared", "mov.u32 %r9, area;\nsub.u32 %r8, 31, %tid0;\nmad.lo.u32 %r9, %r8, 16, %r9;\n"},
      {".local", ".local .align 16 .b8 mine[32];\nmov.u32 %r9, mine;\nadd.u32 %r9, %r9, 16;\n"}};
  for (const auto& [space, setup] : kSpaces) {
    std::string s = space;
    std::vector<uint64_t> got = runBody(std::string(setup) +
                                            "add.u32 %r1, %tid0, 100;\nadd.u32 %r2, %tid0, 200;\nadd.u32 "
                                            "%r3, %tid0, 300;\nadd.u32 %r4, %tid0, 400;\n"
                                            "st" +
                                            s + ".v4.u32 [%r9], {%r1, %r2, %r3, %r4};\nbar.sync 0;\nld" + s +
                                            ".v2.u64 {%rd1, %rd2}, [%r9];\n"
                                            "ld" +
                                            s +
                                            ".v4.u8 {%r5, _, %r6, %r7}, [%r9+8];\nadd.u64 %rd3, %rd1, "
                                            "%rd2;\ncvt.u64.u32 %rd4, %r5;\nadd.u64 %rd3, %rd3, %rd4;\n"
                                            "st.global.u64 [%slot], %rd3;\n",
                                        0, 0, kArea);
    for (uint64_t l = 0; l < 32; ++l)
      CHECK_EQ(got[l], ((l + 200) << 32) + l + 100 + ((l + 400) << 32) + l + 300 + ((l + 300) & 0xff));
  }
}

TEST("generic addresses and their spaces") {
  std::vector<uint64_t> got = runBody(
      ".local .align 8 .b8 mine[64];\n.shared .align 8 .b8 ours[512];\n"
      "mov.u64 %rd1, mine;\ncvta.local.u64 %rd2, %rd1;\nmov.u64 %rd3, ours;\ncvta.shared.u64 %rd4, %rd3;\n"
      "mul.wide.u32 %rd5, %tid0, 8;\nadd.u64 %rd6, %rd4, %rd5;\ncvt.u64.u32 %rd7, %tid0;\nst.u64 [%rd6], "
      "%rd7;\nst.u64 [%rd2+8], %rd7;\n"
      "ld.shared.u64 %rd8, [%rd3];\nld.local.u64 %rd9, [%rd1+8];\n"
      "isspacep.shared %p1, %rd6;\nisspacep.local %p2, %rd2;\nisspacep.global %p3, %slot;\nisspacep.shared "
      "%p4, %slot;\nisspacep.global %p5, %rd2;\n"
      "selp.b64 %rd10, 1, 0, %p1;\nselp.b64 %rd11, 2, 0, %p2;\nselp.b64 %rd12, 4, 0, %p3;\nselp.b64 %rd13, "
      "8, 0, %p4;\nselp.b64 %rd14, 16, 0, %p5;\n"
      "add.u64 %rd10, %rd10, %rd11;\nadd.u64 %rd10, %rd10, %rd12;\nadd.u64 %rd10, %rd10, %rd13;\nadd.u64 "
      "%rd10, %rd10, %rd14;\n"
      "cvta.to.shared.u64 %rd15, %rd6;\nld.shared.u64 %rd16, [%rd15];\nmad.lo.u64 %rd16, %rd16, 1000, "
      "%rd10;\nmad.lo.u64 %rd16, %rd9, 1000000, %rd16;\nst.global.u64 [%slot], %rd16;\n");
  for (uint64_t l = 0; l < 32; ++l) CHECK_EQ(got[l], l * 1000000 + l * 1000 + 7);
}

TEST("parameters by address and const memory") {
  std::vector<uint64_t> got = runBody(
      "mov.u64 %rd1, p1;\nld.param.u64 %rd2, [%rd1];\ncvta.param.u64 %rd3, %rd1;\nld.u64 %rd4, [%rd3+8];\n"
      "and.b32 %r1, %tid0, 3;\nmul.wide.u32 %rd5, %r1, 4;\nmov.u64 %rd6, table;\nadd.u64 %rd7, %rd6, "
      "%rd5;\nld.const.u32 %r2, [%rd7];\n"
      "ld.const.u32 %r3, [table+8];\ncvta.const.u64 %rd8, %rd7;\nld.u32 %r4, [%rd8];\nadd.u32 %r2, %r2, "
      "%r3;\nadd.u32 %r2, %r2, %r4;\n"
      "cvt.u64.u32 %rd9, %r2;\nadd.u64 %rd9, %rd9, %rd2;\nadd.u64 %rd9, %rd9, %rd4;\nst.global.u64 [%slot], "
      "%rd9;\n",
      1000, 20000, ".const .align 4 .u32 table[4] = {1, 20, 300, 4000};\n");
  const uint64_t table[4] = {1, 20, 300, 4000};
  for (uint64_t l = 0; l < 32; ++l) CHECK_EQ(got[l], 21000 + 2 * table[l % 4] + 300);
}

TEST("initial values: numbers, addresses of variables and functions, bytes of addresses") {
  Device device(kernelAround("",
                             ".global .u32 a[2][3] = {{1, 2}, {4}};\n.global .f32 f = 0f3FC00000;\n.global "
                             ".f64 g = -2.5;\n.global .b8 tail[10] = {1, 2};\n"
                             ".global .u64 p[2] = {a+4, generic(f)};\n.global .align 8 .b8 q[8] = {0xFF(f), "
                             "0xFF00(f), 0xFF0000(f), 0xFF000000(f), 0xFF00000000(f), "
                             "0xFF0000000000(f), 0xFF000000000000(f), 0xFF00000000000000(f)};\n.global .u16 "
                             "e = (1 << 4) + 3*2;\n.global .s32 m = -7;\n"));
  auto at = [&](const char* name) { return device.module().variable(name)->address; };
  const uint32_t* a = reinterpret_cast<uint32_t*>(at("a"));
  const uint32_t expected[6] = {1, 2, 0, 4, 0, 0};
  for (size_t i = 0; i < 6; ++i) CHECK_EQ(a[i], expected[i]);
  CHECK_EQ(*reinterpret_cast<float*>(at("f")), 1.5f);
  CHECK_EQ(*reinterpret_cast<double*>(at("g")), -2.5);
  CHECK_EQ(reinterpret_cast<uint64_t*>(at("p"))[0], at("a") + 4);
  CHECK_EQ(reinterpret_cast<uint64_t*>(at("p"))[1], at("f"));
  CHECK_EQ(*reinterpret_cast<uint64_t*>(at("q")), at("f"));
  CHECK_EQ(*reinterpret_cast<uint16_t*>(at("e")), 22);
  CHECK_EQ(*reinterpret_cast<int32_t*>(at("m")), -7);
  CHECK_EQ(reinterpret_cast<uint8_t*>(at("tail"))[1], 2);
  CHECK_EQ(reinterpret_cast<uint8_t*>(at("tail"))[2], 0);
}

TEST("atomics of every kind in global and shared memory, from many blocks") {
  struct Case {
    const char* op;
    const char* type;
    const char* operand;  // %r1 or %rd1 is the number of the thread in the grid
    uint64_t initial;
    uint64_t expected;
  };
  constexpr uint64_t kThreads = 64 * 32;
  uint64_t sum = kThreads * (kThreads - 1) / 2;
  const Case cases[] = {
      {"add", "u32", "%r1", 5, sum + 5},
      {"add", "s32", "%r1", 5, sum + 5},
      {"add", "u64", "%rd1", 1ull << 40, sum + (1ull << 40)},
      {"min", "u32", "%r1", 77, 0},
      {"max", "u32", "%r1", 77, kThreads - 1},
      {"min", "s32", "%r2", 5, 0xfffff801},
      {"max", "s32", "%r2", 0xfffff000, 0},
      {"min", "u64", "%rd1", 1ull << 50, 0},
      {"max", "s64", "%rd1", ~0ull, kThreads - 1},
      {"and", "b32", "%r3", 0xffffffff, 0xf0f0},
      {"or", "b32", "%r1", 0x8000, 0x8000 | (kThreads - 1)},
      {"xor", "b32", "%r1", 1, 1},
      {"or", "b64", "%rd1", 1ull << 60, 1ull << 60 | (kThreads - 1)},
      {"xor", "b64", "%rd1", 3, 3},
      {"inc", "u32", "1000", 0, kThreads % 1001},
      {"dec", "u32", "99", 7, (7 + 100 * 100 - kThreads) % 100},
      {"add", "f32", "0f3F800000", 0, 0x45000000},
      {"add", "f64", "0d4000000000000000", 0, 0x40B0000000000000},
  };
  for (const Case& c : cases) {
    std::string type = c.type;
    std::string width = type.substr(type.size() - 2);
    std::string setup =
        "mov.u32 %r4, %ctaid.x;\nmad.lo.u32 %r1, %r4, 32, %tid0;\nneg.s32 %r2, %r1;\nor.b32 %r3, %r1, "
        "0xf0f0;\nand.b32 %r3, %r3, 0xf0f0;\ncvt.u64.u32 %rd1, %r1;\n";
    std::string op = std::string(c.op) + "." + type;
    for (const std::string& form :
         {"red.global." + op + " [%out], ", "atom.global." + op + (width == "64" ? " %rd9" : " %r9") + ", [%out], ",
          "atom." + op + (width == "64" ? " %rd9" : " %r9") + ", [%out], "}) {
      std::vector<uint64_t> got = runBody(setup + form + c.operand + ";\n", 0, 0, "", 64, c.initial);
      CHECK_EQ(width == "64" ? got[0] : got[0] & 0xffffffff, c.expected);
    }
    // In shared memory: one block, the last thread stores the final contents.
    std::string reg = width == "64" ? "%rd8" : "%r8";
    std::string initial = "mov.b" + width + " " + reg + ", " + std::to_string(c.initial) + ";\n";
    std::vector<uint64_t> got =
        runBody(".shared .align 8 .b8 cell[8];\n" + setup + initial + "st.shared.b" + width + " [cell], " + reg +
                ";\nbar.sync 0;\natom.shared." + op + (width == "64" ? " %rd9" : " %r9") + ", [cell], " + c.operand +
                ";\nbar.sync 0;\nld.shared.b" + width + " " + reg + ", [cell];\nst.global.b" + width + " [%slot], " +
                reg + ";\n");
    std::vector<uint64_t> again =
        runBody(setup + "red.global." + op + " [%out], " + c.operand + ";\n", 0, 0, "", 1, c.initial);
    CHECK_EQ(got[5], width == "64" ? again[0] : again[0] & 0xffffffff);
  }
}

TEST("compare-and-swap and exchange hand every value on once") {
  // A sum by compare-and-swap, from 64 blocks.
  std::vector<uint64_t> got = runBody(
      "ld.volatile.global.u64 %rd1, [%out];\nAGAIN:\nadd.u64 %rd2, %rd1, 3;\natom.global.cas.b64 %rd3, "
      "[%out], %rd1, %rd2;\n"
      "setp.eq.u64 %p1, %rd3, %rd1;\nmov.u64 %rd1, %rd3;\n@!%p1 bra AGAIN;\n",
      0, 0, "", 64);
  CHECK_EQ(got[0], 3u * 64 * 32);
  // The values that the exchanges return are the inputs, except for the last one.
  got = runBody(
      "mov.u32 %r1, %ctaid.x;\nmad.lo.u32 %r1, %r1, 32, %tid0;\nadd.u32 %r1, %r1, 1;\natom.global.exch.b32 "
      "%r2, [%out], %r1;\ncvt.u64.u32 %rd1, %r2;\nred.global.add.u64 [%out+64], %rd1;\n",
      0, 0, "", 8);
  CHECK_EQ(got[8] + got[0], 256u * 257 / 2);
  got = runBody("mov.b16 %rs1, 0;\nmov.b16 %rs2, 9;\natom.global.cas.b16 %rs3, [%out], %rs1, %rs2;\n");
  CHECK_EQ(got[0], 9u);
}

TEST(
    "ordered accesses to vectors are whole, as programs hope that hand over a value with the word that says it is there") {
  struct Case {
    const char* type;
    const char* registers;
    const char* unequal;
    uint32_t stride;
  };
  const char* two = "setp.ne.u64 %p1, %rd2, %rd3;\n";
  const char* four =
      "setp.ne.u32 %p1, %r2, %r3;\nsetp.ne.or.u32 %p1, %r3, %r4, %p1;\nsetp.ne.or.u32 %p1, %r4, %r5, %p1;\n";
  const Case cases[] = {{"relaxed.gpu.global.v2.u64", "{%rd2, %rd3}", two, 0},
                        {"relaxed.gpu.global.v2.u64", "{%rd2, %rd3}", two, 16},
                        {"volatile.global.v4.u32", "{%r2, %r3, %r4, %r5}", four, 16},
                        {"volatile.global.v4.u32", "{%r2, %r3, %r4, %r5}", four, 48}};
  for (const Case& c : cases) {
    // Even blocks write equal words over and over; odd ones count the unequal ones that they see.
    Device device(kernelAround(
        "mov.u32 %r10, %ctaid.x;\nand.b32 %r11, %r10, 1;\nsetp.eq.u32 %p2, %r11, 0;\nmov.u32 %r12, 0;\n"
        "mul.wide.u32 %rd10, %tid0, " +
        std::to_string(c.stride) +
        ";\nadd.u64 %rd10, %out, %rd10;\n"
        "AGAIN:\nmad.lo.u32 %r2, %r12, 64, %r10;\nmov.u32 %r3, %r2;\nmov.u32 %r4, %r2;\nmov.u32 %r5, %r2;\n"
        "mov.b64 %rd2, {%r2, %r2};\nmov.u64 %rd3, %rd2;\n"
        "@%p2 st." +
        c.type + " [%rd10], " + c.registers + ";\n@!%p2 ld." + c.type + " " + c.registers + ", [%rd10];\n" + c.unequal +
        "@%p1 red.global.add.u64 [%in], 1;\nadd.u32 %r12, %r12, 1;\nsetp.lt.u32 %p3, %r12, 3000;\n"
        "@%p3 bra AGAIN;\n"));
    Array<uint64_t> out(device.memory, 256);
    Array<uint64_t> unequal(device.memory, 1);
    device.run("k", {8, 1, 1}, {32, 1, 1}, Parameters(out, unequal, uint64_t{0}));
    CHECK_EQ(*unequal.begin(), 0u);
  }
}

TEST("half-precision atomics") {
  std::vector<uint64_t> got = runBody(
      "mov.b32 %r1, 0x3C004000;\nred.global.add.noftz.f16x2 [%out], %r1;\nmov.b16 %rs1, "
      "0x3C00;\natom.global.add.noftz.f16 %rs2, [%out+8], %rs1;\n",
      0, 0, "", 2);
  CHECK_EQ(got[0], 0x54005800u);  // 64 and 128
  CHECK_EQ(got[1], 0x5400u);
}

TEST("accesses outside of device memory") {
  expectFault(Fault::Kind::kIllegalAddress,
              "mul.wide.u32 %rd1, %tid0, 12;\nadd.u64 %rd1, %out, %rd1;\nst.global.u32 [%rd1], %tid0;\n", 22);
  expectFault(Fault::Kind::kIllegalAddress,
              "mul.wide.u32 %rd1, %tid0, 4;\nadd.u64 %rd1, %out, %rd1;\nld.global.u32 %r1, [%rd1+132];\n", 31);
  expectFault(Fault::Kind::kIllegalAddress, "ld.global.u32 %r1, [%in];\n", 0);
  expectFault(Fault::Kind::kIllegalAddress, "ld.u32 %r1, [%in+8];\n", 0);
  expectFault(Fault::Kind::kIllegalAddress, "sub.u64 %rd1, %out, 8;\natom.add.u32 %r1, [%rd1], 1;\n", 0);
  expectFault(Fault::Kind::kIllegalAddress, "mov.u64 %rd1, 0x7f00000000000000;\nst.u8 [%rd1], %tid0;\n", 0);
  expectFault(Fault::Kind::kIllegalAddress,
              "setp.ne.u32 %p1, %tid0, 9;\n@%p1 bra L;\nst.global.u32 [%in], %tid0;\nL:\n", 9);
  expectFault(Fault::Kind::kIllegalAddress, "mov.u64 %rd1, table;\nst.u32 [%rd1], %tid0;\n", 0,
              ".const .u32 table = 5;\n");
  expectFault(Fault::Kind::kIllegalAddress, "mov.u64 %rd1, p0;\ncvta.param.u64 %rd2, %rd1;\nst.u32 [%rd2], %tid0;\n",
              0);
  LaunchResult result = faultOf("add.u64 %rd1, %out, 256;\nst.global.v2.u32 [%rd1], {%tid0, %tid0};\n", "", 3);
  CHECK(result.fault.isWrite);
  CHECK_EQ(result.fault.bytes, 8u);
  CHECK(result.message.find("illegal address in function 'k' at PTX line") != std::string::npos);
}

TEST("misaligned accesses") {
  expectFault(Fault::Kind::kMisalignedAddress, "ld.global.u32 %r1, [%out+2];\n", 0);
  expectFault(Fault::Kind::kMisalignedAddress,
              "cvt.u64.u32 %rd1, %tid0;\nshr.u64 %rd1, %rd1, 3;\nmul.lo.u64 %rd1, %rd1, 4;\nadd.u64 %rd1, "
              "%rd1, %out;\nst.global.u64 [%rd1], %out;\n",
              8);
  expectFault(Fault::Kind::kMisalignedAddress, "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%out+8];\n", 0);
  expectFault(Fault::Kind::kMisalignedAddress, "mov.u32 %r1, ours;\nst.shared.u16 [%r1+1], 3;\n", 0,
              ".shared .align 8 .b8 ours[16];\n");
  expectFault(Fault::Kind::kMisalignedAddress, "atom.global.add.u64 %rd1, [%out+4], 3;\n", 0);
}

TEST("accesses outside of shared, local and const memory") {
  const char* kShared = ".shared .align 4 .b8 ours[64];\n";
  expectFault(Fault::Kind::kSharedOutOfRange,
              "mov.u32 %r1, ours;\nmad.lo.u32 %r1, %tid0, 4, %r1;\nst.shared.u32 [%r1], %tid0;\n", 16, kShared);
  expectFault(Fault::Kind::kSharedOutOfRange, "mov.u32 %r1, ours;\nld.shared.u32 %r2, [%r1+-4];\n", 0, kShared);
  expectFault(Fault::Kind::kSharedOutOfRange,
              "mov.u64 %rd1, ours;\ncvta.shared.u64 %rd2, %rd1;\nld.u32 %r2, [%rd2+64];\n", 0, kShared);
  expectFault(Fault::Kind::kLocalOutOfRange,
              ".local .align 4 .b8 mine[32];\nmov.u32 %r1, mine;\nmad.lo.u32 %r1, %tid0, 4, "
              "%r1;\nst.local.u32 [%r1], %tid0;\n",
              8);
  expectFault(Fault::Kind::kLocalOutOfRange,
              ".local .align 4 .b8 mine[32];\nmov.u64 %rd1, mine;\ncvta.local.u64 %rd1, %rd1;\nst.u32 "
              "[%rd1+32], %tid0;\n",
              0);
  expectFault(Fault::Kind::kConstOutOfRange, "mov.u64 %rd1, table;\nld.const.u32 %r1, [%rd1+16];\n", 0,
              ".const .u32 table[4] = {1, 2, 3, 4};\n");
}

TEST("traps, bad indirect calls, bad barriers, endless recursion, deadlock") {
  expectFault(Fault::Kind::kTrap, "setp.eq.u32 %p1, %tid0, 13;\n@%p1 trap;\n", 13);
  expectFault(Fault::Kind::kIllegalInstruction,
              "mov.u64 %rd1, 0;\nproto: .callprototype _ ();\ncall %rd1, (), proto;\n", 0);
  expectFault(Fault::Kind::kIllegalInstruction,
              "mov.u64 %rd1, f;\nproto: .callprototype _ (.param .b32 _);\ncall %rd1, (%tid0), proto;\n", 0,
              ".func f() { ret; }\n");
  expectFault(Fault::Kind::kIllegalInstruction, "barrier.sync %tid0;\n", 0);
  expectFault(Fault::Kind::kIllegalInstruction, "bar.sync 16;\n", 0);
  expectFault(Fault::Kind::kIllegalInstruction, "bar.sync 1, 33;\n", 0);
  expectFault(Fault::Kind::kIllegalInstruction, "ts: .branchtargets A, B;\nbrx.idx %tid0, ts;\nA:\nB:\n", 2);
  expectFault(Fault::Kind::kDeadlock,
              "setp.lt.u32 %p1, %tid0, 16;\n@%p1 bra A;\nbar.sync 1, 64;\nbra B;\nA:\nbar.sync 2, 64;\nB:\n", 0);
  expectFault(Fault::Kind::kDeadlock, "bar.sync 1, 64;\n", 0);
  Device device(kernelAround("call f, ();\n", ".func f() { call f, (); ret; }\n"));
  Array<int> out(device.memory, 1);
  LaunchResult result = device.tryRun("k", {1, 1, 1}, {32, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0}));
  CHECK(result.status == LaunchResult::Status::kFault);
  CHECK_EQ(faultName(result.fault.kind), faultName(Fault::Kind::kStackOverflow));
  CHECK_EQ(result.fault.function, std::string("f"));
}

TEST("a fault ends the grid, and the next launch runs") {
  Device device(
      kernelAround("mov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p1, %r1, 500;\n@%p1 trap;\nred.global.add.u32 [%out], 1;\n"));
  Array<uint32_t> out(device.memory, 1);
  LaunchResult result = device.tryRun("k", {1000000, 1, 1}, {32, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0}));
  CHECK(result.status == LaunchResult::Status::kFault);
  CHECK_EQ(result.fault.block.x, 500u);
  CHECK(out[0] < 1000000u * 32);
  out[0] = 0;
  device.run("k", {100, 1, 1}, {32, 1, 1}, Parameters(out, uint64_t{0}, uint64_t{0}));
  CHECK_EQ(out[0], 3200u);
}

TEST("launches that cannot be made") {
  Device device(kernelAround("", "") +
                ".entry small(.param .u32 x) .maxntid 64, 1, 1 { ret; }\n.entry shaped() .reqntid 8, 4 { ret; }\n");
  auto expectInvalid = [&](const char* kernel, Dim3 grid, Dim3 block, const Parameters& parameters, uint32_t shared,
                           const char* text) {
    LaunchResult result = device.tryRun(kernel, grid, block, parameters, shared);
    CHECK(result.status == LaunchResult::Status::kInvalid);
    CHECK(result.message.find(text) != std::string::npos);
  };
  Parameters one(uint32_t{1});
  expectInvalid("small", {0, 1, 1}, {32, 1, 1}, one, 0, "a grid of (0, 1, 1)");
  expectInvalid("small", {1, 1, 1}, {0, 1, 1}, one, 0, "a block of (0, 1, 1)");
  expectInvalid("small", {1, 1, 1}, {1025, 1, 1}, one, 0, "1025");
  expectInvalid("small", {1, 1, 1}, {32, 1, 65}, one, 0, "65");
  expectInvalid("small", {1, 65536, 1}, {32, 1, 1}, one, 0, "65536");
  expectInvalid("small", {1, 1, 1}, {65, 1, 1}, one, 0, "exceeds the 64");
  expectInvalid("small", {1, 1, 1}, {32, 1, 1}, Parameters(), 0, "4 bytes of parameters");
  expectInvalid("small", {1, 1, 1}, {32, 1, 1}, one, 300000, "shared memory");
  expectInvalid("shaped", {1, 1, 1}, {4, 8, 1}, Parameters(), 0, "requires blocks of (8, 4, 1)");
  device.run("shaped", {1, 1, 1}, {8, 4, 1}, Parameters());
}

TEST("special registers") {
  Device device(kernelAround(
      "mov.u32 %r1, %laneid;\nmov.u32 %r2, %warpid;\nmov.u32 %r3, %lanemask_lt;\nmov.u32 %r4, "
      "%lanemask_ge;\nmov.u32 %r5, %nctaid.y;\nmov.u32 %r6, %ctaid.y;\n"
      "mov.u32 %r7, %tid.y;\nmov.u32 %r8, %ntid.z;\nmov.u32 %r9, %tid.z;\nmov.u32 %r10, %dynamic_smem_size;\n"
      "mov.u32 %r20, %ntid.x;\nmov.u32 %r21, %ntid.y;\nmad.lo.u32 %r22, %r9, %r21, %r7;\nmad.lo.u32 %r22, "
      "%r22, %r20, %tid0;\nmul.wide.u32 %rd1, %r22, 48;\nadd.u64 %rd2, %out, %rd1;\n"
      "mov.u32 %r23, %ctaid.y;\nsetp.ne.u32 %p1, %r23, 2;\n@%p1 ret;\n"
      "st.global.v4.u32 [%rd2], {%r1, %r2, %r3, %r4};\nst.global.v4.u32 [%rd2+16], {%r5, %r6, %r7, "
      "%r8};\nst.global.v2.u32 [%rd2+32], {%r9, %r10};\n"
      "mov.u64 %rd3, %clock64;\nmov.u64 %rd4, %globaltimer;\nmov.u64 %rd5, %clock64;\nsetp.ge.u64 %p2, %rd5, "
      "%rd3;\nsetp.gt.and.u64 %p2, %rd4, 1000000, %p2;\nselp.b32 %r11, WARP_SZ, 0, %p2;\nst.global.u32 "
      "[%rd2+40], %r11;\n"));
  Array<uint32_t> out(device.memory, 12 * 5 * 4 * 3 + 4);
  device.run("k", {1, 3, 1}, {5, 4, 3}, Parameters(out, uint64_t{0}, uint64_t{0}), 100);
  for (uint32_t t = 0; t < 60; ++t) {
    const uint32_t* got = &out[12 * t];
    uint32_t lane = t % 32;
    CHECK_EQ(got[0], lane);
    CHECK_EQ(got[1], t / 32);
    CHECK_EQ(got[2], (1u << lane) - 1);
    CHECK_EQ(got[3], ~((1u << lane) - 1));
    CHECK_EQ(got[4], 3u);
    CHECK_EQ(got[5], 2u);
    CHECK_EQ(got[6], t / 5 % 4);
    CHECK_EQ(got[7], 3u);
    CHECK_EQ(got[8], t / 20);
    CHECK_EQ(got[9], 100u);
    CHECK_EQ(got[10], 32u);
  }
}

TEST("a shuffle from a lane that takes no part is 0, as on a card") {
  // Each of 20 lanes adds up the numbers from its own on.
  std::string body =
      "add.u32 %r1, %tid0, 1;\nmov.u64 %rd1, 0;\nst.global.u64 [%slot], %rd1;\nsetp.ge.u32 %p1, %tid0, 20;\n@%p1 bra END;\n";
  for (const char* step : {"16", "8", "4", "2", "1"})
    body += std::string("shfl.sync.down.b32 %r2, %r1, ") + step + ", 31, 0xfffff;\nadd.u32 %r1, %r1, %r2;\n";
  const std::vector<uint64_t> got = runBody(body + "cvt.u64.u32 %rd1, %r1;\nst.global.u64 [%slot], %rd1;\nEND:\n");
  CHECK_EQ(got[0], uint64_t{210});
  // Beyond the end of the warp a lane gets its own value.
  CHECK_EQ(got[19], uint64_t{40});
}

TEST("indices and sizes of threads and blocks may be read as 16 bits, as in PTX 1") {
  const std::vector<uint64_t> got = runBody(
      ".reg .u16 %w<5>;\nmov.u16 %w1, %ctaid.x;\ncvt.u32.u16 %r1, %tid.x;\nmov.u16 %w3, %ntid.x;\nmov.b16 %w4, %nctaid.x;\n"
      "cvt.u32.u16 %r2, %w1;\ncvt.u32.u16 %r3, %w3;\ncvt.u32.u16 %r4, %w4;\nmad.lo.u32 %r1, %r1, 100, %r2;\n"
      "mad.lo.u32 %r1, %r3, 10000, %r1;\nmad.lo.u32 %r1, %r4, 1000000, %r1;\ncvt.u64.u32 %rd1, %r1;\n"
      "st.global.u64 [%slot], %rd1;\n");
  for (uint64_t i = 0; i < 32; ++i) CHECK_EQ(got[i], 1'000'000 + 320'000 + 100 * i);
}

TEST("an indirect call may say what it calls instead of how, before or behind it") {
  const std::string functions =
      ".func (.param .b32 out) one (.param .b32 in) { .reg .b32 %v; ld.param.u32 %v, [in]; add.u32 %v, %v, 1;\n"
      "st.param.b32 [out], %v; ret; }\n"
      ".func (.param .b32 out) two (.param .b32 in) { .reg .b32 %v; ld.param.u32 %v, [in]; add.u32 %v, %v, 2;\n"
      "st.param.b32 [out], %v; ret; }\n"
      ".func other () { ret; }\n";
  const std::string body =
      "mov.u64 %rd1, one;\nsetp.gt.u32 %p1, %tid0, 9;\n@%p1 mov.u64 %rd1, two;\n"
      "call (%r1), %rd1, (%tid0), callees;\ncallees: .calltargets one, two;\n"
      "cvt.u64.u32 %rd2, %r1;\nst.global.u64 [%slot], %rd2;";
  const std::vector<uint64_t> out = runBody(body, 0, 0, functions);
  for (size_t lane = 0; lane < 32; ++lane) CHECK_EQ(out[lane], lane + (lane > 9 ? 2 : 1));
  CHECK(!compile(kernelAround("callees: .calltargets one, other;", functions)));
  CHECK(!compile(kernelAround("callees: .calltargets nobody;", functions)));
}

TEST("registers of 128 bits are two of 64") {
  Device device(kernelAround(R"(
    .reg .b128 %q<3>, %other;
    ld.global.b128 %q0, [%in];
    mov.b128 {%rd1, %rd2}, %q0;
    mov.b128 %other, {%rd2, %rd1};
    mov.b128 %q1, %other;
    setp.eq.u32 %p1, %tid0, 7;
    @%p1 mov.b128 %q1, %q0;
    mad.wide.u32 %slot, %tid0, (8*2), %out;
    st.global.relaxed.gpu.b128 [%slot+(2*3-6)], %q1;
    mov.b128 {_, %rd3}, %q1;
    st.global.u64 [%out+2*(64*4)], %rd3;
  )"));
  const Array<uint64_t> in(device.memory, std::vector<uint64_t>{0x1111, 0x2222});
  Array<uint64_t> out(device.memory, 66);
  device.run("k", {1, 1, 1}, {32, 1, 1}, Parameters(out, in, uint64_t{0}));
  for (size_t lane = 0; lane < 32; ++lane) {
    CHECK_EQ(out[2 * lane], lane == 7 ? 0x1111u : 0x2222u);
    CHECK_EQ(out[2 * lane + 1], lane == 7 ? 0x2222u : 0x1111u);
  }
  CHECK_EQ(out[64], uint64_t{0x1111});
}
