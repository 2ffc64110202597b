// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies and the barriers in shared memory that programs wait for them at.
#include "softgpu/ptx/tests/fixture.h"

namespace millpond::softgpu::ptx::testing {
namespace {

std::string kernelOf(const std::string& body) {
  return ".version 9.0\n.target sm_90\n.address_size 64\n"
         ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u32 p2)\n{\n"
         ".reg .b64 %rd<16>;\n.reg .b32 %r<32>;\n.reg .pred %p<8>;\n.shared .align 16 .b8 tile[4096];\n"
         ".shared .align 8 .b64 bar;\nld.param.u64 %rd0, [p0];\nld.param.u64 %rd1, [p1];\nld.param.u32 %r0, [p2];\n"
         "mov.u32 %r1, %tid.x;\nmov.u32 %r2, tile;\nmov.u32 %r3, bar;\n" +
         body + "ret;\n}\n";
}

/// tile[thread] = in[thread], 16 bytes each; out[thread] = what arrived.
std::string copyOf(const std::string& operands) {
  return kernelOf(
      "shl.b32 %r4, %r1, 4;\nadd.u32 %r5, %r2, %r4;\ncvt.u64.u32 %rd2, %r4;\nadd.u64 %rd3, %rd0, %rd2;\n"
      "add.u64 %rd4, %rd1, %rd2;\nst.shared.v4.b32 [%r5], {-1, -1, -1, -1};\nsetp.lt.u32 %p1, %r1, 3;\n"
      "cp.async.cg.shared.global [%r5], [%rd3], " +
      operands +
      ";\ncp.async.commit_group;\ncp.async.wait_group 0;\n"
      "ld.shared.v4.b32 {%r6, %r7, %r8, %r9}, [%r5];\nst.global.v4.b32 [%rd4], {%r6, %r7, %r8, %r9};\n");
}

TEST("asynchronous copies fill with zeros what they do not read") {
  for (const uint32_t read : {16u, 8u, 5u, 0u}) {
    Device device(copyOf("16, %r0"));
    Array<uint8_t> in(device.memory, 32 * 16, uint8_t{7});
    Array<uint8_t> out(device.memory, 32 * 16);
    device.run("k", {1, 1, 1}, {32, 1, 1}, Parameters(in, out, read));
    for (size_t i = 0; i < out.size(); ++i) CHECK_EQ(int{out[i]}, i % 16 < read ? 7 : 0);
  }
  // The first three threads read nothing: their sources need not exist.
  Device device(copyOf("16, %p1"));
  Array<uint8_t> in(device.memory, 32 * 16, uint8_t{7});
  Array<uint8_t> out(device.memory, 32 * 16);
  device.run("k", {1, 1, 1}, {32, 1, 1}, Parameters(in, out, uint32_t{0}));
  for (size_t i = 0; i < out.size(); ++i) CHECK_EQ(int{out[i]}, i < 3 * 16 ? 0 : 7);
}

TEST("an asynchronous copy from where there is no memory is a fault, unless it reads nothing") {
  Device device(copyOf("16, %r0"));
  Array<uint8_t> out(device.memory, 16);
  const LaunchResult failed = device.tryRun("k", {1, 1, 1}, {1, 1, 1}, Parameters(uint64_t{4096}, out, uint32_t{16}));
  CHECK(failed.status == LaunchResult::Status::kFault);
  CHECK(failed.fault.kind == FaultKind::kIllegalAddress);
  device.run("k", {1, 1, 1}, {1, 1, 1}, Parameters(uint64_t{4096}, out, uint32_t{0}));
  CHECK_EQ(int{out[0]}, 0);
}

/// Each thread writes to the tile, arrives, waits, and reads what its neighbour wrote, several times.
TEST("threads of several warps meet at a barrier in shared memory, phase by phase") {
  const std::string start =
      "mov.u32 %r4, %ntid.x;\nsetp.ne.u32 %p1, %r1, 0;\n@!%p1 mbarrier.init.shared.b64 [%r3], %r4;\nbar.sync 0;\n"
      "mov.u32 %r10, 0;\nmov.u32 %r11, 0;\nshl.b32 %r5, %r1, 2;\nadd.u32 %r6, %r2, %r5;\nadd.u32 %r7, %r1, 1;\n"
      "rem.u32 %r7, %r7, %r4;\nshl.b32 %r7, %r7, 2;\nadd.u32 %r7, %r2, %r7;\n$round:\nmad.lo.u32 %r8, %r1, 10, %r10;\n"
      "st.shared.b32 [%r6], %r8;\n";
  const std::string end =
      "ld.shared.b32 %r9, [%r7];\nadd.u32 %r11, %r11, %r9;\nbar.sync 0;\nadd.u32 %r10, %r10, 1;\nsetp.lt.u32 %p2, %r10, 5;\n"
      "@%p2 bra $round;\ncvt.u64.u32 %rd3, %r5;\nadd.u64 %rd3, %rd1, %rd3;\nst.global.b32 [%rd3], %r11;\n";
  const std::string waits[] = {
      "mbarrier.arrive.shared.b64 %rd2, [%r3];\n$wait:\nmbarrier.test_wait.shared.b64 %p3, [%r3], %rd2;\n@!%p3 bra $wait;\n",
      "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r3];\nand.b32 %r12, %r10, 1;\n$wait:\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r3], %r12;\n@!%p3 bra $wait;\n",
      "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n",
  };
  for (const std::string& wait : waits) {
    Device device(kernelOf(start + wait + end));
    Array<uint32_t> out(device.memory, 100);
    device.run("k", {1, 1, 1}, {100, 1, 1}, Parameters(out, out, uint32_t{0}));
    for (uint32_t t = 0; t < 100; ++t) CHECK_EQ(out[t], (t + 1) % 100 * 50 + 10);
  }
}

TEST("a bulk copy ends the phase of the barrier that expects its bytes") {
  const std::string text =
      "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $others;\nmbarrier.init.shared::cta.b64 [%r3], 1;\n"
      "fence.mbarrier_init.release.cluster;\n"
      "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd2, [%r3], %r0;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 %p4, [%r3], 0;\nselp.b32 %r9, 1, 0, %p4;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], %r0, [%r3];\n"
      "st.global.b32 [%rd1], %r9;\n$others:\nbar.sync 0;\n$wait:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0;\n@!%p3 bra $wait;\nbar.sync 0;\n@%p1 bra $done;\n"
      "add.u64 %rd4, %rd1, 16;\nfence.proxy.async.shared::cta;\ncp.async.bulk.global.shared::cta.bulk_group [%rd4], [%r2], %r0;\n"
      "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\n$done:\n";
  Device device(kernelOf(text));
  Array<uint32_t> in(device.memory, 1024);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = i * 3;
  Array<uint32_t> out(device.memory, 1028, 99u);
  device.run("k", {1, 1, 1}, {64, 1, 1}, Parameters(in, out, uint32_t{4000}));
  CHECK_EQ(out[0], 0u);
  for (uint32_t i = 0; i < 1000; ++i) CHECK_EQ(out[4 + i], i * 3);
  CHECK_EQ(out[4 + 1000], 99u);
}

TEST("more threads than a barrier in memory expects are a fault") {
  Device device(
      kernelOf("setp.ne.u32 %p1, %r1, 0;\n@!%p1 mbarrier.init.shared.b64 [%r3], 3;\nbar.sync 0;\n"
               "mbarrier.arrive.shared.b64 _, [%r3], 2;\n"));
  Array<uint32_t> out(device.memory, 1);
  const LaunchResult failed = device.tryRun("k", {1, 1, 1}, {2, 1, 1}, Parameters(out, out, uint32_t{0}));
  CHECK(failed.status == LaunchResult::Status::kFault);
  CHECK(failed.fault.kind == FaultKind::kIllegalInstruction);
}

TEST("each block is a cluster of its own") {
  Device device(
      kernelOf("mov.u32 %r4, %cluster_ctarank;\nmov.u32 %r5, %cluster_nctarank;\nmov.u32 %r6, %clusterid.x;\n"
               "mapa.shared::cluster.u32 %r7, %r2, 0;\nsetp.eq.u32 %p1, %r7, %r2;\nselp.b32 %r7, 1, 0, %p1;\n"
               "mul.wide.u32 %rd2, %r6, 16;\nadd.u64 %rd2, %rd1, %rd2;\n"
               "st.global.v4.b32 [%rd2], {%r4, %r5, %r6, %r7};\n"));
  Array<uint32_t> out(device.memory, 8);
  device.run("k", {2, 1, 1}, {1, 1, 1}, Parameters(out, out, uint32_t{0}));
  const uint32_t expected[] = {0, 1, 0, 1, 0, 1, 1, 1};
  for (size_t i = 0; i < 8; ++i) CHECK_EQ(out[i], expected[i]);
}

}  // namespace
}  // namespace millpond::softgpu::ptx::testing
