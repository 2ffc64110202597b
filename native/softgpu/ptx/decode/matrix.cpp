// SPDX-License-Identifier: Apache-2.0
// Matrix instructions: wmma, mma, ldmatrix, stmatrix, movmatrix. Loads and stores of wmma become an address and an ordinary
// access for each register.
#include "softgpu/ptx/matrix.h"

#include <algorithm>
#include <array>

#include "softgpu/ptx/decode/function_decoder.h"

namespace millpond::softgpu::ptx {
namespace {

constexpr uint32_t kMatrixAddressOperand = 4;

struct MatrixShape {
  std::string_view name;
  uint16_t m;
  uint16_t n;
  uint16_t k;
};
constexpr MatrixShape kShapes[] = {
    {".m16n16k16", 16, 16, 16}, {".m32n8k16", 32, 8, 16},   {".m8n32k16", 8, 32, 16},   {".m16n16k8", 16, 16, 8},
    {".m8n8k4", 8, 8, 4},       {".m8n8k16", 8, 8, 16},     {".m8n8k32", 8, 8, 32},     {".m8n8k128", 8, 8, 128},
    {".m16n8k4", 16, 8, 4},     {".m16n8k8", 16, 8, 8},     {".m16n8k16", 16, 8, 16},   {".m16n8k32", 16, 8, 32},
    {".m16n8k64", 16, 8, 64},   {".m16n8k128", 16, 8, 128}, {".m16n8k256", 16, 8, 256},
};
const MatrixShape& expectShape(Modifiers& modifiers) {
  for (const MatrixShape& shape : kShapes) {
    if (modifiers.take(shape.name)) return shape;
  }
  modifiers.refuse();
}

constexpr std::string_view kTypeNames[] = {".f16", ".bf16", ".tf32", ".f32", ".f64", ".s32",
                                           ".u8",  ".s8",   ".u4",   ".s4",  ".b1"};
MatrixType expectMatrixType(Modifiers& modifiers) {
  const std::optional<size_t> found = modifiers.takeFirst(kTypeNames);
  if (!found) modifiers.refuse();
  return static_cast<MatrixType>(*found);
}

/// True for .row, false for .col.
bool expectRows(Modifiers& modifiers) {
  static constexpr std::string_view kLayouts[] = {".row", ".col"};
  const std::optional<size_t> found = modifiers.takeFirst(kLayouts);
  if (!found) modifiers.refuse();
  return *found == 0;
}

void expectTogether(Modifiers& modifiers) {
  if (!modifiers.take(".sync") || !modifiers.take(".aligned")) modifiers.refuse();
}

constexpr uint32_t shapeCode(uint32_t m, uint32_t n, uint32_t k) { return m << 20 | n << 12 | k; }

/// Whether products of such factors exist for this shape.
bool isShapeOf(MatrixType factor, const MatrixShape& shape, bool isWmma) {
  const uint32_t code = shapeCode(shape.m, shape.n, shape.k);
  const auto isOneOf = [code](std::initializer_list<uint32_t> codes) {
    return std::find(codes.begin(), codes.end(), code) != codes.end();
  };
  switch (factor) {
    case MatrixType::kF16:
    case MatrixType::kBf16:
      return isWmma ? isOneOf({shapeCode(16, 16, 16), shapeCode(32, 8, 16), shapeCode(8, 32, 16)})
                    : isOneOf({shapeCode(16, 8, 8), shapeCode(16, 8, 16)});
    case MatrixType::kU8:
    case MatrixType::kS8:
      return isWmma ? isOneOf({shapeCode(16, 16, 16), shapeCode(32, 8, 16), shapeCode(8, 32, 16)})
                    : isOneOf({shapeCode(8, 8, 16), shapeCode(16, 8, 16), shapeCode(16, 8, 32)});
    case MatrixType::kTf32:
      return isWmma ? isOneOf({shapeCode(16, 16, 8)}) : isOneOf({shapeCode(16, 8, 4), shapeCode(16, 8, 8)});
    case MatrixType::kF64:
      return isWmma ? isOneOf({shapeCode(8, 8, 4)})
                    : isOneOf({shapeCode(8, 8, 4), shapeCode(16, 8, 4), shapeCode(16, 8, 8), shapeCode(16, 8, 16)});
    case MatrixType::kU4:
    case MatrixType::kS4:
      return isWmma ? isOneOf({shapeCode(8, 8, 32)})
                    : isOneOf({shapeCode(8, 8, 32), shapeCode(16, 8, 32), shapeCode(16, 8, 64)});
    case MatrixType::kB1:
      return isWmma ? isOneOf({shapeCode(8, 8, 128)})
                    : isOneOf({shapeCode(8, 8, 128), shapeCode(16, 8, 128), shapeCode(16, 8, 256)});
    default: return false;
  }
}
bool isSumOf(MatrixType factor, MatrixType sum) {
  if (isSmallInteger(factor)) return sum == MatrixType::kS32;
  if (factor == MatrixType::kF64) return sum == MatrixType::kF64;
  return sum == MatrixType::kF32 || (factor == MatrixType::kF16 && sum == MatrixType::kF16);
}
/// Factors of a product may differ only in their signs.
bool areFactors(MatrixType a, MatrixType b) { return a == b || (isSmallInteger(a) && bitsOf(a) == bitsOf(b)); }

Fragment fragmentOf(MatrixType type, Arrangement arrangement, uint16_t rows, uint16_t columns, bool isWmma) {
  Fragment out{type, arrangement, rows, columns, 0};
  const bool isFactor = arrangement != Arrangement::kSum;
  // wmma has as many registers of halves for every shape.
  out.registers = static_cast<uint8_t>(isWmma && isFactor && type == MatrixType::kF16 ? Fragment::kMaxRegisters
                                                                                      : out.distinctRegisters());
  return out;
}

const std::vector<Operand>& itemsOf(const Operand& operand, const std::vector<Operand>& alone) {
  return operand.kind == Operand::Kind::kVector ? operand.items : alone;
}

}  // namespace

void FunctionDecoder::multiplyMatrices(Node node, const MatrixSite& form) {
  expectOperands(node, 4);
  branchAround(node, [&] {
    MatrixSite& site = *draft_.matrices.emplace_back(std::make_unique<MatrixSite>(form));
    const Fragment* fragments[] = {&site.result, &site.left, &site.right, &site.sum};
    uint32_t* const lists[] = {site.d, site.a, site.b, site.c};
    for (size_t k = 0; k < 4; ++k) {
      const std::vector<Operand> alone{node.operands[k]};
      const std::vector<Operand>& items = itemsOf(node.operands[k], alone);
      const Fragment& fragment = *fragments[k];
      if (items.size() != fragment.registers)
        syntaxError(node.line, quoted(node.fullName()) + " needs " + std::to_string(fragment.registers) +
                                   " registers as operand " + std::to_string(k + 1));
      const uint32_t width = fragment.registerBits();
      for (size_t r = 0; r < items.size(); ++r)
        lists[k][r] = k == 0 ? destination(items[r], width) : source(items[r], width == 64 ? Type::kB64 : Type::kB32);
    }
    Draft& draft = emitCollective(node, select_.matrix(MatrixOp::kMultiply, site.left.type),
                                  module_.constants.number(kAllLanes, 32));
    draft.matrix = &site;
    draft.instruction.table = &site;
  });
}

void FunctionDecoder::matrixMultiply(Node node) {
  Modifiers modifiers(node);
  expectTogether(modifiers);
  const MatrixShape& shape = expectShape(modifiers);
  const bool isLeftByRows = expectRows(modifiers);
  const bool isRightByRows = expectRows(modifiers);
  MatrixSite site{};
  site.saturates = modifiers.take(".satfinite");
  const MatrixType result = expectMatrixType(modifiers);
  const MatrixType left = expectMatrixType(modifiers);
  const MatrixType right = expectMatrixType(modifiers);
  const MatrixType sum = expectMatrixType(modifiers);
  if (left == MatrixType::kB1) {
    site.bits = modifiers.take(".and") ? BitProduct::kAnd : BitProduct::kXor;
    if ((site.bits == BitProduct::kXor && !modifiers.take(".xor")) || !modifiers.take(".popc")) modifiers.refuse();
  }
  if (left == MatrixType::kF64) modifiers.takeRounding();
  modifiers.finish();
  if (!isLeftByRows || isRightByRows || !isShapeOf(left, shape, false) || !areFactors(left, right) ||
      !isSumOf(left, sum) || !isSumOf(left, result))
    modifiers.refuse();
  site.left = fragmentOf(left, Arrangement::kLeft, shape.m, shape.k, false);
  site.right = fragmentOf(right, Arrangement::kRight, shape.k, shape.n, false);
  site.sum = fragmentOf(sum, Arrangement::kSum, shape.m, shape.n, false);
  site.result = fragmentOf(result, Arrangement::kSum, shape.m, shape.n, false);
  multiplyMatrices(node, site);
}

void FunctionDecoder::warpMatrix(Node node) {
  Modifiers modifiers(node);
  if (!modifiers.take(".mma")) return warpMatrixAccess(node, modifiers);
  MatrixSite site{};
  const bool hasBits = modifiers.take(".popc");
  if (hasBits && modifiers.take(".and"))
    site.bits = BitProduct::kAnd;
  else if (hasBits && !modifiers.take(".xor"))
    modifiers.refuse();
  expectTogether(modifiers);
  const bool isLeftByRows = expectRows(modifiers);
  const bool isRightByRows = expectRows(modifiers);
  const MatrixShape& shape = expectShape(modifiers);
  site.saturates = modifiers.take(".satfinite");
  const MatrixType result = expectMatrixType(modifiers);
  MatrixType left = MatrixType::kF16;
  MatrixType right = MatrixType::kF16;
  MatrixType sum = expectMatrixType(modifiers);
  // For halves the factor types are not named.
  if (const std::optional<size_t> further = modifiers.takeFirst(kTypeNames)) {
    left = sum;
    right = static_cast<MatrixType>(*further);
    sum = expectMatrixType(modifiers);
  }
  if (left == MatrixType::kF64) modifiers.takeRounding();
  modifiers.finish();
  if (hasBits != (left == MatrixType::kB1) || !isShapeOf(left, shape, true) || !areFactors(left, right) ||
      !isSumOf(left, sum) || !isSumOf(left, result))
    modifiers.refuse();
  const auto layout = [](bool isByRows) { return isByRows ? Arrangement::kRows : Arrangement::kColumns; };
  site.left = fragmentOf(left, layout(isLeftByRows), shape.m, shape.k, true);
  site.right = fragmentOf(right, layout(isRightByRows), shape.k, shape.n, true);
  site.sum = fragmentOf(sum, Arrangement::kSum, shape.m, shape.n, true);
  site.result = fragmentOf(result, Arrangement::kSum, shape.m, shape.n, true);
  multiplyMatrices(node, site);
}

/// One register, or one of its elements, between memory and `reg`.
void FunctionDecoder::moveMatrixPart(Node node, const Address& base, const MatrixStep& step, uint32_t stride, Type type,
                                     uint32_t reg, bool isLoad) {
  const bool isWide = base.width == 64;
  const Handler handler = select_.matrix(isWide ? MatrixOp::kAddress64 : MatrixOp::kAddress32, step.fragment.type);
  Draft& place = emitUnguarded(node, handler);
  const uint32_t at = temporary(base.width);
  place.instruction.op[0] = at;
  place.instruction.op[1] = base.operand;
  place.instruction.op[2] = stride;
  place.instruction.immediate = step.pack();
  place.writes = 1;
  const Address element{base.space, at, base.width, base.offset, false};
  const uint32_t width = registerWidth(type);
  CheckForm form{.isRead = isLoad, .isWrite = !isLoad};
  if (!isLoad) form.registerBytes = static_cast<uint8_t>(width / 8);
  checkMemory(node, element, form, bytesOf(type), 1, isLoad ? nullptr : &reg);
  Draft& draft =
      emitUnguarded(node, isLoad ? select_.load(base.space, base.width) : select_.store(base.space, base.width));
  draft.instruction.op[0] = reg;
  if (isLoad) draft.writes = 1;
  draft.instruction.op[kMatrixAddressOperand] = at;
  draft.instruction.immediate = base.offset;
  draft.instruction.access = {static_cast<uint8_t>(bytesOf(type)), 1, 0};
  draft.instruction.move =
      isLoad ? select_.loadMover(type, width, 1, false) : select_.storeMover(type, width, 1, false);
}

/// wmma.load and wmma.store.
void FunctionDecoder::warpMatrixAccess(Node node, Modifiers& modifiers) {
  const bool isLoad = modifiers.take(".load");
  if (!isLoad && !modifiers.take(".store")) modifiers.refuse();
  const bool isLeft = isLoad && modifiers.take(".a");
  const bool isRight = isLoad && !isLeft && modifiers.take(".b");
  if (!isLeft && !isRight && !modifiers.take(isLoad ? ".c" : ".d")) modifiers.refuse();
  expectTogether(modifiers);
  const bool isByRows = expectRows(modifiers);
  const MatrixShape& shape = expectShape(modifiers);
  const Space space = modifiers.takeSpace().value_or(Space::kGeneric);
  const MatrixType type = expectMatrixType(modifiers);
  modifiers.finish();
  const bool isFactor = isLeft || isRight;
  const bool isSum =
      type == MatrixType::kF16 || type == MatrixType::kF32 || type == MatrixType::kF64 || type == MatrixType::kS32;
  if (isFactor ? !isShapeOf(type, shape, true) : !isSum) modifiers.refuse();
  if (space != Space::kGeneric && space != Space::kGlobal && space != Space::kShared) modifiers.refuse();
  const Fragment fragment = fragmentOf(type,
                                       !isFactor  ? Arrangement::kSum
                                       : isByRows ? Arrangement::kRows
                                                  : Arrangement::kColumns,
                                       isRight ? shape.k : shape.m, isLeft ? shape.k : shape.n, true);
  if (fragment.registers == 0 || fragment.registers > Fragment::kMaxRegisters) modifiers.refuse();
  expectOperands(node, 2, 3);
  const Operand& list = node.operands[isLoad ? 0 : 1];
  const std::vector<Operand> alone{list};
  const std::vector<Operand>& items = itemsOf(list, alone);
  if (items.size() != fragment.registers)
    syntaxError(node.line, quoted(node.fullName()) + " needs " + std::to_string(fragment.registers) + " registers");
  const Address base = address(node, node.operands[isLoad ? 1 : 0], space, 1);
  if (base.operand == kNoOperand) modifiers.refuse();
  branchAround(node, [&] {
    const uint32_t stride = node.operands.size() == 3
                                ? source(node.operands[2], Type::kU32)
                                : module_.constants.number(isByRows ? fragment.columns : fragment.rows, 32);
    // Loads see the earlier stores of other lanes.
    emitCollective(node, select_.control(ControlOp::kWarpBarrier), module_.constants.number(kAllLanes, 32));
    const uint32_t width = fragment.registerBits();
    const Type whole = unsignedOf(width);
    const bool isSplit = fragment.parts() > 1 && !isFactor && !isByRows;
    std::vector<uint32_t> registers(items.size());
    for (size_t r = 0; r < items.size(); ++r) registers[r] = isLoad ? temporary(width) : source(items[r], whole);
    for (uint32_t r = 0; r < fragment.distinctRegisters(); ++r) {
      MatrixStep step{fragment, static_cast<uint8_t>(r), 0, isByRows};
      if (!isSplit) {
        moveMatrixPart(node, base, step, stride, whole, registers[r], isLoad);
        continue;
      }
      const std::array<uint32_t, 2> parts{temporary(16), temporary(16)};
      if (!isLoad) {
        Draft& draft = emitUnguarded(node, select_.unpack(32, 2));
        std::copy(parts.begin(), parts.end(), draft.instruction.op);
        draft.instruction.op[2] = registers[r];
        draft.writes = 3;
      }
      for (uint8_t part = 0; part < 2; ++part) {
        step.part = part;
        moveMatrixPart(node, base, step, stride, Type::kU16, parts[part], isLoad);
      }
      if (isLoad) {
        Draft& draft = emitUnguarded(node, select_.pack(32, 2));
        draft.instruction.op[0] = registers[r];
        std::copy(parts.begin(), parts.end(), draft.instruction.op + 1);
        draft.writes = 1;
      }
    }
    // The address may be in one of the destinations.
    for (size_t r = 0; isLoad && r < items.size(); ++r) {
      if (items[r].kind == Operand::Kind::kSink) continue;
      Draft& draft = emitUnguarded(node, select_.bit(BitOp::kMove, whole));
      draft.instruction.op[0] = destination(items[r], width);
      draft.instruction.op[1] = registers[r % fragment.distinctRegisters()];
      draft.writes = 1;
    }
  });
}

/// ldmatrix and stmatrix.
void FunctionDecoder::matrixRows(Node node) {
  Modifiers modifiers(node);
  const bool isLoad = node.opcode == "ldmatrix";
  expectTogether(modifiers);
  if (!modifiers.take(".m8n8")) modifiers.refuse();
  const uint32_t count = modifiers.take(".x4") ? 4 : modifiers.take(".x2") ? 2 : 1;
  if (count == 1 && !modifiers.take(".x1")) modifiers.refuse();
  const bool isTransposed = modifiers.take(".trans");
  const Space space = modifiers.takeSpace().value_or(Space::kGeneric);
  if (!modifiers.take(".b16") || (space != Space::kGeneric && space != Space::kShared)) modifiers.refuse();
  modifiers.finish();
  expectOperands(node, 2);
  const Operand& list = node.operands[isLoad ? 0 : 1];
  const std::vector<Operand> alone{list};
  const std::vector<Operand>& items = itemsOf(list, alone);
  if (items.size() != count)
    syntaxError(node.line, quoted(node.fullName()) + " needs " + std::to_string(count) + " registers");
  const Address at = address(node, node.operands[isLoad ? 1 : 0], space, 16);
  if (at.operand == kNoOperand) modifiers.refuse();
  branchAround(node, [&] {
    uint32_t registers[4];
    for (uint32_t m = 0; m < count; ++m)
      registers[m] = isLoad ? destination(items[m], 32) : source(items[m], Type::kB32);
    checkMatrixRows(node, at, count, isLoad);
    Draft& draft = emitCollective(node, select_.matrix(isLoad ? MatrixOp::kLoad : MatrixOp::kStore, MatrixType::kF16),
                                  module_.constants.number(kAllLanes, 32));
    for (uint32_t m = 0; m < count; ++m) {
      draft.instruction.op[m] = registers[m];
      if (isLoad) draft.writes = static_cast<uint8_t>(draft.writes | 1u << m);
    }
    draft.instruction.op[kMatrixAddressOperand] = at.operand;
    draft.instruction.immediate = at.offset;
    draft.instruction.access = {16, 1, static_cast<uint8_t>(count | (isTransposed ? kMatrixTransposed : 0))};
    draft.instruction.locate = select_.locator(at.space, at.width);
  });
}

/// The lanes whose addresses are those of rows.
void FunctionDecoder::checkMatrixRows(Node node, const Address& at, uint32_t count, bool isLoad) {
  if (!module_.checks.accesses()) return;
  const uint32_t lane = *specialSource("%laneid", 32, node.line);
  Draft& compare = emitUnguarded(node, select_.compare(CompareOp::kLt, Type::kU32, false));
  const uint32_t hasRow = temporary(1);
  compare.instruction.op[0] = hasRow;
  compare.instruction.op[2] = lane;
  compare.instruction.op[3] = module_.constants.number(8 * count, 32);
  compare.writes = 1;
  checkMemory(node, at, {.isRead = isLoad, .isWrite = !isLoad}, 16, 1);
  draft_.code.back().instruction.guard = hasRow;
}

void FunctionDecoder::transposeMatrix(Node node) {
  Modifiers modifiers(node);
  expectTogether(modifiers);
  if (!modifiers.take(".m8n8") || !modifiers.take(".trans") || !modifiers.take(".b16")) modifiers.refuse();
  modifiers.finish();
  expectOperands(node, 2);
  branchAround(node, [&] {
    const uint32_t from = source(node.operands[1], Type::kB32);
    Draft& draft = emitCollective(node, select_.matrix(MatrixOp::kTranspose, MatrixType::kF16),
                                  module_.constants.number(kAllLanes, 32));
    draft.instruction.op[0] = destination(node.operands[0], 32);
    draft.instruction.op[1] = from;
    draft.writes = 1;
  });
}

}  // namespace millpond::softgpu::ptx
