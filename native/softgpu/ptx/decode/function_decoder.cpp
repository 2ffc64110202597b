// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/decode/function_decoder.h"

#include <algorithm>
#include <unordered_set>

namespace millpond::softgpu::ptx {
namespace {

constexpr uint64_t kMaxFrameBytes = 512 * 1024;

/// Instructions of PTX that this engine does not execute.
bool isKnownElsewhere(std::string_view opcode) {
  static const std::unordered_set<std::string_view> kOpcodes = {"clusterlaunchcontrol",
                                                                "istypep",
                                                                "multimem",
                                                                "suq",
                                                                "sured",
                                                                "tcgen05",
                                                                "tensormap",
                                                                "txq",
                                                                "vabsdiff",
                                                                "vmad",
                                                                "vset",
                                                                "vset2",
                                                                "vset4",
                                                                "vshl",
                                                                "vshr",
                                                                "wgmma"};
  return kOpcodes.contains(opcode);
}

}  // namespace

FunctionDecoder::FunctionDecoder(ModuleSymbols& module, const FunctionNode& function, uint32_t index,
                                 const std::vector<uint32_t>& parameterOffsets)
    : module_(module), function_(function), index_(index), select_(selectors()), scopes_(module.names) {
  declareAll(parameterOffsets);
}

uint32_t FunctionDecoder::allocateFrame(uint64_t bytes, uint64_t alignment, uint32_t line) {
  uint64_t offset = (localBytes_ + alignment - 1) / alignment * alignment;
  if (bytes > kMaxFrameBytes || offset + bytes > kMaxFrameBytes) {
    fail(CompileError::Kind::kMemory, line,
         "the local memory of function " + quoted(function_.name) + " exceeds " + std::to_string(kMaxFrameBytes) +
             " bytes");
  }
  localBytes_ = static_cast<uint32_t>(offset + bytes);
  return static_cast<uint32_t>(offset);
}

void FunctionDecoder::declareOrRefuse(uint32_t scope, std::string_view name, const Binding& symbol, uint32_t line) {
  if (!scopes_.declare(scope, name, symbol)) syntaxError(line, quoted(name) + " is declared twice");
}

void FunctionDecoder::declareFormals(const std::vector<uint32_t>& parameterOffsets) {
  if (function_.isEntry) {
    for (size_t i = 0; i < function_.parameters.size(); ++i) {
      const VariableNode& variable = function_.parameters[i].variable;
      if (function_.parameters[i].isRegister)
        syntaxError(variable.line, "a kernel's parameters must be in the param space");
      Binding symbol;
      symbol.kind = Binding::Kind::kParameter;
      symbol.offset = parameterOffsets[i];
      symbol.bytes = variable.bytes();
      declareOrRefuse(0, variable.name, symbol, variable.line);
    }
    return;
  }
  const Signature& signature = module_.signatures[index_];
  localBytes_ = signature.bytes;
  auto declare = [&](const FormalNode& formal, const CallValue& place, bool isReturn) {
    Binding symbol;
    if (formal.isRegister) {
      symbol.kind = Binding::Kind::kRegister;
      symbol.type = formal.variable.type;
      symbol.index = scopes_.newRegister(symbol.type);
      if (isReturn) returnRegisters_.emplace_back(symbol.index, place.calleeOffset);
    } else {
      symbol.kind = Binding::Kind::kFrame;
      symbol.space = Space::kParam;
      symbol.offset = place.calleeOffset;
      symbol.bytes = place.bytes;
    }
    declareOrRefuse(0, formal.variable.name, symbol, formal.variable.line);
  };
  for (size_t i = 0; i < function_.returns.size(); ++i) declare(function_.returns[i], signature.returns[i], true);
  for (size_t i = 0; i < function_.parameters.size(); ++i)
    declare(function_.parameters[i], signature.parameters[i], false);
}

void FunctionDecoder::declareVariable(uint32_t scope, const VariableNode& variable) {
  Binding symbol;
  if (variable.space == Space::kParam) {
    // Arguments and results of calls, which share memory scope by scope.
    symbol.kind = Binding::Kind::kFrame;
    symbol.space = Space::kParam;
    symbol.bytes = variable.bytes();
    uint64_t alignment = variable.effectiveAlignment();
    uint64_t offset = (scopedBytes_ + alignment - 1) / alignment * alignment;
    if (offset + symbol.bytes > kMaxFrameBytes) {
      fail(CompileError::Kind::kMemory, variable.line, "the arguments of calls take too much space");
    }
    symbol.offset = static_cast<uint32_t>(offset);
    scopedBytes_ = static_cast<uint32_t>(offset + symbol.bytes);
    localBytes_ = std::max(localBytes_, scopedBytes_);
  } else {
    symbol = module_.add(variable);
  }
  declareOrRefuse(scope, variable.name, symbol, variable.line);
}

/// Functions with the same signature: the first of them represents their prototype.
void FunctionDecoder::declareCallTargets(uint32_t scope, const CallTargetsNode& targets) {
  std::optional<uint32_t> first;
  for (const std::string_view name : targets.functions) {
    const auto found = module_.names.find(name);
    if (found == module_.names.end() || found->second.kind != Binding::Kind::kFunction)
      syntaxError(targets.line, quoted(name) + " is not a function");
    const Signature& signature = module_.signatures[found->second.index];
    if (first && signature.hash != module_.signatures[*first].hash)
      syntaxError(targets.line, quoted(name) + " has other parameters than " + quoted(targets.functions[0]));
    first = first.value_or(found->second.index);
  }
  Binding symbol;
  symbol.kind = Binding::Kind::kPrototype;
  symbol.index = static_cast<uint32_t>(prototypes_.size());
  prototypes_.push_back(module_.signatures[*first]);
  declareOrRefuse(scope, targets.name, symbol, targets.line);
}

void FunctionDecoder::declareAll(const std::vector<uint32_t>& parameterOffsets) {
  declareFormals(parameterOffsets);
  std::vector<uint32_t> localOffsets;
  for (const Statement& statement : function_.body) {
    const VariableNode* variable = std::get_if<VariableNode>(&statement);
    if (!variable || variable->space != Space::kLocal) continue;
    localOffsets.push_back(allocateFrame(variable->bytes(), variable->effectiveAlignment(), variable->line));
  }
  // Locals live as long as the frame, whatever their scope, because their addresses may be stored.
  size_t nextLocal = 0;
  scopedBytes_ = localBytes_;
  std::vector<uint32_t> openBytes;
  uint32_t scope = 0;
  for (const Statement& statement : function_.body) {
    if (const ScopeNode* node = std::get_if<ScopeNode>(&statement)) {
      if (node->isOpening) {
        openBytes.push_back(scopedBytes_);
        scope = scopes_.open(scope);
      } else {
        scopedBytes_ = openBytes.back();
        openBytes.pop_back();
        scope = scopes_.parent(scope);
      }
    } else if (const RegisterNode* reg = std::get_if<RegisterNode>(&statement)) {
      if (reg->isRange) {
        if (!scopes_.declareRange(scope, reg->name, reg->type, reg->count)) {
          syntaxError(reg->line, quoted(reg->name) + " is declared twice");
        }
      } else {
        Binding symbol;
        symbol.kind = Binding::Kind::kRegister;
        symbol.type = reg->type;
        symbol.index = scopes_.newRegister(reg->type);
        declareOrRefuse(scope, reg->name, symbol, reg->line);
      }
    } else if (const VariableNode* variable = std::get_if<VariableNode>(&statement)) {
      if (variable->space == Space::kLocal) {
        Binding symbol;
        symbol.kind = Binding::Kind::kFrame;
        symbol.space = Space::kLocal;
        symbol.offset = localOffsets[nextLocal++];
        symbol.bytes = variable->bytes();
        declareOrRefuse(scope, variable->name, symbol, variable->line);
      } else {
        declareVariable(scope, *variable);
      }
    } else if (const LabelNode* label = std::get_if<LabelNode>(&statement)) {
      Binding symbol;
      symbol.kind = Binding::Kind::kLabel;
      symbol.index = newLabel();
      declareOrRefuse(scope, label->name, symbol, label->line);
    } else if (const BranchTargetsNode* targets = std::get_if<BranchTargetsNode>(&statement)) {
      Binding symbol;
      symbol.kind = Binding::Kind::kBranchTargets;
      symbol.index = static_cast<uint32_t>(branchTargets_.size());
      branchTargets_.push_back(targets->labels);
      declareOrRefuse(scope, targets->name, symbol, function_.line);
    } else if (const PrototypeNode* prototype = std::get_if<PrototypeNode>(&statement)) {
      Binding symbol;
      symbol.kind = Binding::Kind::kPrototype;
      symbol.index = static_cast<uint32_t>(prototypes_.size());
      prototypes_.push_back(signatureOf(prototype->returns, prototype->parameters));
      declareOrRefuse(scope, prototype->name, symbol, prototype->line);
    } else if (const CallTargetsNode* callees = std::get_if<CallTargetsNode>(&statement)) {
      declareCallTargets(scope, *callees);
    }
  }
  callBytes_ = localBytes_;
}

/// A function that allocates from the stack frees that memory when it returns.
void FunctionDecoder::keepStack() {
  const bool allocates = std::any_of(function_.body.begin(), function_.body.end(), [](const Statement& statement) {
    const InstructionNode* node = std::get_if<InstructionNode>(&statement);
    return node && node->opcode == "alloca";
  });
  if (!allocates) return;
  stackAtEntry_ = temporary(32);
  emitStack({}, ControlOp::kStackSave32, *stackAtEntry_, true);
}

void FunctionDecoder::run() {
  static const InstructionNode kNoNode;
  if (!function_.isEntry) {
    epilogue_ = newLabel();
    keepStack();
    const Signature& signature = module_.signatures[index_];
    for (size_t i = 0; i < function_.parameters.size(); ++i) {
      if (!function_.parameters[i].isRegister) continue;
      const VariableNode& variable = function_.parameters[i].variable;
      Draft& draft = emitUnguarded(kNoNode, select_.load(Space::kParam, 64));
      draft.instruction.op[0] = resolve(variable.name, variable.line).index;
      draft.writes = 1;
      draft.instruction.immediate = signature.parameters[i].calleeOffset;
      draft.instruction.access = {static_cast<uint8_t>(bytesOf(variable.type)), 1, 0};
      draft.instruction.move = select_.loadMover(variable.type, registerWidth(variable.type), 1, false);
    }
  }
  std::vector<uint32_t> open;
  uint32_t scopes = 0;
  for (const Statement& statement : function_.body) {
    if (const InstructionNode* node = std::get_if<InstructionNode>(&statement)) {
      decode(*node);
    } else if (const LabelNode* label = std::get_if<LabelNode>(&statement)) {
      place(resolve(label->name, label->line).index);
    } else if (const ScopeNode* node2 = std::get_if<ScopeNode>(&statement)) {
      // Scopes were numbered in the order in which they open.
      if (node2->isOpening) {
        open.push_back(scope_);
        scope_ = ++scopes;
      } else {
        scope_ = open.back();
        open.pop_back();
      }
    }
  }
  if (epilogue_ != kNoLabel) {
    place(epilogue_);
    if (stackAtEntry_) emitStack(kNoNode, ControlOp::kStackRestore32, *stackAtEntry_, false);
    for (auto [reg, offset] : returnRegisters_) {
      uint32_t width = scopes_.registerWidths()[reg];
      Type type = unsignedOf(width == 1 ? 32 : width);
      Draft& draft = emitUnguarded(kNoNode, select_.store(Space::kParam, 64));
      draft.instruction.op[0] = reg;
      draft.instruction.immediate = offset;
      draft.instruction.access = {static_cast<uint8_t>(bytesOf(type)), 1, 0};
      draft.instruction.move = select_.storeMover(type, width, 1, false);
    }
    emitUnguarded(kNoNode, select_.control(ControlOp::kReturn)).flow = Flow::kReturn;
  } else {
    // A kernel that runs past its end, such as one whose last label is followed by nothing, ends there.
    emitUnguarded(kNoNode, select_.control(ControlOp::kExit)).flow = Flow::kReturn;
  }
}

FunctionDraft FunctionDecoder::takeDraft() {
  draft_.registers = scopes_.registerWidths();
  return std::move(draft_);
}

void FunctionDecoder::decode(Node node) {
  Member member = memberFor(node.opcode);
  if (!member && !isKnownElsewhere(node.opcode))
    syntaxError(node.line, "there is no instruction " + quoted(node.fullName()));
  if (!member) unsupported(node.line, "the instruction " + quoted(node.fullName()));
  (this->*member)(node);
}

FunctionDecoder::Member FunctionDecoder::memberFor(std::string_view opcode) {
  using D = FunctionDecoder;
  static const std::unordered_map<std::string_view, Member> kMembers = {
      {"add", &D::integerOrFloat},
      {"sub", &D::integerOrFloat},
      {"min", &D::integerOrFloat},
      {"max", &D::integerOrFloat},
      {"abs", &D::integerOrFloat},
      {"neg", &D::integerOrFloat},
      {"rem", &D::integerOrFloat},
      {"sad", &D::integerOrFloat},
      {"mul", &D::multiply},
      {"mad", &D::multiplyAdd},
      {"fma", &D::multiplyAdd},
      {"div", &D::divide},
      {"addc", &D::carry},
      {"subc", &D::carry},
      {"madc", &D::carry},
      {"mul24", &D::multiply24},
      {"mad24", &D::multiply24},
      {"dp4a", &D::dot},
      {"vabsdiff", &D::scalarVideo},
      {"vadd", &D::scalarVideo},
      {"vmad", &D::scalarVideo},
      {"vset", &D::scalarVideo},
      {"vset2", &D::video},
      {"vset4", &D::video},
      {"vshl", &D::scalarVideo},
      {"vshr", &D::scalarVideo},
      {"vsub", &D::scalarVideo},
      {"vmin", &D::scalarVideo},
      {"vmax", &D::scalarVideo},
      {"vadd2", &D::video},
      {"vadd4", &D::video},
      {"vsub2", &D::video},
      {"vsub4", &D::video},
      {"vavrg2", &D::video},
      {"vavrg4", &D::video},
      {"vabsdiff2", &D::video},
      {"vabsdiff4", &D::video},
      {"vmin2", &D::video},
      {"vmin4", &D::video},
      {"vmax2", &D::video},
      {"vmax4", &D::video},
      {"dp2a", &D::dot},
      {"rcp", &D::approximate},
      {"sqrt", &D::approximate},
      {"rsqrt", &D::approximate},
      {"sin", &D::approximate},
      {"cos", &D::approximate},
      {"lg2", &D::approximate},
      {"ex2", &D::approximate},
      {"tanh", &D::approximate},
      {"testp", &D::testProperty},
      {"copysign", &D::copySign},
      {"and", &D::logic},
      {"or", &D::logic},
      {"xor", &D::logic},
      {"not", &D::logic},
      {"cnot", &D::logic},
      {"shl", &D::shift},
      {"shr", &D::shift},
      {"popc", &D::countBits},
      {"clz", &D::countBits},
      {"bfind", &D::countBits},
      {"brev", &D::countBits},
      {"bfe", &D::bitField},
      {"bfi", &D::bitField},
      {"lop3", &D::lookup3},
      {"shf", &D::funnelShift},
      {"prmt", &D::permute},
      {"bmsk", &D::mask},
      {"szext", &D::mask},
      {"fns", &D::findNth},
      {"selp", &D::select},
      {"setp", &D::compare},
      {"set", &D::compareSet},
      {"slct", &D::selectBySign},
      {"mov", &D::move},
      {"cvt", &D::convert},
      {"cvta", &D::convertAddress},
      {"isspacep", &D::isSpace},
      {"alloca", &D::allocate},
      {"stacksave", &D::stack},
      {"stackrestore", &D::stack},
      {"ld", &D::load},
      {"ldu", &D::load},
      {"st", &D::store},
      {"atom", &D::atomic},
      {"red", &D::atomic},
      {"membar", &D::fence},
      {"fence", &D::fence},
      {"prefetch", &D::prefetch},
      {"prefetchu", &D::prefetch},
      {"applypriority", &D::prefetch},
      {"discard", &D::prefetch},
      {"bra", &D::branch},
      {"brx", &D::branchTable},
      {"call", &D::call},
      {"ret", &D::finishFunction},
      {"exit", &D::finishFunction},
      {"trap", &D::trap},
      {"brkpt", &D::nothing},
      {"pmevent", &D::nothing},
      {"nanosleep", &D::pause},
      {"shfl", &D::shuffle},
      {"vote", &D::vote},
      {"match", &D::match},
      {"redux", &D::reduceAcross},
      {"cp", &D::copyAsync},
      {"mbarrier", &D::memoryBarrier},
      {"createpolicy", &D::cachePolicy},
      {"mapa", &D::clusterAddress},
      {"getctarank", &D::clusterAddress},
      {"griddepcontrol", &D::nothing},
      {"setmaxnreg", &D::nothing},
      {"wmma", &D::warpMatrix},
      {"mma", &D::matrixMultiply},
      {"ldmatrix", &D::matrixRows},
      {"stmatrix", &D::matrixRows},
      {"movmatrix", &D::transposeMatrix},
      {"activemask", &D::activeMask},
      {"elect", &D::elect},
      {"tex", &D::texture},
      {"tld4", &D::texture},
      {"suld", &D::surface},
      {"sust", &D::surface},
      {"bar", &D::barrier},
      {"barrier", &D::barrier},
  };
  auto found = kMembers.find(opcode);
  return found == kMembers.end() ? nullptr : found->second;
}

}  // namespace millpond::softgpu::ptx
