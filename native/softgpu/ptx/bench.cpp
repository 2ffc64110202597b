// SPDX-License-Identifier: Apache-2.0
// How fast the engine executes: simple instructions, memory, divergence, a matrix product, a launch. Prints
// medians.
//
//   ptx_bench [THREADS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "softgpu/ptx/tests/fixture.h"

using namespace millpond::softgpu::ptx;
using namespace millpond::softgpu::ptx::testing;

namespace {

constexpr int kRounds = 5;

double medianSeconds(const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int i = 0; i < kRounds; ++i) {
    auto start = std::chrono::steady_clock::now();
    body();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRounds / 2];
}

/// A kernel `k` whose threads repeat `body` p1 times; thread t of the grid owns the 4 bytes at %slot.
std::string loopAround(const std::string& body) {
  return kernelAround(
      "ld.param.u32 %r0, [p1];\nmov.u32 %r1, 0;\nmov.u32 %r2, %tid0;\nmov.f32 %f1, 0f3F800000;\nmov.f32 %f2, "
      "0f3F7FFFFF;\n"
      "mov.u32 %r20, %ctaid.x;\nmov.u32 %r21, %ntid.x;\nmad.lo.s32 %r22, %r20, %r21, %tid0;\nmul.wide.u32 "
      "%rd1, %r22, 4;\n"
      "add.u64 %slot, %out, %rd1;\nshl.b32 %r23, %tid0, 2;\n"
      "LOOP:\n" +
          body +
          "add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, %r0;\n@%p1 bra LOOP;\n"
          "cvt.rzi.u32.f32 %r3, %f1;\nadd.u32 %r2, %r2, %r3;\nst.global.u32 [%slot], %r2;\n",
      ".shared .align 4 .b8 area[4096];\n");
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

struct Bench {
  Executor& pool;
  uint32_t threads;

  /// `body` holds `count` instructions, the loop adds three.
  void instructions(const char* name, const std::string& body, int count, uint32_t rounds = 2000) {
    Device device(loopAround(body));
    constexpr uint32_t kBlocks = 16;
    constexpr uint32_t kThreads = 256;
    Array<uint32_t> out(device.memory, kBlocks * kThreads);
    Parameters parameters(out, uint64_t{rounds}, uint64_t{0});
    double seconds = medianSeconds([&] { launch(device, "k", {kBlocks, 1, 1}, {kThreads, 1, 1}, parameters); });
    double total = double{kBlocks} * kThreads * rounds * (count + 3);
    std::printf("%-28s %9.0f M lane instructions/s and thread\n", name, total / seconds / threads / 1e6);
  }

  void launch(Device& device, const char* kernel, Dim3 grid, Dim3 block, const Parameters& parameters) {
    Launch request;
    request.grid = grid;
    request.block = block;
    request.parameters = parameters.bytes();
    request.memory = &device.memory;
    LaunchResult result = pool.run(*device.module().kernel(kernel), request);
    if (!result) {
      std::fprintf(stderr, "%s: %s\n", kernel, result.message.c_str());
      std::exit(1);
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  uint32_t threads = argc > 1 ? static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 10)) : 1;
  if (threads == 0) threads = 1;
  Executor pool(threads);
  Bench bench{pool, threads};
  std::printf("%u thread(s)\n", threads);
  bench.instructions(
      "add, xor, shift",
      repeated("add.s32 %r2, %r2, %r1;\nxor.b32 %r2, %r2, %r23;\nshl.b32 %r4, %r2, 3;\nsub.s32 %r2, %r4, %r2;\n", 16),
      64);
  bench.instructions("fma.rn.f32", repeated("fma.rn.f32 %f1, %f1, %f2, %f2;\nfma.rn.f32 %f3, %f1, %f2, %f1;\n", 32),
                     64);
  bench.instructions(
      "mad.lo.s32, setp, selp",
      repeated("mad.lo.s32 %r5, %r2, %r23, %r1;\nsetp.lt.s32 %p2, %r5, %r2;\nselp.b32 %r2, %r5, %r2, %p2;\n", 20), 60);
  bench.instructions("ex2, lg2, sin",
                     repeated("ex2.approx.f32 %f4, %f2;\nlg2.approx.f32 %f5, %f4;\nsin.approx.f32 %f6, %f5;\n", 4), 12,
                     500);
  bench.instructions("ld.shared, contiguous",
                     "mov.u32 %r6, area;\nadd.u32 %r6, %r6, %r23;\n" + repeated("ld.shared.u32 %r7, [%r6];\n", 30), 32);
  bench.instructions("ld.shared, scattered",
                     "mov.u32 %r6, area;\nmul.lo.u32 %r7, %tid0, 20;\nadd.u32 %r6, %r6, %r7;\n" +
                         repeated("and.b32 %r6, %r6, 4092;\nld.shared.u32 %r7, [%r6];\n", 14),
                     31);
  bench.instructions("ld.global, contiguous", repeated("ld.global.u32 %r7, [%slot];\n", 32), 32);
  bench.instructions("divergent if and else",
                     repeated("and.b32 %r8, %tid0, 1;\nsetp.eq.u32 %p3, %r8, 0;\n", 1) +
                         "@%p3 bra EVEN;\nadd.s32 %r2, %r2, 3;\nbra.uni MEET;\nEVEN:\nsub.s32 %r2, %r2, 1;\nMEET:\n",
                     6);
  {
    Device device(readKernelFile("basic.ptx"));
    constexpr int kSize = 512;
    Array<float> a(device.memory, kSize * kSize, 0.5f);
    Array<float> b(device.memory, kSize * kSize, 0.25f);
    Array<float> c(device.memory, kSize * kSize);
    Parameters parameters(a, b, c, kSize);
    double small = medianSeconds([&] { bench.launch(device, "matrix_product", {32, 32, 1}, {16, 16, 1}, parameters); });
    double large = medianSeconds([&] {
      bench.launch(device, "matrix_product32", {16, 16, 1}, {32, 32, 1}, parameters);
    });
    std::printf("%-28s %9.3f s (tiles of 16), %.3f s (tiles of 32)\n", "512 x 512 matrix product", small, large);
    Parameters one(a, b, c, 1);
    double launch = medianSeconds([&] {
      for (int i = 0; i < 1000; ++i) bench.launch(device, "vector_add", {1, 1, 1}, {32, 1, 1}, one);
    });
    double wide = medianSeconds([&] {
      for (int i = 0; i < 100; ++i) bench.launch(device, "vector_add", {1024, 1, 1}, {256, 1, 1}, one);
    });
    std::printf("%-28s %9.2f us (one block), %.2f us (1024 blocks of 256 threads that do nothing)\n", "launch",
                launch * 1e3, wide * 1e4);
    double compileSeconds = medianSeconds([&] { compileOrFail(readKernelFile("basic.ptx")); });
    std::printf("%-28s %9.2f ms (1283 lines of PTX)\n", "compile", compileSeconds * 1e3);
  }
  return 0;
}
