// SPDX-License-Identifier: Apache-2.0
// Operands and the emission of drafts.
#include <bit>
#include <charconv>

#include "softgpu/ptx/decode/function_decoder.h"

namespace millpond::softgpu::ptx {
namespace {

struct SpecialName {
  std::string_view name;
  Special which;
  uint32_t width;
};
constexpr SpecialName kSpecials[] = {
    {"%tid.x", Special::kTidX, 32},
    {"%tid.y", Special::kTidY, 32},
    {"%tid.z", Special::kTidZ, 32},
    {"%ntid.x", Special::kNtidX, 32},
    {"%ntid.y", Special::kNtidY, 32},
    {"%ntid.z", Special::kNtidZ, 32},
    {"%ctaid.x", Special::kCtaidX, 32},
    {"%ctaid.y", Special::kCtaidY, 32},
    {"%ctaid.z", Special::kCtaidZ, 32},
    {"%nctaid.x", Special::kNctaidX, 32},
    {"%nctaid.y", Special::kNctaidY, 32},
    {"%nctaid.z", Special::kNctaidZ, 32},
    {"%tid.w", Special::kZero, 32},
    {"%ntid.w", Special::kZero, 32},
    {"%ctaid.w", Special::kZero, 32},
    {"%nctaid.w", Special::kZero, 32},
    {"%laneid", Special::kLaneId, 32},
    {"%warpid", Special::kWarpId, 32},
    {"%nwarpid", Special::kNwarpId, 32},
    {"%smid", Special::kSmId, 32},
    {"%nsmid", Special::kNsmId, 32},
    {"%gridid", Special::kGridId, 64},
    {"%lanemask_eq", Special::kLanemaskEq, 32},
    {"%lanemask_le", Special::kLanemaskLe, 32},
    {"%lanemask_lt", Special::kLanemaskLt, 32},
    {"%lanemask_ge", Special::kLanemaskGe, 32},
    {"%lanemask_gt", Special::kLanemaskGt, 32},
    {"%clock", Special::kClock, 32},
    {"%clock_hi", Special::kClockHi, 32},
    {"%clock64", Special::kClock64, 64},
    {"%globaltimer", Special::kGlobalTimer, 64},
    {"%globaltimer_lo", Special::kGlobalTimerLo, 32},
    {"%globaltimer_hi", Special::kGlobalTimerHi, 32},
    {"%dynamic_smem_size", Special::kDynamicSharedBytes, 32},
    {"%total_smem_size", Special::kTotalSharedBytes, 32},
    {"%aggr_smem_size", Special::kTotalSharedBytes, 32},
    {"%current_graph_exec", Special::kZero, 64},
    // Each block is a cluster of its own.
    {"%clusterid.x", Special::kCtaidX, 32},
    {"%clusterid.y", Special::kCtaidY, 32},
    {"%clusterid.z", Special::kCtaidZ, 32},
    {"%nclusterid.x", Special::kNctaidX, 32},
    {"%nclusterid.y", Special::kNctaidY, 32},
    {"%nclusterid.z", Special::kNctaidZ, 32},
    {"%cluster_ctaid.x", Special::kZero, 32},
    {"%cluster_ctaid.y", Special::kZero, 32},
    {"%cluster_ctaid.z", Special::kZero, 32},
    {"%cluster_nctaid.x", Special::kOne, 32},
    {"%cluster_nctaid.y", Special::kOne, 32},
    {"%cluster_nctaid.z", Special::kOne, 32},
    {"%cluster_ctarank", Special::kZero, 32},
    {"%cluster_nctarank", Special::kOne, 32},
};

std::optional<SpecialName> findSpecial(std::string_view name) {
  for (const SpecialName& special : kSpecials) {
    if (special.name == name) return special;
  }
  constexpr std::string_view kEnvironment = "%envreg";
  if (name.substr(0, kEnvironment.size()) == kEnvironment) {
    uint32_t number = 0;
    const char* end = name.data() + name.size();
    auto [stop, error] = std::from_chars(name.data() + kEnvironment.size(), end, number);
    if (error == std::errc() && stop == end && number < 32) {
      return SpecialName{name, static_cast<Special>(static_cast<uint32_t>(Special::kEnvironment) + number), 32};
    }
  }
  return std::nullopt;
}

std::string widthName(uint32_t width) { return width == 1 ? "a predicate" : std::to_string(width) + " bits"; }

}  // namespace

Binding FunctionDecoder::resolve(std::string_view name, uint32_t line) {
  const Binding* symbol = scopes_.find(scope_, name);
  if (!symbol) syntaxError(line, quoted(name) + " is not declared");
  return *symbol;
}

uint32_t FunctionDecoder::temporary(uint32_t width) {
  return scopes_.newRegister(width == 1 ? Type::kPred : unsignedOf(width));
}

void FunctionDecoder::expectOperands(Node node, size_t least, size_t most) {
  if (node.operands.size() >= least && node.operands.size() <= most) return;
  syntaxError(node.line, quoted(node.fullName()) + " has " + std::to_string(node.operands.size()) + " operands, not " +
                             std::to_string(least) + (most > least ? " to " + std::to_string(most) : ""));
}

uint32_t FunctionDecoder::immediate(const Operand& operand, Type type) {
  uint32_t width = registerWidth(type);
  uint64_t bits = operand.bits;
  switch (operand.kind) {
    case Operand::Kind::kInteger:
      if (type == Type::kPred) return module_.constants.predicate(bits != 0);
      if (type == Type::kF32 || type == Type::kF64)
        syntaxError(operand.line, "an integer where a floating-point number is required");
      break;
    case Operand::Kind::kFloat32:
      if (width == 64)
        bits = std::bit_cast<uint64_t>(double{std::bit_cast<float>(static_cast<uint32_t>(bits))});
      else if (width != 32)
        syntaxError(operand.line, "a floating-point number where an integer is required");
      break;
    default:
      if (width == 32)
        bits = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
      else if (width != 64)
        syntaxError(operand.line, "a floating-point number where an integer is required");
  }
  return module_.constants.number(bits, width);
}

std::optional<uint32_t> FunctionDecoder::specialSource(std::string_view name, uint32_t width, uint32_t line) {
  if (name == "WARP_SZ") return module_.constants.number(kWarpSize, width);
  if (name == "%is_explicit_cluster" && width == 1) return module_.constants.predicate(false);
  if (name[0] != '%') return std::nullopt;
  std::optional<SpecialName> special = findSpecial(name);
  if (!special) return std::nullopt;
  // A 64-bit register may be read by its lower half, and so may indices and sizes of threads and blocks, which had 16
  // bits in PTX 1.
  const bool isHalfOfIndex = width == 16 && special->width == 32 && name.find("id.") != std::string_view::npos;
  if (special->width != width && !(special->width == 64 && width == 32) && !isHalfOfIndex) {
    syntaxError(line, quoted(name) + " has " + widthName(special->width) + ", not " + widthName(width));
  }
  InstructionNode node;
  node.line = line;
  Draft& draft = emitUnguarded(node, select_.control(width == 64 ? ControlOp::kSpecial64 : ControlOp::kSpecial32));
  uint32_t out = temporary(isHalfOfIndex ? 32 : width);
  draft.instruction.op[0] = out;
  draft.instruction.immediate = static_cast<int64_t>(special->which);
  draft.writes = 1;
  if (!isHalfOfIndex) return out;
  Draft& low = emitUnguarded(node, select_.convert(Type::kU16, Type::kU32, {}));
  low.instruction.op[1] = out;
  out = temporary(16);
  low.instruction.op[0] = out;
  low.writes = 1;
  return out;
}

uint32_t FunctionDecoder::symbolAddress(const Binding& symbol, int64_t addend, uint32_t width, std::string_view name,
                                        uint32_t line) {
  uint64_t offset = static_cast<uint64_t>(addend);
  InstructionNode node;
  node.line = line;
  if (width < 32) syntaxError(line, "the address of " + quoted(name) + " does not fit " + widthName(width));
  auto special = [&](Special which) {
    Draft& draft = emitUnguarded(node, select_.control(width == 64 ? ControlOp::kSpecial64 : ControlOp::kSpecial32));
    uint32_t base = temporary(width);
    draft.instruction.op[0] = base;
    draft.instruction.immediate = static_cast<int64_t>(which);
    draft.writes = 1;
    if (offset == 0) return base;
    Type type = unsignedOf(width);
    Draft& sum = emitUnguarded(node, select_.integer(IntegerOp::kAdd, type));
    uint32_t out = temporary(width);
    sum.instruction.op[0] = out;
    sum.instruction.op[1] = base;
    sum.instruction.op[2] = module_.constants.number(offset, width);
    sum.writes = 1;
    return out;
  };
  switch (symbol.kind) {
    case Binding::Kind::kGlobal:
      if (width != 64)
        syntaxError(line, "the address of " + quoted(name) + " has 64 bits, not " + std::to_string(width));
      return module_.constants.variable(symbol.index, offset, width);
    case Binding::Kind::kShared:
      module_.uses[index_].sharedVariables.push_back(symbol.index);
      return module_.constants.shared(symbol.index, offset, width);
    case Binding::Kind::kDynamicShared:
      module_.uses[index_].usesDynamicShared = true;
      return special(Special::kDynamicSharedStart);
    case Binding::Kind::kFrame: {
      Draft& draft =
          emitUnguarded(node, select_.control(width == 64 ? ControlOp::kLocalAddress64 : ControlOp::kLocalAddress32));
      uint32_t out = temporary(width);
      draft.instruction.op[0] = out;
      draft.instruction.immediate = static_cast<int64_t>(symbol.offset + offset);
      draft.writes = 1;
      return out;
    }
    case Binding::Kind::kParameter:
      if (width != 64)
        syntaxError(line, "the address of " + quoted(name) + " has 64 bits, not " + std::to_string(width));
      offset += symbol.offset;
      return special(Special::kParameterStart);
    case Binding::Kind::kFunction:
      if (width != 64)
        syntaxError(line, "the address of " + quoted(name) + " has 64 bits, not " + std::to_string(width));
      module_.isAddressTaken[symbol.index] = true;
      return module_.constants.number(kFunctionWindow + symbol.index, width);
    case Binding::Kind::kExternVariable:
      fail(CompileError::Kind::kUnresolved, line,
           "the variable " + quoted(name) + " is declared .extern, but nothing defines it");
    default: syntaxError(line, quoted(name) + " is neither a register nor a symbol with an address");
  }
}

uint32_t FunctionDecoder::source(const Operand& operand, Type type) {
  uint32_t width = registerWidth(type);
  switch (operand.kind) {
    case Operand::Kind::kInteger:
    case Operand::Kind::kFloat32:
    case Operand::Kind::kFloat64: return immediate(operand, type);
    case Operand::Kind::kName: break;
    default: syntaxError(operand.line, "expected a register or a constant");
  }
  if (std::optional<uint32_t> special = specialSource(operand.name, width, operand.line)) return *special;
  Binding symbol = resolve(operand.name, operand.line);
  if (symbol.kind != Binding::Kind::kRegister) {
    if (operand.isNegated) syntaxError(operand.line, "'!' needs a predicate");
    return symbolAddress(symbol, operand.offset, width, operand.name, operand.line);
  }
  if (operand.offset != 0)
    syntaxError(operand.line, "nothing can be added to the register " + quoted(operand.name) + " here");
  uint32_t actual = registerWidth(symbol.type);
  if (actual != width) {
    syntaxError(operand.line,
                "the register " + quoted(operand.name) + " has " + widthName(actual) + ", not " + widthName(width));
  }
  if (!operand.isNegated) return symbol.index;
  if (width != 1) syntaxError(operand.line, "'!' needs a predicate");
  InstructionNode node;
  node.line = operand.line;
  Draft& draft = emitUnguarded(node, select_.predicate(PredicateOp::kNot));
  uint32_t out = temporary(1);
  draft.instruction.op[0] = out;
  draft.instruction.op[1] = symbol.index;
  draft.writes = 1;
  return out;
}

uint32_t FunctionDecoder::predicateSource(const Operand& operand) { return source(operand, Type::kPred); }

uint32_t FunctionDecoder::anyRegister(const Operand& operand, uint32_t& width) {
  if (operand.kind != Operand::Kind::kName) syntaxError(operand.line, "expected a register");
  Binding symbol = resolve(operand.name, operand.line);
  if (symbol.kind != Binding::Kind::kRegister) syntaxError(operand.line, quoted(operand.name) + " is not a register");
  if (symbol.type == Type::kB128) syntaxError(operand.line, "the register " + quoted(operand.name) + " has 128 bits");
  width = registerWidth(symbol.type);
  return symbol.index;
}

FunctionDecoder::WideRegister FunctionDecoder::wideRegister(const Operand& operand) {
  const Binding* symbol = operand.kind == Operand::Kind::kName ? scopes_.find(scope_, operand.name) : nullptr;
  if (!symbol || symbol->kind != Binding::Kind::kRegister || symbol->type != Type::kB128)
    syntaxError(operand.line, "expected a register of 128 bits");
  return {symbol->index, symbol->index + 1};
}

uint32_t FunctionDecoder::anyDestination(const Operand& operand, uint32_t& width) {
  if (operand.isNegated) syntaxError(operand.line, "a destination cannot be negated");
  return anyRegister(operand, width);
}

uint32_t FunctionDecoder::destination(const Operand& operand, uint32_t width) {
  if (operand.kind == Operand::Kind::kSink) return temporary(width);
  uint32_t actual = 0;
  uint32_t out = anyDestination(operand, actual);
  if (actual != width) {
    syntaxError(operand.line,
                "the register " + quoted(operand.name) + " has " + widthName(actual) + ", not " + widthName(width));
  }
  return out;
}

uint32_t FunctionDecoder::guardOf(Node node, bool isInverted) {
  if (!node.hasGuard) return kNoOperand;
  Binding symbol = resolve(node.guard, node.line);
  if (symbol.kind != Binding::Kind::kRegister || symbol.type != Type::kPred) {
    syntaxError(node.line, "the guard " + quoted(node.guard) + " is not a predicate");
  }
  return node.isGuardNegated != isInverted ? symbol.index | kNegatedGuard : symbol.index;
}

Draft& FunctionDecoder::emitUnguarded(Node node, Handler handler) {
  if (!handler) unsupported(node.line, "the instruction " + quoted(node.fullName()));
  Draft& draft = draft_.code.emplace_back();
  draft.instruction.run = handler;
  draft.instruction.line = node.line;
  return draft;
}

Draft& FunctionDecoder::emit(Node node, Handler handler) {
  uint32_t guard = guardOf(node, false);
  Draft& draft = emitUnguarded(node, handler);
  draft.instruction.guard = guard;
  return draft;
}

Draft& FunctionDecoder::elementwise(Node node, Handler handler, Type destinationType,
                                    std::initializer_list<Type> sourceTypes) {
  expectOperands(node, 1 + sourceTypes.size());
  uint32_t sources[5];
  size_t count = 0;
  for (Type type : sourceTypes) {
    sources[count] = source(node.operands[count + 1], type);
    ++count;
  }
  Draft& draft = emit(node, handler);
  draft.instruction.op[0] = destination(node.operands[0], registerWidth(destinationType));
  for (size_t i = 0; i < count; ++i) draft.instruction.op[i + 1] = sources[i];
  draft.writes = 1;
  return draft;
}

uint32_t FunctionDecoder::newLabel() {
  draft_.labels.push_back(kNoLabel);
  return static_cast<uint32_t>(draft_.labels.size() - 1);
}

void FunctionDecoder::place(uint32_t label) { draft_.labels[label] = static_cast<uint32_t>(draft_.code.size()); }

void FunctionDecoder::emitBranch(Node node, uint32_t guard, uint32_t label, bool isUniform) {
  Draft& draft = emitUnguarded(node, select_.control(guard == kNoOperand ? ControlOp::kJump : ControlOp::kBranch));
  draft.instruction.guard = guard;
  draft.flow = Flow::kBranch;
  draft.label = label;
  draft.isUniform = isUniform;
}

}  // namespace millpond::softgpu::ptx
