// SPDX-License-Identifier: Apache-2.0
// Products of matrices against sums on the CPU. Factors are small integers: every sum is exact.
#include <functional>

#include "softgpu/ptx/tests/fixture.h"

namespace millpond::softgpu::ptx::testing {
namespace {

/// An element in its memory format.
struct Format {
  std::string name;
  uint32_t bits;
  std::function<uint64_t(int)> encode;
};

uint64_t bitsOfSingle(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
/// Integers up to 2048 are exact in halves.
uint64_t bitsOfHalf(int value) {
  if (value == 0) return 0;
  const uint64_t sign = value < 0 ? 0x8000 : 0;
  const uint64_t single = bitsOfSingle(static_cast<float>(value < 0 ? -value : value));
  return sign | ((single >> 23) - 112) << 10 | (single >> 13 & 0x3ff);
}
uint64_t bitsOfDouble(int value) {
  const double number = value;
  uint64_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
}

const Format kHalf{"f16", 16, bitsOfHalf};
const Format kBfloat{"bf16", 16, [](int v) { return bitsOfSingle(static_cast<float>(v)) >> 16; }};
const Format kTf32{"tf32", 32, [](int v) { return bitsOfSingle(static_cast<float>(v)); }};
const Format kSingle{"f32", 32, [](int v) { return bitsOfSingle(static_cast<float>(v)); }};
const Format kDouble{"f64", 64, bitsOfDouble};
const Format kSigned32{"s32", 32, [](int v) { return static_cast<uint32_t>(v); }};
const Format kSigned8{"s8", 8, [](int v) { return static_cast<uint8_t>(v); }};
const Format kUnsigned8{"u8", 8, [](int v) { return static_cast<uint8_t>(v); }};

/// A matrix in memory, by rows or by columns.
class Matrix {
 public:
  Matrix(Device& device, const Format& format, uint32_t rows, uint32_t columns, bool isByRows)
      : format_(format),
        columns_(columns),
        rows_(rows),
        isByRows_(isByRows),
        bytes_(device.memory, size_t{rows} * columns * format.bits / 8) {}
  uint64_t address() const { return bytes_.address(); }
  void set(uint32_t row, uint32_t column, int value) {
    const uint64_t bits = format_.encode(value);
    std::memcpy(&bytes_[at(row, column)], &bits, format_.bits / 8);
  }
  bool has(uint32_t row, uint32_t column, int value) const {
    const uint64_t bits = format_.encode(value);
    return std::memcmp(&bytes_[at(row, column)], &bits, format_.bits / 8) == 0;
  }

 private:
  size_t at(uint32_t row, uint32_t column) const {
    const size_t element = isByRows_ ? size_t{row} * columns_ + column : size_t{column} * rows_ + row;
    return element * format_.bits / 8;
  }
  const Format& format_;
  uint32_t columns_;
  uint32_t rows_;
  bool isByRows_;
  Array<uint8_t> bytes_;
};

int leftElement(uint32_t row, uint32_t k) { return static_cast<int>((row * 5 + k * 3) % 7); }
int rightElement(uint32_t k, uint32_t column) { return static_cast<int>((k * 2 + column * 7) % 5); }
int sumElement(uint32_t row, uint32_t column) { return static_cast<int>((row + 2 * column) % 9); }
int expectedSum(uint32_t row, uint32_t column, uint32_t depth) {
  int sum = sumElement(row, column);
  for (uint32_t k = 0; k < depth; ++k) sum += leftElement(row, k) * rightElement(k, column);
  return sum;
}

std::string registersOf(const std::string& prefix, uint32_t count) {
  std::string out;
  for (uint32_t r = 0; r < count; ++r) out += (r ? ", %" : "{%") + prefix + std::to_string(r);
  return out + "}";
}

std::string kernelOf(const std::string& body) {
  return ".version 9.0\n.target sm_90\n.address_size 64\n"
         ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)\n{\n"
         ".reg .b32 %a<16>;\n.reg .b32 %b<16>;\n.reg .b32 %c<16>;\n.reg .f64 %da<8>;\n.reg .f64 %db<8>;\n"
         ".reg .f64 %dc<8>;\n.reg .b64 %rd<8>;\n.reg .b32 %r<16>;\n.reg .pred %p<4>;\n.shared .align 16 .b16 tile[256];\n"
         "ld.param.u64 %rd0, [p0];\nld.param.u64 %rd1, [p1];\nld.param.u64 %rd2, [p2];\n" +
         body + "ret;\n}\n";
}

struct WarpProduct {
  std::string shape;
  uint32_t m, n, k;
  const Format& factor;
  const Format& sum;
  uint32_t leftRegisters, rightRegisters, sumRegisters;
};

void checkWarpProduct(const WarpProduct& test, bool isLeftByRows, bool isRightByRows, bool isSumByRows) {
  const auto layout = [](bool isByRows) { return std::string(isByRows ? ".row" : ".col"); };
  const bool isDouble = test.factor.bits == 64;
  const std::string a = registersOf(isDouble ? "da" : "a", test.leftRegisters);
  const std::string b = registersOf(isDouble ? "db" : "b", test.rightRegisters);
  const std::string c = registersOf(isDouble ? "dc" : "c", test.sumRegisters);
  const std::string types = test.factor.name == "f16" ? "." + test.sum.name + "." + test.sum.name
                                                      : "." + test.sum.name + "." + test.factor.name + "." +
                                                            test.factor.name + "." + test.sum.name;
  const std::string text =
      "wmma.load.a.sync.aligned" + layout(isLeftByRows) + test.shape + ".global." + test.factor.name + " " + a +
      ", [%rd0];\n" + "wmma.load.b.sync.aligned" + layout(isRightByRows) + test.shape + "." + test.factor.name + " " +
      b + ", [%rd1], " + std::to_string(isRightByRows ? test.n : test.k) + ";\n" + "wmma.load.c.sync.aligned" +
      layout(isSumByRows) + test.shape + ".global." + test.sum.name + " " + c + ", [%rd2];\n" +
      "wmma.mma.sync.aligned" + layout(isLeftByRows) + layout(isRightByRows) + test.shape + (isDouble ? ".rn" : "") +
      types + " " + c + ", " + a + ", " + b + ", " + c + ";\n" + "wmma.store.d.sync.aligned" + layout(isSumByRows) +
      test.shape + ".global." + test.sum.name + " [%rd2], " + c + ";\n";
  Device device(kernelOf(text));
  Matrix left(device, test.factor, test.m, test.k, isLeftByRows);
  Matrix right(device, test.factor, test.k, test.n, isRightByRows);
  Matrix sum(device, test.sum, test.m, test.n, isSumByRows);
  for (uint32_t i = 0; i < test.m; ++i) {
    for (uint32_t k = 0; k < test.k; ++k) left.set(i, k, leftElement(i, k));
    for (uint32_t j = 0; j < test.n; ++j) sum.set(i, j, sumElement(i, j));
  }
  for (uint32_t k = 0; k < test.k; ++k) {
    for (uint32_t j = 0; j < test.n; ++j) right.set(k, j, rightElement(k, j));
  }
  device.run("k", {1, 1, 1}, {32, 1, 1}, Parameters(left.address(), right.address(), sum.address()));
  for (uint32_t i = 0; i < test.m; ++i) {
    for (uint32_t j = 0; j < test.n; ++j) CHECK(sum.has(i, j, expectedSum(i, j, test.k)));
  }
}

TEST("a warp multiplies matrices of every type, shape and order in memory") {
  const WarpProduct products[] = {
      {".m16n16k16", 16, 16, 16, kHalf, kSingle, 8, 8, 8},
      {".m32n8k16", 32, 8, 16, kHalf, kHalf, 8, 8, 4},
      {".m8n32k16", 8, 32, 16, kHalf, kSingle, 8, 8, 8},
      {".m16n16k16", 16, 16, 16, kBfloat, kSingle, 4, 4, 8},
      {".m32n8k16", 32, 8, 16, kBfloat, kSingle, 8, 2, 8},
      {".m16n16k8", 16, 16, 8, kTf32, kSingle, 4, 4, 8},
      {".m16n16k16", 16, 16, 16, kSigned8, kSigned32, 2, 2, 8},
      {".m32n8k16", 32, 8, 16, kUnsigned8, kSigned32, 4, 1, 8},
      {".m8n32k16", 8, 32, 16, kSigned8, kSigned32, 1, 4, 8},
      {".m8n8k4", 8, 8, 4, kDouble, kDouble, 1, 1, 2},
  };
  for (const WarpProduct& product : products) {
    for (int order = 0; order < 8; ++order) checkWarpProduct(product, order & 1, order & 2, order & 4);
  }
}

/// What lane l's registers hold, by the tables of the PTX ISA for mma.m16n8k16 with halves.
TEST("mma takes its fragments as the PTX ISA says") {
  const std::string text =
      "mov.u32 %r0, %laneid;\nshl.b32 %r1, %r0, 4;\ncvt.u64.u32 %rd3, %r1;\nadd.u64 %rd0, %rd0, %rd3;\n"
      "ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%rd0];\nshl.b32 %r1, %r0, 3;\ncvt.u64.u32 %rd3, %r1;\n"
      "add.u64 %rd1, %rd1, %rd3;\nld.global.v2.b32 {%b0, %b1}, [%rd1];\nshl.b32 %r1, %r0, 4;\ncvt.u64.u32 %rd3, %r1;\n"
      "add.u64 %rd2, %rd2, %rd3;\nld.global.v4.b32 {%c0, %c1, %c2, %c3}, [%rd2];\n"
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%c0, %c1, %c2, %c3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, "
      "{%c0, %c1, %c2, %c3};\nst.global.v4.b32 [%rd2], {%c0, %c1, %c2, %c3};\n";
  Device device(kernelOf(text));
  Array<uint16_t> a(device.memory, 32 * 8);
  Array<uint16_t> b(device.memory, 32 * 4);
  Array<float> c(device.memory, 32 * 4);
  for (uint32_t l = 0; l < 32; ++l) {
    const uint32_t group = l / 4;
    const uint32_t inGroup = l % 4;
    for (uint32_t e = 0; e < 8; ++e) {
      const uint32_t row = group + (e % 4 < 2 ? 0 : 8);
      const uint32_t column = inGroup * 2 + e % 2 + (e < 4 ? 0 : 8);
      a[l * 8 + e] = static_cast<uint16_t>(bitsOfHalf(leftElement(row, column)));
    }
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t row = inGroup * 2 + e % 2 + (e < 2 ? 0 : 8);
      b[l * 4 + e] = static_cast<uint16_t>(bitsOfHalf(rightElement(row, group)));
      c[l * 4 + e] = static_cast<float>(sumElement(group + (e < 2 ? 0 : 8), inGroup * 2 + e % 2));
    }
  }
  device.run("k", {1, 1, 1}, {32, 1, 1}, Parameters(a, b, c));
  for (uint32_t l = 0; l < 32; ++l) {
    for (uint32_t e = 0; e < 4; ++e) {
      const int expected = expectedSum(l / 4 + (e < 2 ? 0 : 8), l % 4 * 2 + e % 2, 16);
      CHECK_EQ(c[l * 4 + e], static_cast<float>(expected));
    }
  }
}

/// All factors are the register's bits: the sum over k of a(row, k) * b(k, column) is the same in every element.
int sumOfUniform(const std::string& instruction, uint32_t left, uint32_t right, uint32_t leftRegisters,
                 uint32_t rightRegisters, uint32_t sumRegisters, int start) {
  const std::string c = registersOf("c", sumRegisters);
  std::string text;
  for (uint32_t r = 0; r < leftRegisters; ++r)
    text += "mov.b32 %a" + std::to_string(r) + ", " + std::to_string(left) + ";\n";
  for (uint32_t r = 0; r < rightRegisters; ++r)
    text += "mov.b32 %b" + std::to_string(r) + ", " + std::to_string(right) + ";\n";
  for (uint32_t r = 0; r < sumRegisters; ++r)
    text += "mov.b32 %c" + std::to_string(r) + ", " + std::to_string(static_cast<uint32_t>(start)) + ";\n";
  text += instruction + " " + c + ", " + registersOf("a", leftRegisters) + ", " + registersOf("b", rightRegisters) +
          ", " + c + ";\nst.global.b32 [%rd0], %c" + std::to_string(sumRegisters - 1) + ";\n";
  Device device(kernelOf(text));
  Array<int32_t> out(device.memory, 1);
  device.run("k", {1, 1, 1}, {32, 1, 1}, Parameters(out, out, out));
  return out[0];
}

TEST("products of small integers and bits") {
  CHECK_EQ(sumOfUniform("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", 0xfdfdfdfd, 0xfefefefe, 4, 2, 4, 1),
           -3 * 254 * 32 + 1);
  CHECK_EQ(sumOfUniform("mma.sync.aligned.m8n8k32.row.col.s32.s4.u4.s32", 0xdddddddd, 0xeeeeeeee, 1, 1, 2, 1),
           -3 * 14 * 32 + 1);
  CHECK_EQ(
      sumOfUniform("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", 0xff00ff00, 0xf0f0f0f0, 4, 2, 4, 5),
      64 + 5);
  CHECK_EQ(sumOfUniform("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc", 0xff00ff00, 0xf0f0f0f0, 1, 1, 2, 5),
           64 + 5);
  constexpr int kNearMost = 2147483000;
  CHECK_EQ(sumOfUniform("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.u8.u8.s32", 0xffffffff, 0xffffffff, 1, 1, 2,
                        kNearMost),
           INT32_MAX);
  CHECK_EQ(sumOfUniform("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32", 0xffffffff, 0xffffffff, 1, 1, 2, kNearMost),
           static_cast<int>(static_cast<uint32_t>(kNearMost) + 255u * 255u * 16u));
}

/// Two groups of diverged lanes reach the instruction one after the other.
TEST("lanes that come in groups multiply together") {
  const std::string text =
      "mov.u32 %r0, %laneid;\nmov.b32 %a0, 0x01010101;\nmov.b32 %b0, 0x02020202;\nmov.b32 %c0, 1;\nmov.b32 %c1, 1;\n"
      "setp.lt.u32 %p0, %r0, 11;\nmov.u32 %r2, 100;\n@%p0 bra $few;\nmov.b32 %a0, 0x01010101;\nbra $meet;\n$few:\n"
      "mov.b32 %a0, 0x01010101;\n$spin:\nsub.u32 %r2, %r2, 1;\nsetp.ne.u32 %p1, %r2, 0;\n@%p1 bra $spin;\n$meet:\n"
      "mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%c0, %c1}, {%a0}, {%b0}, {%c0, %c1};\n"
      "shl.b32 %r1, %r0, 2;\ncvt.u64.u32 %rd3, %r1;\nadd.u64 %rd0, %rd0, %rd3;\nst.global.b32 [%rd0], %c1;\n";
  Device device(kernelOf(text));
  Array<int32_t> out(device.memory, 32);
  device.run("k", {1, 1, 1}, {32, 1, 1}, Parameters(out, out, out));
  for (const int32_t sum : out) CHECK_EQ(sum, 33);
}

TEST("ldmatrix, movmatrix and stmatrix distribute rows over the lanes and back") {
  // Row r of the tile is at 16 r bytes; it is loaded transposed, transposed again, and stored 256 bytes further on.
  const std::string text =
      "mov.u32 %r0, %laneid;\nmov.u32 %r1, tile;\nshl.b32 %r2, %r0, 4;\nand.b32 %r2, %r2, 255;\nadd.u32 %r1, %r1, %r2;\n"
      "shl.b32 %r3, %r0, 3;\ncvt.u64.u32 %rd3, %r3;\nadd.u64 %rd0, %rd0, %rd3;\nld.global.v2.b32 {%a0, %a1}, [%rd0];\n"
      "mov.u32 %r5, tile;\nadd.u32 %r5, %r5, %r3;\nst.shared.v2.b32 [%r5], {%a0, %a1};\nbar.sync 0;\n"
      "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%b0, %b1}, [%r1];\n"
      "movmatrix.sync.aligned.m8n8.trans.b16 %c0, %b0;\nmovmatrix.sync.aligned.m8n8.trans.b16 %c1, %b1;\n"
      "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1+256], {%c0, %c1};\nbar.sync 0;\n"
      "ld.shared.v2.b32 {%a2, %a3}, [%r5+256];\nadd.u64 %rd1, %rd1, %rd3;\nst.global.v2.b32 [%rd1], {%a2, %a3};\n"
      "shl.b32 %r4, %r0, 2;\ncvt.u64.u32 %rd4, %r4;\nadd.u64 %rd2, %rd2, %rd4;\nst.global.b32 [%rd2], %b0;\n";
  Device device(kernelOf(text));
  Array<uint16_t> in(device.memory, 128);
  Array<uint16_t> out(device.memory, 128);
  Array<uint16_t> first(device.memory, 64);
  for (uint32_t i = 0; i < 128; ++i) in[i] = static_cast<uint16_t>(1000 + i);
  device.run("k", {1, 1, 1}, {32, 1, 1}, Parameters(in, out, first));
  for (uint32_t i = 0; i < 128; ++i) CHECK_EQ(out[i], in[i]);
  for (uint32_t l = 0; l < 32; ++l) {
    for (uint32_t p = 0; p < 2; ++p) CHECK_EQ(first[l * 2 + p], in[(l % 4 * 2 + p) * 8 + l / 4]);
  }
}

TEST("matrix instructions that PTX does not have are refused") {
  const char* wrong[] = {
      "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%c0,%c1,%c2,%c3}, {%a0,%a1,%a2,%a3}, {%b0,%b1}, {%c0,%c1,%c2,%c3};",
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%c0,%c1,%c2,%c3}, {%a0,%a1,%a2,%a3}, {%b0,%b1}, {%c0,%c1,%c2,%c3};",
      "mma.sync.aligned.m16n8k4.row.col.f32.f16.f16.f32 {%c0,%c1,%c2,%c3}, {%a0,%a1}, {%b0}, {%c0,%c1,%c2,%c3};",
      "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%c0,%c1,%c2,%c3}, {%a0,%a1}, {%b0,%b1}, {%c0,%c1,%c2,%c3}, %r0, 0;",
      "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%a0,%a1}, [%r0];",
  };
  for (const char* text : wrong) {
    const Compiled compiled = compile(kernelOf(std::string(text) + "\n"));
    CHECK(!compiled);
    CHECK(compiled.error.kind == CompileError::Kind::kUnsupported);
  }
  const Compiled fewer = compile(kernelOf("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%a0}, [%r0];\n"));
  CHECK(!fewer);
  CHECK(fewer.error.kind == CompileError::Kind::kSyntax);
}

}  // namespace
}  // namespace millpond::softgpu::ptx::testing
