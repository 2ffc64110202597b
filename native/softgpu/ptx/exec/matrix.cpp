// SPDX-License-Identifier: Apache-2.0
// Matrices that the lanes of a warp hold together: products, and the moves between memory and registers.
#include "softgpu/ptx/matrix.h"

#include <cmath>
#include <type_traits>

#include "softgpu/ptx/exec/floats.h"
#include "softgpu/ptx/exec/locate.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

constexpr uint32_t kMaxElements = 16 * 256;  // of m16n8k256, the largest
constexpr uint32_t kMaxSums = 256;

/// The lanes for which an instruction is executed: all lanes of the warp that have not ended. False if some have not
/// arrived yet, or after a fault; `next` is then where to continue.
bool assemble(const Instruction* i, Context& context, uint32_t& lanes, const Instruction*& next) {
  lanes = context.mask;
  if (context.exchange) {
    context.exchange = nullptr;
    lanes = actForAll(i, context);
    if (lanes != 0) return true;
    next = raiseFault(i, context, FaultKind::kIllegalInstruction, {lowestLane(context.mask), 0, 0, false});
    return false;
  }
  if ((aliveLanes(context) & ~lanes) == 0) return true;
  const uint64_t nothing[32] = {};
  next = waitForLanes(i, context, lanes, kAllLanes, nothing);
  return false;
}

/// The value of an element in the type of the sums. Products of halves and shorter floats are exact in double
/// precision, so that each sum is rounded once.
template <typename T>
T valueOf(MatrixType type, uint64_t bits) {
  if constexpr (std::is_same_v<T, double>) {
    switch (type) {
      case MatrixType::kF16: return static_cast<double>(decode<Half>(static_cast<uint16_t>(bits)));
      case MatrixType::kBf16: return static_cast<double>(decode<Bfloat>(static_cast<uint16_t>(bits)));
      // Mantissa bits that the format does not have are ignored.
      case MatrixType::kTf32: return static_cast<double>(floatOfBits(static_cast<uint32_t>(bits) & 0xffffe000u));
      case MatrixType::kF32: return static_cast<double>(floatOfBits(static_cast<uint32_t>(bits)));
      default: return floatOfBits(bits);
    }
  } else {
    const auto word = static_cast<uint32_t>(bits);
    switch (type) {
      case MatrixType::kS8: return static_cast<int8_t>(word);
      case MatrixType::kS4: return static_cast<int32_t>(word << 28) >> 28;
      case MatrixType::kS32: return static_cast<int32_t>(word);
      default: return static_cast<T>(word);
    }
  }
}

/// Element (row, column) of the fragment into out[row * columns + column].
template <typename T>
void gatherMatrix(const Context& context, const Fragment& fragment, const uint32_t* operands, T* out) {
  const uint32_t bits = bitsOf(fragment.type);
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  for (uint32_t r = 0; r < fragment.distinctRegisters(); ++r) {
    for (uint32_t l = 0; l < 32; ++l) {
      const uint64_t word = fragment.registerBits() == 64 ? slot<uint64_t>(context, operands[r])[l]
                                                          : uint64_t{slot<uint32_t>(context, operands[r])[l]};
      for (uint32_t p = 0; p < fragment.parts(); ++p) {
        const MatrixPlace at = placeOf(fragment, l, r, p);
        out[at.row * fragment.columns + at.column] = valueOf<T>(fragment.type, word >> p * bits & mask);
      }
    }
  }
}

template <typename T>
uint64_t bitsOfSum(const MatrixSite& site, T sum) {
  if constexpr (std::is_same_v<T, double>) {
    switch (site.result.type) {
      case MatrixType::kF16: return encode<Half>(sum, Rounding::kNearestEven);
      case MatrixType::kF32: return bitsOfFloat(canonical(static_cast<float>(sum)));
      default: return bitsOfFloat(sum);
    }
  } else {
    if (site.saturates) sum = sum < INT32_MIN ? INT32_MIN : sum > INT32_MAX ? INT32_MAX : sum;
    return static_cast<uint32_t>(sum);
  }
}

template <typename T>
void scatterSums(const Context& context, const MatrixSite& site, uint32_t lanes, const T* sums) {
  const Fragment& fragment = site.result;
  const uint32_t bits = bitsOf(fragment.type);
  for (uint32_t r = 0; r < fragment.distinctRegisters(); ++r) {
    forLanes(lanes, [&](uint32_t l) {
      uint64_t word = 0;
      for (uint32_t p = 0; p < fragment.parts(); ++p) {
        const MatrixPlace at = placeOf(fragment, l, r, p);
        word |= bitsOfSum(site, sums[at.row * fragment.columns + at.column]) << p * bits;
      }
      if (fragment.registerBits() == 64)
        slot<uint64_t>(context, site.d[r])[l] = word;
      else
        slot<uint32_t>(context, site.d[r])[l] = static_cast<uint32_t>(word);
    });
  }
}

template <typename T>
T product(const MatrixSite& site, T a, T b) {
  if constexpr (!std::is_same_v<T, double>) {
    if (site.left.type == MatrixType::kB1) return site.bits == BitProduct::kXor ? a ^ b : a & b;
  }
  return a * b;
}

/// Instruction::table: the MatrixSite.
template <typename T, bool kIsFused>
const Instruction* multiplyHandler(const Instruction* i, Context& context) {
  uint32_t lanes;
  const Instruction* next;
  if (!assemble(i, context, lanes, next)) return next;
  const MatrixSite& site = *static_cast<const MatrixSite*>(i->table);
  T left[kMaxElements];
  T right[kMaxElements];
  T sums[kMaxSums];
  gatherMatrix(context, site.left, site.a, left);
  gatherMatrix(context, site.right, site.b, right);
  gatherMatrix(context, site.sum, site.c, sums);
  const uint32_t depth = site.left.columns;
  const uint32_t columns = site.right.columns;
  for (uint32_t row = 0; row < site.left.rows; ++row) {
    T* sum = sums + row * columns;
    for (uint32_t k = 0; k < depth; ++k) {
      const T a = left[row * depth + k];
      const T* b = right + k * columns;
      for (uint32_t column = 0; column < columns; ++column) {
        if constexpr (kIsFused)
          sum[column] = std::fma(a, b[column], sum[column]);
        else
          sum[column] += product(site, a, b[column]);
      }
    }
  }
  scatterSums(context, site, lanes, sums);
  return i + 1;
}

constexpr uint32_t kRowBytes = 16;

/// The rows of the matrices: row r of matrix m is at the address of lane 8 m + r. False after a fault.
bool locateRows(const Instruction* i, Context& context, uint32_t lanes, bool isWrite, Lanes& rows) {
  const uint32_t count = i->access.flags & kMatrixCountBits;
  Instruction access = *i;
  access.access = {kRowBytes, 1, 0};
  const uint32_t needed = count == 4 ? kAllLanes : (1u << 8 * count) - 1;
  if ((needed & ~lanes) != 0)
    return raiseFault(i, context, FaultKind::kIllegalInstruction, {lowestLane(lanes), 0, 0, false}) != nullptr;
  return i->locate(&access, context, needed, isWrite, rows);
}

std::byte* rowOf(const Lanes& rows, uint32_t lane) {
  switch (rows.shape) {
    case Lanes::Shape::kUniform: return rows.base;
    case Lanes::Shape::kContiguous: return rows.base + size_t{lane} * kRowBytes;
    default: return rows.lane[lane];
  }
}

/// Which two elements of an 8 × 8 matrix a lane has: they are neighbours in a row, or in a column of a transposed one.
MatrixPlace pairOf(bool isTransposed, uint32_t lane, uint32_t part) {
  const uint32_t line = lane / 4;
  const uint32_t along = lane % 4 * 2 + part;
  return isTransposed ? MatrixPlace{along, line} : MatrixPlace{line, along};
}

/// d0, d1, d2, d3, address.
const Instruction* loadHandler(const Instruction* i, Context& context) {
  uint32_t lanes;
  const Instruction* next;
  if (!assemble(i, context, lanes, next)) return next;
  Lanes rows;
  if (!locateRows(i, context, lanes, false, rows)) return nullptr;
  const uint32_t count = i->access.flags & kMatrixCountBits;
  const bool isTransposed = i->access.flags & kMatrixTransposed;
  uint16_t elements[4][8][8];
  for (uint32_t r = 0; r < 8 * count; ++r) std::memcpy(elements[r / 8][r % 8], rowOf(rows, r), kRowBytes);
  for (uint32_t m = 0; m < count; ++m) {
    uint32_t* d = slot<uint32_t>(context, i->op[m]);
    forLanes(lanes, [&](uint32_t l) {
      const MatrixPlace low = pairOf(isTransposed, l, 0);
      const MatrixPlace high = pairOf(isTransposed, l, 1);
      d[l] = elements[m][low.row][low.column] | uint32_t{elements[m][high.row][high.column]} << 16;
    });
  }
  return i + 1;
}

/// s0, s1, s2, s3, address.
const Instruction* storeHandler(const Instruction* i, Context& context) {
  uint32_t lanes;
  const Instruction* next;
  if (!assemble(i, context, lanes, next)) return next;
  Lanes rows;
  if (!locateRows(i, context, lanes, true, rows)) return nullptr;
  const uint32_t count = i->access.flags & kMatrixCountBits;
  const bool isTransposed = i->access.flags & kMatrixTransposed;
  for (uint32_t m = 0; m < count; ++m) {
    const uint32_t* s = slot<uint32_t>(context, i->op[m]);
    uint16_t elements[8][8];
    for (uint32_t l = 0; l < 32; ++l) {
      for (uint32_t p = 0; p < 2; ++p) {
        const MatrixPlace at = pairOf(isTransposed, l, p);
        elements[at.row][at.column] = static_cast<uint16_t>(s[l] >> 16 * p);
      }
    }
    for (uint32_t r = 0; r < 8; ++r) std::memcpy(rowOf(rows, 8 * m + r), elements[r], kRowBytes);
  }
  return i + 1;
}

/// d, a.
const Instruction* transposeHandler(const Instruction* i, Context& context) {
  uint32_t lanes;
  const Instruction* next;
  if (!assemble(i, context, lanes, next)) return next;
  uint16_t elements[8][8];
  const uint32_t* a = slot<uint32_t>(context, i->op[1]);
  for (uint32_t l = 0; l < 32; ++l) {
    for (uint32_t p = 0; p < 2; ++p) {
      const MatrixPlace at = pairOf(false, l, p);
      elements[at.row][at.column] = static_cast<uint16_t>(a[l] >> 16 * p);
    }
  }
  uint32_t* d = slot<uint32_t>(context, i->op[0]);
  forLanes(lanes, [&](uint32_t l) {
    const MatrixPlace low = pairOf(true, l, 0);
    const MatrixPlace high = pairOf(true, l, 1);
    d[l] = elements[low.row][low.column] | uint32_t{elements[high.row][high.column]} << 16;
  });
  return i + 1;
}

/// d, base, elements from one line in memory to the next. Instruction::immediate: a MatrixStep, packed.
template <typename A>
const Instruction* addressHandler(const Instruction* i, Context& context) {
  const MatrixStep step = MatrixStep::unpack(i->immediate);
  const A* base = slot<A>(context, i->op[1]);
  const uint32_t* stride = slot<uint32_t>(context, i->op[2]);
  assign(context.mask, slot<A>(context, i->op[0]), [&](uint32_t l) {
    const MatrixPlace at = placeOf(step.fragment, l, step.reg, step.part);
    const uint64_t line = step.isByRows ? at.row : at.column;
    const uint64_t along = step.isByRows ? at.column : at.row;
    return static_cast<A>(base[l] + static_cast<A>((line * stride[l] + along) * bitsOf(step.fragment.type) / 8));
  });
  return i + 1;
}

}  // namespace

Handler selectMatrix(MatrixOp op, MatrixType type) {
  switch (op) {
    case MatrixOp::kMultiply:
      if (type == MatrixType::kF64) return &multiplyHandler<double, true>;
      return isSmallInteger(type) ? &multiplyHandler<int64_t, false> : &multiplyHandler<double, false>;
    case MatrixOp::kLoad: return &loadHandler;
    case MatrixOp::kStore: return &storeHandler;
    case MatrixOp::kTranspose: return &transposeHandler;
    case MatrixOp::kAddress32: return &addressHandler<uint32_t>;
    default: return &addressHandler<uint64_t>;
  }
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
