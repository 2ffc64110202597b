// SPDX-License-Identifier: Apache-2.0
// Matrix instructions: how the elements of a matrix lie in the registers of a warp's lanes.
#pragma once

#include <cstdint>

#include "softgpu/ptx/instruction.h"

namespace millpond::softgpu::ptx {

enum class MatrixType : uint8_t { kF16, kBf16, kTf32, kF32, kF64, kS32, kU8, kS8, kU4, kS4, kB1 };

constexpr uint32_t bitsOf(MatrixType type) {
  switch (type) {
    case MatrixType::kF16:
    case MatrixType::kBf16: return 16;
    case MatrixType::kF64: return 64;
    case MatrixType::kU8:
    case MatrixType::kS8: return 8;
    case MatrixType::kU4:
    case MatrixType::kS4: return 4;
    case MatrixType::kB1: return 1;
    default: return 32;
  }
}
constexpr bool isSmallInteger(MatrixType type) { return type >= MatrixType::kU8; }

/// The order of the elements in the registers. The first three are those that PTX defines for mma. It defines none for
/// the operands of wmma: those have the order of memory, so that a register is one load.
enum class Arrangement : uint8_t { kLeft, kRight, kSum, kRows, kColumns };

/// A matrix that the lanes of a warp hold together.
struct Fragment {
  static constexpr uint32_t kMaxRegisters = 8;

  MatrixType type = MatrixType::kF16;
  Arrangement arrangement = Arrangement::kLeft;
  uint16_t rows = 0;
  uint16_t columns = 0;
  uint8_t registers = 0;  // of each lane; those behind distinctRegisters() repeat the first ones

  constexpr uint32_t registerBits() const { return type == MatrixType::kF64 ? 64 : 32; }
  /// Elements in a register.
  constexpr uint32_t parts() const { return registerBits() / bitsOf(type); }
  constexpr uint32_t elements() const { return uint32_t{rows} * columns; }
  constexpr uint32_t distinctRegisters() const { return elements() / (32 * parts()); }
};

struct MatrixPlace {
  uint32_t row;
  uint32_t column;
};

/// The element that is part `part` of a lane's register; `reg` is below distinctRegisters().
constexpr MatrixPlace placeOf(const Fragment& fragment, uint32_t lane, uint32_t reg, uint32_t part) {
  const uint32_t parts = fragment.parts();
  const uint32_t group = lane / 4;
  const uint32_t inGroup = lane % 4;
  const uint32_t tilesDown = fragment.rows / 8u;
  switch (fragment.arrangement) {
    case Arrangement::kLeft: return {group + 8 * (reg % tilesDown), (inGroup + 4 * (reg / tilesDown)) * parts + part};
    case Arrangement::kRight: return {(inGroup + 4 * reg) * parts + part, group};
    case Arrangement::kSum: {
      // Two neighbours of a row in each tile of 8 × 8.
      const uint32_t element = reg * parts + part;
      const uint32_t tile = element / 2;
      return {group + 8 * (tile % tilesDown), 2 * inGroup + element % 2 + 8 * (tile / tilesDown)};
    }
    default: {
      const bool isByRows = fragment.arrangement == Arrangement::kRows;
      const uint32_t perLine = (isByRows ? fragment.columns : fragment.rows) / parts;
      const uint32_t number = reg * 32 + lane;
      const uint32_t line = number / perLine;
      const uint32_t along = number % perLine * parts + part;
      return isByRows ? MatrixPlace{line, along} : MatrixPlace{along, line};
    }
  }
}

/// How products of bits are computed.
enum class BitProduct : uint8_t { kXor, kAnd };

/// d = a * b + c. Operands as in Instruction, a list for each matrix.
struct MatrixSite {
  Fragment left;
  Fragment right;
  Fragment sum;     // c
  Fragment result;  // d: like c, possibly of another type
  BitProduct bits = BitProduct::kXor;
  bool saturates = false;
  uint32_t d[Fragment::kMaxRegisters];
  uint32_t a[Fragment::kMaxRegisters];
  uint32_t b[Fragment::kMaxRegisters];
  uint32_t c[Fragment::kMaxRegisters];

  /// body(operand, is written) for each of them.
  template <typename F>
  void forOperands(F body) {
    for (uint32_t k = 0; k < left.registers; ++k) body(a[k], false);
    for (uint32_t k = 0; k < right.registers; ++k) body(b[k], false);
    for (uint32_t k = 0; k < sum.registers; ++k) body(c[k], false);
    for (uint32_t k = 0; k < result.registers; ++k) body(d[k], true);
  }
};

/// Where one lane's register is in a matrix in memory; in the immediate of MatrixOp::kAddress.
struct MatrixStep {
  Fragment fragment;
  uint8_t reg = 0;
  uint8_t part = 0;
  bool isByRows = true;  // in memory

  constexpr int64_t pack() const {
    return static_cast<int64_t>(fragment.type) | static_cast<int64_t>(fragment.arrangement) << 4 |
           int64_t{fragment.rows} << 8 | int64_t{fragment.columns} << 20 | int64_t{reg} << 32 | int64_t{part} << 40 |
           int64_t{isByRows} << 48;
  }
  static constexpr MatrixStep unpack(int64_t bits) {
    MatrixStep out;
    out.fragment.type = static_cast<MatrixType>(bits & 15);
    out.fragment.arrangement = static_cast<Arrangement>(bits >> 4 & 15);
    out.fragment.rows = static_cast<uint16_t>(bits >> 8 & 0xfff);
    out.fragment.columns = static_cast<uint16_t>(bits >> 20 & 0xfff);
    out.reg = static_cast<uint8_t>(bits >> 32);
    out.part = static_cast<uint8_t>(bits >> 40);
    out.isByRows = (bits >> 48 & 1) != 0;
    return out;
  }
};

enum class MatrixOp : uint8_t { kMultiply, kLoad, kStore, kTranspose, kAddress32, kAddress64 };

/// Matrices of 8 × 8 elements of 16 bits that kLoad and kStore move; in Instruction::access.flags, with these.
inline constexpr uint8_t kMatrixCountBits = 7;
inline constexpr uint8_t kMatrixTransposed = 8;

}  // namespace millpond::softgpu::ptx
