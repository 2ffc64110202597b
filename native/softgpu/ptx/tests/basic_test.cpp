// SPDX-License-Identifier: Apache-2.0
// Ordinary kernels against the same computation on the CPU.
#include <cmath>
#include <numeric>
#include <random>

#include "softgpu/ptx/tests/fixture.h"

using namespace millpond::softgpu::ptx;
using namespace millpond::softgpu::ptx::testing;

namespace {

Device& basic() {
  static Device device(readKernelFile("basic.ptx"));
  return device;
}

/// Numbers whose products and sums are exact, so that contraction by a compiler does not matter.
std::vector<float> randomFloats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> out(count);
  for (float& x : out) x = static_cast<float>(random() % 257) / 64.0f - 2.0f;
  return out;
}

void checkProduct(const char* kernel, uint32_t tile, int n) {
  Device& device = basic();
  size_t count = static_cast<size_t>(n) * static_cast<size_t>(n);
  Array<float> a(device.memory, randomFloats(count, 1));
  Array<float> b(device.memory, randomFloats(count, 2));
  Array<float> c(device.memory, count, -1.0f);
  uint32_t blocks = (static_cast<uint32_t>(n) + tile - 1) / tile;
  device.run(kernel, {blocks, blocks, 1}, {tile, tile, 1}, Parameters(a, b, c, n));
  for (size_t row = 0; row < static_cast<size_t>(n); ++row) {
    for (size_t column = 0; column < static_cast<size_t>(n); ++column) {
      float sum = 0;
      for (size_t k = 0; k < static_cast<size_t>(n); ++k) {
        sum += a[row * static_cast<size_t>(n) + k] * b[k * static_cast<size_t>(n) + column];
      }
      CHECK_EQ(c[row * static_cast<size_t>(n) + column], sum);
    }
  }
}

struct Pair {
  double a;
  short b[3];
};

}  // namespace

TEST("vector addition, with a last block that is not full") {
  Device& device = basic();
  constexpr int kCount = 1000;
  Array<float> a(device.memory, randomFloats(kCount, 3));
  Array<float> b(device.memory, randomFloats(kCount, 4));
  Array<float> c(device.memory, kCount, 7.0f);
  device.run("vector_add", {8, 1, 1}, {128, 1, 1}, Parameters(a, b, c, kCount - 5));
  for (size_t i = 0; i < kCount - 5; ++i) CHECK_EQ(c[i], a[i] + b[i]);
  for (size_t i = kCount - 5; i < kCount; ++i) CHECK_EQ(c[i], 7.0f);
}

TEST("tiled matrix product") {
  checkProduct("matrix_product", 16, 64);
  checkProduct("matrix_product", 16, 37);
  checkProduct("matrix_product32", 32, 70);
}

TEST("reduction with shuffles and atomics") {
  Device& device = basic();
  std::mt19937 random(5);
  std::vector<int> values(10007);
  for (int& v : values) v = static_cast<int>(random() % 2000) - 1000;
  Array<int> in(device.memory, values);
  Array<int> out(device.memory, 1);
  device.run("reduce_sum", {7, 1, 1}, {256, 1, 1}, Parameters(in, out, static_cast<int>(values.size())));
  CHECK_EQ(out[0], std::accumulate(values.begin(), values.end(), 0));
}

TEST("scan in dynamic shared memory") {
  Device& device = basic();
  constexpr int kCount = 300;
  std::vector<int> values(kCount);
  std::iota(values.begin(), values.end(), -20);
  Array<int> in(device.memory, values);
  Array<int> out(device.memory, kCount);
  device.run("block_scan", {3, 1, 1}, {128, 1, 1}, Parameters(in, out, kCount), 128 * sizeof(int));
  int sum = 0;
  for (size_t i = 0; i < kCount; ++i) {
    sum = i % 128 == 0 ? values[i] : sum + values[i];
    CHECK_EQ(out[i], sum);
  }
}

TEST("histogram in shared and global memory") {
  Device& device = basic();
  std::mt19937 random(6);
  std::vector<unsigned char> data(20000);
  std::vector<unsigned> expected(256);
  for (unsigned char& d : data) {
    d = static_cast<unsigned char>(random() % 200);
    ++expected[d];
  }
  Array<unsigned char> in(device.memory, data);
  Array<unsigned> bins(device.memory, 256);
  device.run("histogram", {9, 1, 1}, {192, 1, 1}, Parameters(in, static_cast<unsigned>(data.size()), bins));
  for (size_t b = 0; b < 256; ++b) CHECK_EQ(bins[b], expected[b]);
}

TEST("Mandelbrot in float and double") {
  Device& device = basic();
  constexpr int kWidth = 70;
  constexpr int kHeight = 40;
  constexpr int kLimit = 300;
  Array<int> single(device.memory, kWidth * kHeight, -1);
  Array<int> twofold(device.memory, kWidth * kHeight, -1);
  Dim3 grid{5, 5, 1};
  Dim3 block{16, 8, 1};
  device.run("mandelbrot_float", grid, block, Parameters(single, kWidth, kHeight, -2.0f, -1.0f, 0.04f, kLimit));
  device.run("mandelbrot_double", grid, block, Parameters(twofold, kWidth, kHeight, -2.0, -1.0, 0.04, kLimit));
  auto iterate = [](auto cx, auto cy) {
    using T = decltype(cx);
    T x = 0;
    T y = 0;
    int n = 0;
    // The compiler of the kernel contracts the products as written here.
    while (n < kLimit && std::fma(x, x, y * y) <= T(4)) {
      T next = std::fma(x, x, -(y * y)) + cx;
      y = std::fma(x + x, y, cy);
      x = next;
      ++n;
    }
    return n;
  };
  int different = 0;
  for (int py = 0; py < kHeight; ++py) {
    for (int px = 0; px < kWidth; ++px) {
      size_t at = static_cast<size_t>(py * kWidth + px);
      // Contraction differs with the compiler's version; chaotic points may then take another number of
      // steps.
      different += single[at] != iterate(std::fma(static_cast<float>(px), 0.04f, -2.0f),
                                         std::fma(static_cast<float>(py), 0.04f, -1.0f));
      different += twofold[at] != iterate(std::fma(px, 0.04, -2.0), std::fma(py, 0.04, -1.0));
    }
  }
  CHECK(different < kWidth * kHeight / 50);
}

TEST("vector loads") {
  Device& device = basic();
  constexpr int kRows = 13;
  constexpr int kColumns4 = 9;
  Array<float> in(device.memory, randomFloats(kRows * kColumns4 * 4, 7));
  Array<float> out(device.memory, kRows * kColumns4 * 4);
  device.run("transpose", {2, 2, 1}, {8, 8, 1}, Parameters(in, out, kRows, kColumns4));
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t c = 0; c < kColumns4 * 4; ++c) CHECK_EQ(out[c * kRows + r], in[r * kColumns4 * 4 + c]);
  }
}

TEST("variables: const tables, pointers to other variables, state between launches") {
  Device device(readKernelFile("basic.ptx"));
  Array<int> out(device.memory, 32);
  const int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
  for (int launch = 0; launch < 3; ++launch) {
    device.run("variables", {1, 1, 1}, {32, 1, 1}, Parameters(out));
    for (int i = 0; i < 32; ++i) CHECK_EQ(out[static_cast<size_t>(i)], table[(i * 5) & 7] * 100 + 40 + 2 * launch);
  }
  std::optional<Symbol> counter = device.module().variable("deviceCounter");
  CHECK(counter.has_value());
  CHECK_EQ(counter->bytes, 4u);
  CHECK_EQ(*reinterpret_cast<int*>(counter->address), 46);
  CHECK(!device.module().variable("nothing").has_value());
}

TEST("generic pointers into global, shared and local memory") {
  Device& device = basic();
  Array<int> global(device.memory, std::vector<int>{5, 6, 7, 8, 9, 10, 11, 12});
  Array<int> out(device.memory, 32);
  device.run("generic_pointers", {1, 1, 1}, {32, 1, 1}, Parameters(global, out));
  for (int i = 0; i < 32; ++i) {
    int expected = i % 3 == 0 ? 68 : i % 3 == 1 ? 140 : 8 * i + 28;
    CHECK_EQ(out[static_cast<size_t>(i)], expected);
  }
}

TEST("calls: structures, recursion, function pointers") {
  Device& device = basic();
  Array<int> out(device.memory, 4 * 32);
  Pair pair{10.25, {7, 8, 9}};
  device.run("calls", {1, 1, 1}, {32, 1, 1}, Parameters(pair, out));
  auto fibonacci = [](int n) {
    int a = 0;
    int b = 1;
    for (; n > 0; --n) b = std::exchange(a, b) + b;
    return a;
  };
  for (int i = 0; i < 32; ++i) {
    const int* got = &out[static_cast<size_t>(4 * i)];
    double ra = pair.b[i % 3] + 0.5;
    CHECK_EQ(got[0], static_cast<int>(ra * 2) + pair.b[2] + static_cast<short>(pair.a + i) + pair.b[0]);
    CHECK_EQ(got[1], i & 1 ? fibonacci(i % 11) : -1);
    CHECK_EQ(got[2], (i >> 1) & 1 ? i * i : 2 * i);
    CHECK_EQ(got[3], i);
  }
}

TEST("what is known of kernels") {
  std::shared_ptr<const Program> program = compileOrFail(readKernelFile("basic.ptx"));
  CHECK_EQ(program->ptxVersion(), 90u);
  CHECK_EQ(program->target(), 75u);
  bool isFound = false;
  for (const KernelInfo& kernel : program->kernels()) {
    // It calls through pointers, but only to functions whose address is taken.
    if (kernel.name == "calls") CHECK_EQ(kernel.staticSharedBytes, 0u);
    if (kernel.name != "matrix_product") continue;
    isFound = true;
    CHECK_EQ(kernel.parameters.size(), size_t{4});
    CHECK_EQ(kernel.parameters[3].offset, 24u);
    CHECK_EQ(kernel.parameters[3].bytes, 4u);
    CHECK_EQ(kernel.parameterBytes, 28u);
    CHECK_EQ(kernel.staticSharedBytes, 2048u);
    CHECK_EQ(kernel.constBytes, 32u);
    CHECK(kernel.registers > 4 && kernel.registers < 64);
    CHECK(!kernel.usesDynamicShared);
  }
  CHECK(isFound);
}

TEST("modules give their memory back") {
  TestMemory memory;
  {
    auto module = Module::create(compileOrFail(readKernelFile("basic.ptx")), memory);
    CHECK(static_cast<bool>(module));
    CHECK(memory.count() > 0);
  }
  CHECK_EQ(memory.count(), size_t{0});
}
