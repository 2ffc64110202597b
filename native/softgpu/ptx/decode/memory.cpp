// SPDX-License-Identifier: Apache-2.0
// Loads, stores, atomics, fences, and asynchronous copies, which are made when they are asked for: later waits find
// them done.
#include <algorithm>

#include "softgpu/ptx/decode/function_decoder.h"

namespace millpond::softgpu::ptx {
namespace {

constexpr uint32_t kAddressOperand = 4;
/// State spaces of a copy, the target first.
constexpr std::string_view kCopySpaces[] = {".shared", ".shared::cta", ".shared::cluster", ".global"};
bool isGlobal(std::optional<size_t> space) { return space == 3u; }

}  // namespace

FunctionDecoder::Address FunctionDecoder::address(Node node, const Operand& operand, Space space, uint64_t bytes) {
  if (operand.kind != Operand::Kind::kAddress) syntaxError(node.line, "expected an address in brackets");
  if (operand.items.size() != 1) unsupported(node.line, "this form of address in " + quoted(node.fullName()));
  const Operand& base = operand.items[0];
  Address out{space, kNoOperand, 64, operand.offset, false};
  auto inside = [&](const Binding& binding, std::string_view name) {
    if (operand.offset < 0 || static_cast<uint64_t>(operand.offset) > binding.bytes ||
        binding.bytes - static_cast<uint64_t>(operand.offset) < bytes) {
      syntaxError(node.line, "the access lies outside " + quoted(name) + ", which has " +
                                 std::to_string(binding.bytes) + " bytes");
    }
    if ((binding.offset + static_cast<uint64_t>(operand.offset)) % bytes != 0) {
      syntaxError(node.line,
                  "the access to " + quoted(name) + " is not aligned to its " + std::to_string(bytes) + " bytes");
    }
    out.offset = static_cast<int64_t>(binding.offset) + operand.offset;
  };
  if (base.kind == Operand::Kind::kInteger) {
    out.operand = module_.constants.number(base.bits, 64);
  } else if (base.kind != Operand::Kind::kName) {
    syntaxError(node.line, "an address needs a register, a variable or a number");
  } else {
    Binding binding = resolve(base.name, base.line);
    if (binding.kind == Binding::Kind::kRegister) {
      out.operand = anyRegister(base, out.width);
    } else if (binding.kind == Binding::Kind::kParameter && space == Space::kParam) {
      inside(binding, base.name);
      out.isKernelParameter = true;
    } else if (binding.kind == Binding::Kind::kFrame && space == Space::kParam && binding.space == Space::kParam) {
      inside(binding, base.name);
    } else {
      // A variable: its address is a constant, or is computed here.
      bool isWide = space != Space::kShared && space != Space::kLocal;
      out.width = isWide ? 64 : 32;
      out.operand = symbolAddress(binding, operand.offset, out.width, base.name, base.line);
      out.offset = 0;
      if (space == Space::kGeneric) {
        uint64_t window = binding.kind == Binding::Kind::kShared || binding.kind == Binding::Kind::kDynamicShared
                              ? kSharedWindow
                          : binding.kind == Binding::Kind::kFrame ? kLocalWindow
                                                                  : 0;
        if (window) out.offset = static_cast<int64_t>(window);
      }
    }
  }
  if (out.operand != kNoOperand && space == Space::kParam) {
    // Through a register: parameters of a kernel are read like constants, those of a function are in local memory.
    out.space = function_.isEntry ? Space::kConst : Space::kLocal;
  }
  if (out.width == 32 && out.space != Space::kShared && out.space != Space::kLocal) {
    syntaxError(node.line, "an address of 32 bits is possible in shared and local memory only");
  }
  if (out.width != 32 && out.width != 64) syntaxError(node.line, "an address needs a register of 32 or 64 bits");
  return out;
}

void FunctionDecoder::load(Node node) {
  Modifiers modifiers(node);
  bool isAtomic = modifiers.take(".volatile");
  isAtomic |= modifiers.take(".relaxed");
  const bool acquires = modifiers.take(".acquire");
  isAtomic |= acquires;
  isAtomic |= modifiers.take(".mmio");
  modifiers.take(".weak");
  modifiers.takeScope();
  Space space = modifiers.takeSpace().value_or(Space::kGeneric);
  modifiers.takeCacheHints();
  modifiers.take(".unified");
  uint32_t count = modifiers.takeVector();
  const bool isWide = count == 1 && modifiers.take(".b128");
  Type type = isWide ? Type::kB64 : modifiers.expectType();
  modifiers.finish();
  // A cache policy may follow the address.
  expectOperands(node, 2, 3);
  if (type == Type::kPred) modifiers.refuse();
  const Operand& to = node.operands[0];
  bool isVector = to.kind == Operand::Kind::kVector;
  if (isWide) count = 2;
  if (count > 1 && !isWide && (!isVector || to.items.size() != count))
    syntaxError(node.line, "expected " + std::to_string(count) + " registers in braces");
  if (count == 1 && isVector && to.items.size() != 1) syntaxError(node.line, "expected one register");
  uint32_t bytes = bytesOf(type) * count;
  Address from = address(node, node.operands[1], space, bytes);
  bool isPrivate = from.space == Space::kShared || from.space == Space::kLocal || from.space == Space::kParam;
  uint32_t registers[4];
  uint32_t width = 0;
  if (isWide) {
    const WideRegister whole = wideRegister(to);
    std::copy(whole.begin(), whole.end(), registers);
  }
  for (uint32_t k = 0; k < count && !isWide; ++k) {
    const Operand& item = isVector ? to.items[k] : to;
    registers[k] = kNoOperand;
    if (item.kind == Operand::Kind::kSink) continue;
    uint32_t itemWidth = 0;
    registers[k] = anyDestination(item, itemWidth);
    if (width != 0 && itemWidth != width) syntaxError(node.line, "the registers of a vector must have the same width");
    width = itemWidth;
  }
  if (width == 0) width = registerWidth(type);
  if (width == 1 || width < bitsOf(type))
    syntaxError(node.line, "the register is too narrow for " + quoted(node.fullName()));
  checkMemory(node, from, {.isRead = true, .isAtomic = isAtomic, .acquires = acquires}, bytesOf(type), count);
  Handler handler =
      from.isKernelParameter ? select_.control(ControlOp::kLoadParameter) : select_.load(from.space, from.width);
  Draft& draft = emit(node, handler);
  for (uint32_t k = 0; k < count; ++k) {
    draft.instruction.op[k] = registers[k];
    if (registers[k] != kNoOperand) draft.writes = static_cast<uint8_t>(draft.writes | 1u << k);
  }
  draft.instruction.op[kAddressOperand] = from.operand;
  draft.instruction.immediate = from.offset;
  draft.instruction.access = {static_cast<uint8_t>(bytesOf(type)), static_cast<uint8_t>(count),
                              static_cast<uint8_t>(from.space == Space::kConst ? kIsConstAccess : 0)};
  draft.instruction.move = select_.loadMover(type, width, count, isAtomic && !isPrivate);
}

void FunctionDecoder::store(Node node) {
  Modifiers modifiers(node);
  bool isAtomic = modifiers.take(".volatile");
  isAtomic |= modifiers.take(".relaxed");
  const bool releases = modifiers.take(".release");
  isAtomic |= releases;
  isAtomic |= modifiers.take(".mmio");
  modifiers.take(".weak");
  modifiers.takeScope();
  Space space = modifiers.takeSpace().value_or(Space::kGeneric);
  modifiers.takeCacheHints();
  uint32_t count = modifiers.takeVector();
  const bool isWide = count == 1 && modifiers.take(".b128");
  Type type = isWide ? Type::kB64 : modifiers.expectType();
  modifiers.finish();
  expectOperands(node, 2, 3);
  if (type == Type::kPred || space == Space::kConst) modifiers.refuse();
  const Operand& from = node.operands[1];
  bool isVector = from.kind == Operand::Kind::kVector;
  if (isWide) count = 2;
  if (count > 1 && !isWide && (!isVector || from.items.size() != count))
    syntaxError(node.line, "expected " + std::to_string(count) + " values in braces");
  if (count == 1 && isVector && from.items.size() != 1) syntaxError(node.line, "expected one value");
  Address to = address(node, node.operands[0], space, uint64_t{bytesOf(type)} * count);
  if (to.isKernelParameter) syntaxError(node.line, "the parameters of a kernel cannot be written");
  bool isPrivate = to.space == Space::kShared || to.space == Space::kLocal || to.space == Space::kParam;
  uint32_t width = 0;
  for (uint32_t k = 0; k < count && !isWide; ++k) {
    const Operand& item = isVector ? from.items[k] : from;
    if (item.kind != Operand::Kind::kName) continue;
    const Binding* binding = scopes_.find(scope_, item.name);
    if (!binding || binding->kind != Binding::Kind::kRegister) continue;
    uint32_t itemWidth = registerWidth(binding->type);
    if (width != 0 && itemWidth != width) syntaxError(node.line, "the registers of a vector must have the same width");
    width = itemWidth;
  }
  if (width == 0) width = registerWidth(type);
  if (width == 1 || width < bitsOf(type))
    syntaxError(node.line, "the register is too narrow for " + quoted(node.fullName()));
  Type asRegister = width == registerWidth(type) ? type : unsignedOf(width);
  uint32_t values[4];
  if (isWide) {
    const WideRegister whole = wideRegister(from);
    std::copy(whole.begin(), whole.end(), values);
  }
  for (uint32_t k = 0; k < count && !isWide; ++k) values[k] = source(isVector ? from.items[k] : from, asRegister);
  const CheckForm form{
      .registerBytes = static_cast<uint8_t>(width / 8), .isWrite = true, .isAtomic = isAtomic, .releases = releases};
  checkMemory(node, to, form, bytesOf(type), count, values);
  Draft& draft = emit(node, select_.store(to.space, to.width));
  for (uint32_t k = 0; k < count; ++k) draft.instruction.op[k] = values[k];
  draft.instruction.op[kAddressOperand] = to.operand;
  draft.instruction.immediate = to.offset;
  draft.instruction.access = {static_cast<uint8_t>(bytesOf(type)), static_cast<uint8_t>(count), 0};
  draft.instruction.move = select_.storeMover(type, width, count, isAtomic && !isPrivate);
}

void FunctionDecoder::atomic(Node node) {
  static constexpr std::pair<std::string_view, AtomicOp> kNames[] = {
      {".add", AtomicOp::kAdd},       {".min", AtomicOp::kMin},       {".max", AtomicOp::kMax},
      {".and", AtomicOp::kAnd},       {".or", AtomicOp::kOr},         {".xor", AtomicOp::kXor},
      {".cas", AtomicOp::kCas},       {".exch", AtomicOp::kExchange}, {".inc", AtomicOp::kIncrement},
      {".dec", AtomicOp::kDecrement},
  };
  Modifiers modifiers(node);
  modifiers.take(".relaxed");
  const bool isBoth = modifiers.take(".acq_rel");
  const bool acquires = modifiers.take(".acquire") || isBoth;
  const bool releases = modifiers.take(".release") || isBoth;
  modifiers.takeScope();
  Space space = modifiers.takeSpace().value_or(Space::kGeneric);
  std::optional<AtomicOp> op;
  for (const auto& [name, candidate] : kNames) {
    if (!op && modifiers.take(name)) op = candidate;
  }
  if (!op) modifiers.refuse();
  modifiers.take(".noftz");
  modifiers.takeCacheHints();
  Type type = modifiers.expectType();
  modifiers.finish();
  if (space != Space::kGeneric && space != Space::kGlobal && space != Space::kShared) modifiers.refuse();
  bool isReduction = node.opcode == "red";
  bool isCas = *op == AtomicOp::kCas;
  if (isReduction && (isCas || *op == AtomicOp::kExchange)) modifiers.refuse();
  Handler handler = select_.atomic(*op, type, space == Space::kShared);
  if (!handler) modifiers.refuse();
  size_t first = isReduction ? 0 : 1;
  expectOperands(node, first + (isCas ? 3 : 2), first + (isCas ? 4 : 3));
  Address at = address(node, node.operands[first], space, bytesOf(type));
  uint32_t b = source(node.operands[first + 1], type);
  uint32_t c = isCas ? source(node.operands[first + 2], type) : kNoOperand;
  const CheckForm form{.isRead = true, .isWrite = true, .isAtomic = true, .acquires = acquires, .releases = releases};
  checkMemory(node, at, form, bytesOf(type), 1);
  Draft& draft = emit(node, handler);
  if (!isReduction && node.operands[0].kind != Operand::Kind::kSink) {
    draft.instruction.op[0] = destination(node.operands[0], registerWidth(type));
    draft.writes = 1;
  }
  draft.instruction.op[1] = c;
  draft.instruction.op[kAddressOperand] = at.operand;
  draft.instruction.op[5] = b;
  draft.instruction.immediate = at.offset;
  draft.instruction.access = {static_cast<uint8_t>(bytesOf(type)), 1, 0};
  draft.instruction.locate = select_.locator(at.space, at.width);
}

void FunctionDecoder::fence(Node node) {
  Modifiers modifiers(node);
  // Asynchronous copies are performed in program order, and are ordered by the same fence.
  bool hasScope = modifiers.take(".proxy");
  hasScope |= modifiers.take(".mbarrier_init");
  if (hasScope && node.modifiers.front() == ".proxy" && !modifiers.take(".async") && !modifiers.take(".alias"))
    modifiers.refuse();
  modifiers.takeSpace();
  modifiers.take(".shared::cluster");
  for (std::string_view scope : {".cta", ".cluster", ".gpu", ".sys", ".gl"}) hasScope |= modifiers.take(scope);
  for (std::string_view order : {".sc", ".acq_rel", ".acquire", ".release"}) modifiers.take(order);
  modifiers.finish();
  if (!hasScope) modifiers.refuse();
  expectOperands(node, 0);
  if (module_.checks.races) emit(node, &noteFence);
  emit(node, select_.control(ControlOp::kFence));
}

/// Hints that change no value.
void FunctionDecoder::prefetch(Node node) {
  if (node.opcode == "discard") unsupported(node.line, "the instruction " + quoted(node.fullName()));
  if (node.operands.empty()) syntaxError(node.line, quoted(node.fullName()) + " needs an address");
  for (const std::string_view modifier : node.modifiers) {
    if (modifier == ".tensormap") unsupported(node.line, "the instruction " + quoted(node.fullName()));
  }
  emit(node, select_.control(ControlOp::kNothing));
}

/// An address in a register, its offset added.
uint32_t FunctionDecoder::plainAddress(Node node, const Address& address) {
  if (address.operand == kNoOperand) unsupported(node.line, "this form of address in " + quoted(node.fullName()));
  if (address.offset == 0) return address.operand;
  Draft& sum = emitUnguarded(node, select_.integer(IntegerOp::kAdd, unsignedOf(address.width)));
  const uint32_t out = temporary(address.width);
  sum.instruction.op[0] = out;
  sum.instruction.op[1] = address.operand;
  sum.instruction.op[2] = module_.constants.number(static_cast<uint64_t>(address.offset), address.width);
  sum.writes = 1;
  return out;
}

void FunctionDecoder::emitCopy(Node node, const Address& from, const Address& to, uint32_t read, uint32_t written,
                               uint8_t piece) {
  const uint32_t source = plainAddress(node, from);
  const uint32_t target = plainAddress(node, to);
  Draft& draft = emit(node, select_.copy());
  draft.instruction.op[0] = read;
  draft.instruction.op[1] = written;
  draft.instruction.op[kAddressOperand] = source;
  draft.instruction.op[kCopyTarget] = target;
  draft.instruction.access = {piece, 1, 0};
  draft.instruction.immediate = CopyForm{from.space, to.space, from.width == 64, to.width == 64}.pack();
}

/// cp.async
void FunctionDecoder::copyAsync(Node node) {
  Modifiers modifiers(node);
  if (!modifiers.take(".async")) modifiers.refuse();
  if (modifiers.take(".bulk")) return copyBulk(node, modifiers);
  const bool isCommit = modifiers.take(".commit_group");
  if (isCommit || modifiers.take(".wait_group") || modifiers.take(".wait_all")) {
    modifiers.finish();
    emit(node, select_.control(ControlOp::kNothing));
    return;
  }
  if (modifiers.take(".mbarrier")) return arriveOfCopies(node, modifiers);
  const bool isFour = modifiers.take(".ca");
  if (!isFour && !modifiers.take(".cg")) modifiers.refuse();
  const std::optional<size_t> target = modifiers.takeFirst(kCopySpaces);
  if (!target || isGlobal(target) || !isGlobal(modifiers.takeFirst(kCopySpaces))) modifiers.refuse();
  modifiers.takeCacheHints();
  modifiers.finish();
  expectOperands(node, 3, 5);
  const uint64_t bytes = node.operands[2].bits;
  if (node.operands[2].kind != Operand::Kind::kInteger || (bytes != 16 && (!isFour || (bytes != 4 && bytes != 8))))
    syntaxError(node.line, quoted(node.fullName()) + " copies 4, 8 or 16 bytes");
  const Address to = address(node, node.operands[0], Space::kShared, bytes);
  const Address from = address(node, node.operands[1], Space::kGlobal, bytes);
  const uint32_t all = module_.constants.number(bytes, 32);
  uint32_t read = all;
  // A size, a predicate that disables reading the source, or a 64-bit cache policy.
  if (node.operands.size() > 3 && !isPolicy(node.operands[3])) {
    if (isPredicate(node.operands[3])) {
      Draft& draft = emitUnguarded(node, select_.bit(BitOp::kSelect, Type::kU32));
      read = temporary(32);
      draft.instruction.op[0] = read;
      draft.instruction.op[1] = module_.constants.number(0, 32);
      draft.instruction.op[2] = all;
      draft.instruction.op[3] = predicateSource(node.operands[3]);
      draft.writes = 1;
    } else {
      read = source(node.operands[3], Type::kU32);
    }
  }
  // The checks do not know which bytes are read if there may be fewer.
  if (read == all) checkMemory(node, from, {.isRead = true}, static_cast<uint32_t>(bytes), 1);
  checkMemory(node, to, {.isWrite = true}, static_cast<uint32_t>(bytes), 1);
  emitCopy(node, from, to, read, all, static_cast<uint8_t>(bytes));
}

bool FunctionDecoder::isRegisterOf(const Operand& operand, uint32_t width) {
  if (operand.kind != Operand::Kind::kName) return false;
  const Binding* binding = scopes_.find(scope_, operand.name);
  return binding && binding->kind == Binding::Kind::kRegister && registerWidth(binding->type) == width;
}
bool FunctionDecoder::isPredicate(const Operand& operand) { return isRegisterOf(operand, 1); }
bool FunctionDecoder::isPolicy(const Operand& operand) { return isRegisterOf(operand, 64); }

/// cp.async.bulk, not of tensors.
void FunctionDecoder::copyBulk(Node node, Modifiers& modifiers) {
  const bool isCommit = modifiers.take(".commit_group");
  if (isCommit || modifiers.take(".wait_group")) {
    modifiers.take(".read");
    modifiers.finish();
    emit(node, select_.control(ControlOp::kNothing));
    return;
  }
  const std::optional<size_t> target = modifiers.takeFirst(kCopySpaces);
  const std::optional<size_t> origin = modifiers.takeFirst(kCopySpaces);
  const bool toShared = isGlobal(origin);
  if (!target || !origin || toShared == isGlobal(target)) modifiers.refuse();
  const bool isCounted = modifiers.take(".mbarrier::complete_tx::bytes");
  if (!toShared && !modifiers.take(".bulk_group")) modifiers.refuse();
  modifiers.takeCacheHints();
  modifiers.finish();
  if (isCounted != toShared) modifiers.refuse();
  // The checks do not support copies whose size is known only at run time.
  if (module_.checks.accesses()) unsupported(node.line, "the instruction " + quoted(node.fullName()) + " under checks");
  expectOperands(node, toShared ? 4 : 3, toShared ? 5 : 4);
  const Address to = address(node, node.operands[0], toShared ? Space::kShared : Space::kGlobal, 16);
  const Address from = address(node, node.operands[1], toShared ? Space::kGlobal : Space::kShared, 16);
  const uint32_t bytes = source(node.operands[2], Type::kU32);
  emitCopy(node, from, to, bytes, bytes, 16);
  if (!toShared) return;
  emitMemoryBarrier(node, MemoryBarrierOp::kComplete, address(node, node.operands[3], Space::kShared, 8), kNoOperand,
                    bytes);
}

}  // namespace millpond::softgpu::ptx
