// SPDX-License-Identifier: Apache-2.0
// Branches, calls and ends.
#include <algorithm>
#include <bit>

#include "softgpu/ptx/decode/function_decoder.h"
#include "softgpu/ptx/run/builtins.h"

namespace millpond::softgpu::ptx {
namespace {

bool matches(const BuiltinFunction& builtin, const Signature& signature) {
  if (signature.returns.size() != (builtin.returnBytes ? 1u : 0u)) return false;
  if (builtin.returnBytes && signature.returns[0].bytes != builtin.returnBytes) return false;
  if (signature.parameters.size() != builtin.parameterBytes.size()) return false;
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    if (signature.parameters[i].bytes != builtin.parameterBytes[i]) return false;
  }
  return true;
}

/// Whether kernels call it to launch kernels, or for other calls of the runtime API.
bool isOfDeviceRuntime(std::string_view name) {
  constexpr std::string_view kPrefixes[] = {"__cudaCDP", "cudaLaunchDevice", "cudaGetParameterBuffer"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

void FunctionDecoder::branch(Node node) {
  Modifiers modifiers(node);
  bool isUniform = modifiers.take(".uni");
  modifiers.finish();
  expectOperands(node, 1);
  if (node.operands[0].kind != Operand::Kind::kName) syntaxError(node.line, "a branch needs a label");
  Binding label = resolve(node.operands[0].name, node.line);
  if (label.kind != Binding::Kind::kLabel) syntaxError(node.line, quoted(node.operands[0].name) + " is not a label");
  emitBranch(node, guardOf(node, false), label.index, isUniform);
}

void FunctionDecoder::branchTable(Node node) {
  Modifiers modifiers(node);
  if (!modifiers.take(".idx")) modifiers.refuse();
  bool isUniform = modifiers.take(".uni");
  modifiers.finish();
  expectOperands(node, 2);
  branchAround(node, [&] {
    uint32_t index = source(node.operands[0], Type::kU32);
    Binding list = resolve(node.operands[1].name, node.line);
    if (list.kind != Binding::Kind::kBranchTargets)
      syntaxError(node.line, quoted(node.operands[1].name) + " is not a list of branch targets");
    std::vector<uint32_t> labels;
    for (std::string_view name : branchTargets_[list.index]) {
      Binding label = resolve(name, node.line);
      if (label.kind != Binding::Kind::kLabel) syntaxError(node.line, quoted(name) + " is not a label");
      labels.push_back(label.index);
    }
    Draft& draft = emitUnguarded(node, select_.control(ControlOp::kBranchTable));
    draft.instruction.op[0] = index;
    draft.flow = Flow::kTable;
    draft.isUniform = isUniform;
    draft.table = static_cast<uint32_t>(draft_.tables.size());
    draft_.tables.push_back(std::move(labels));
  });
}

/// The position of a call's argument or result in the caller's frame. Registers and numbers are stored there first.
CallValue FunctionDecoder::callArgument(Node node, const Operand& operand, const CallValue& formal, bool isReturn) {
  CallValue value = formal;
  if (operand.kind == Operand::Kind::kName) {
    Binding binding = resolve(operand.name, node.line);
    if (binding.kind == Binding::Kind::kFrame) {
      if (binding.bytes != formal.bytes) {
        syntaxError(node.line, quoted(operand.name) + " has " + std::to_string(binding.bytes) +
                                   " bytes, the function's parameter has " + std::to_string(formal.bytes));
      }
      value.callerOffset = binding.offset;
      return value;
    }
  }
  if (formal.bytes != 2 && formal.bytes != 4 && formal.bytes != 8) {
    syntaxError(node.line, "a register cannot be passed as a parameter of " + std::to_string(formal.bytes) + " bytes");
  }
  Type type = unsignedOf(formal.bytes * 8);
  uint32_t offset = (scopedBytes_ + 15) / 16 * 16;  // at most 64 KiB of formals above a frame of at most 512 KiB
  scopedBytes_ = offset + formal.bytes;
  localBytes_ = std::max(localBytes_, scopedBytes_);
  value.callerOffset = offset;
  if (isReturn) return value;
  uint32_t from = source(operand, type);
  Draft& draft = emitUnguarded(node, select_.store(Space::kParam, 64));
  draft.instruction.op[0] = from;
  draft.instruction.immediate = offset;
  draft.instruction.access = {static_cast<uint8_t>(formal.bytes), 1, 0};
  draft.instruction.move = select_.storeMover(type, bitsOf(type), 1, false);
  return value;
}

void FunctionDecoder::call(Node node) {
  Modifiers modifiers(node);
  modifiers.take(".uni");
  modifiers.finish();
  size_t at = 0;
  static const std::vector<Operand> kNone;
  const std::vector<Operand>* returns = &kNone;
  const std::vector<Operand>* arguments = &kNone;
  if (at < node.operands.size() && node.operands[at].kind == Operand::Kind::kList) returns = &node.operands[at++].items;
  if (at >= node.operands.size() || node.operands[at].kind != Operand::Kind::kName)
    syntaxError(node.line, "a call needs a function");
  const Operand& callee = node.operands[at++];
  if (at < node.operands.size() && node.operands[at].kind == Operand::Kind::kList)
    arguments = &node.operands[at++].items;
  Binding target = resolve(callee.name, node.line);
  const Signature* signature = nullptr;
  const BuiltinFunction* builtin = nullptr;
  if (target.kind == Binding::Kind::kFunction) {
    const FunctionNode& function = *module_.functions[target.index];
    if (function.isEntry) syntaxError(node.line, "the kernel " + quoted(callee.name) + " cannot be called");
    signature = &module_.signatures[target.index];
    if (function.hasBody) {
      module_.uses[index_].callees.push_back(target.index);
    } else {
      builtin = findBuiltin(callee.name);
      if (!builtin && isOfDeviceRuntime(callee.name))
        unsupported(node.line, "dynamic parallelism, here a call of " + quoted(callee.name) + ",");
      if (!builtin || !matches(*builtin, *signature)) {
        fail(CompileError::Kind::kUnresolved, node.line,
             "the function " + quoted(callee.name) + " is called, but nothing defines it");
      }
      module_.uses[index_].prints |= builtin->which == Builtin::kPrint;
      module_.uses[index_].usesHeap |= builtin->which == Builtin::kAllocate || builtin->which == Builtin::kRelease;
    }
  } else if (target.kind == Binding::Kind::kRegister) {
    if (at >= node.operands.size()) syntaxError(node.line, "an indirect call needs a prototype");
    Binding prototype = resolve(node.operands[at++].name, node.line);
    if (prototype.kind != Binding::Kind::kPrototype)
      syntaxError(node.line, "an indirect call needs a prototype, or the functions that it may call");
    signature = &prototypes_[prototype.index];
    module_.uses[index_].callsIndirectly = true;
  } else {
    syntaxError(node.line, quoted(callee.name) + " is not a function");
  }
  if (signature->returns.size() != returns->size() || signature->parameters.size() != arguments->size()) {
    syntaxError(node.line, "the call passes " + std::to_string(arguments->size()) + " parameters and takes " +
                               std::to_string(returns->size()) + " results; the function has " +
                               std::to_string(signature->parameters.size()) + " and " +
                               std::to_string(signature->returns.size()));
  }
  branchAround(node, [&] {
    uint32_t before = scopedBytes_;
    scopedBytes_ = callBytes_;  // above everything that is declared
    CallDraft draft;
    draft.signature = signature->hash;
    draft.argumentCount = static_cast<uint32_t>(arguments->size());
    for (size_t i = 0; i < arguments->size(); ++i) {
      draft.values.push_back(callArgument(node, (*arguments)[i], signature->parameters[i], false));
    }
    for (size_t i = 0; i < returns->size(); ++i) {
      draft.values.push_back(callArgument(node, (*returns)[i], signature->returns[i], true));
    }
    uint32_t address = target.kind == Binding::Kind::kRegister ? source(callee, Type::kU64) : kNoOperand;
    bool isDirect = address == kNoOperand;
    ControlOp op = builtin ? ControlOp::kCallBuiltin : isDirect ? ControlOp::kCall : ControlOp::kCallIndirect;
    Draft& out = emitUnguarded(node, select_.control(op));
    out.instruction.op[0] = address;
    out.instruction.immediate = builtin    ? static_cast<int64_t>(builtin->which)
                                : isDirect ? static_cast<int64_t>(target.index)
                                           : static_cast<int64_t>(signature->hash);
    out.isCall = true;
    out.table = static_cast<uint32_t>(draft_.calls.size());
    std::vector<CallValue> values = draft.values;
    size_t argumentCount = draft.argumentCount;
    draft_.calls.push_back(std::move(draft));
    if (!isDirect) emitUnguarded(node, select_.control(ControlOp::kJoin)).flow = Flow::kJoin;
    // Results that were named as registers are read from where the call left them.
    for (size_t i = 0; i < returns->size(); ++i) {
      const Operand& operand = (*returns)[i];
      if (operand.kind == Operand::Kind::kName && resolve(operand.name, node.line).kind == Binding::Kind::kFrame)
        continue;
      const CallValue& value = values[argumentCount + i];
      uint32_t width = value.bytes * 8;
      Draft& fetch = emitUnguarded(node, select_.load(Space::kParam, 64));
      fetch.instruction.op[0] = destination(operand, width);
      fetch.writes = 1;
      fetch.instruction.immediate = value.callerOffset;
      fetch.instruction.access = {static_cast<uint8_t>(value.bytes), 1, 0};
      fetch.instruction.move = select_.loadMover(unsignedOf(width), width, 1, false);
    }
    scopedBytes_ = before;
  });
}

void FunctionDecoder::finishFunction(Node node) {
  Modifiers modifiers(node);
  modifiers.take(".uni");
  modifiers.finish();
  expectOperands(node, 0);
  if (node.opcode == "ret" && !function_.isEntry) {
    emitBranch(node, guardOf(node, false), epilogue_, false);
    return;
  }
  emit(node, select_.control(ControlOp::kExit)).flow = node.opcode == "ret" ? Flow::kReturn : Flow::kEnd;
}

void FunctionDecoder::trap(Node node) {
  expectOperands(node, 0);
  emit(node, select_.control(ControlOp::kTrap)).flow = Flow::kEnd;
}

Draft& FunctionDecoder::emitStack(Node node, ControlOp op, uint32_t reg, bool isWritten) {
  Draft& draft = emit(node, select_.control(op));
  draft.instruction.op[0] = reg;
  draft.writes = isWritten ? 1 : 0;
  return draft;
}

/// Memory that lives until the function that requested it returns.
void FunctionDecoder::allocate(Node node) {
  Modifiers modifiers(node);
  const Type type = modifiers.expectType();
  if (type != Type::kU32 && type != Type::kU64) modifiers.refuse();
  modifiers.finish();
  expectOperands(node, 2, 3);
  constexpr uint64_t kDefaultAlignment = 8;
  constexpr uint64_t kMaxAlignment = uint64_t{1} << 23;
  uint64_t alignment = kDefaultAlignment;
  if (node.operands.size() == 3) {
    if (node.operands[2].kind != Operand::Kind::kInteger) syntaxError(node.line, "the alignment has to be a constant");
    alignment = node.operands[2].bits;
  }
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignment)
    syntaxError(node.line, "the alignment has to be a power of two, at most 8388608");
  const uint32_t size = source(node.operands[1], type);
  const uint32_t out = destination(node.operands[0], registerWidth(type));
  Draft& draft = emitStack(node, type == Type::kU64 ? ControlOp::kAllocate64 : ControlOp::kAllocate32, out, true);
  draft.instruction.op[1] = size;
  draft.instruction.immediate = static_cast<int64_t>(alignment);
  module_.uses[index_].allocatesStack = true;
}

void FunctionDecoder::stack(Node node) {
  Modifiers modifiers(node);
  const Type type = modifiers.expectType();
  if (type != Type::kU32 && type != Type::kU64) modifiers.refuse();
  modifiers.finish();
  expectOperands(node, 1);
  const bool isWide = type == Type::kU64;
  if (node.opcode == "stacksave")
    emitStack(node, isWide ? ControlOp::kStackSave64 : ControlOp::kStackSave32,
              destination(node.operands[0], registerWidth(type)), true);
  else
    emitStack(node, isWide ? ControlOp::kStackRestore64 : ControlOp::kStackRestore32, source(node.operands[0], type),
              false);
}

void FunctionDecoder::nothing(Node node) { emit(node, select_.control(ControlOp::kNothing)); }

void FunctionDecoder::pause(Node node) {
  Modifiers modifiers(node);
  modifiers.expectType();
  modifiers.finish();
  branchAround(node, [&] { emitUnguarded(node, select_.control(ControlOp::kPause)); });
}

}  // namespace millpond::softgpu::ptx
