// SPDX-License-Identifier: Apache-2.0
// From PTX text to a program: parse, decode each function, lay out shared memory, stacks and constants.
#include <algorithm>
#include <cstring>
#include <new>

#include "softgpu/ptx/decode/flow.h"
#include "softgpu/ptx/decode/function_decoder.h"
#include "softgpu/ptx/decode/registers.h"
#include "softgpu/ptx/failure.h"
#include "softgpu/ptx/parse/parser.h"

namespace millpond::softgpu::ptx {
namespace {

constexpr uint64_t kMaxStaticSharedBytes = 48 * 1024;
constexpr uint64_t kMaxConstBytes = 64 * 1024;
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

uint64_t roundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

class Compiler {
 public:
  Compiler(std::string_view text, Checks checks) : module_(parse(text)), program_(std::make_unique<ProgramImpl>()) {
    program_->checks = symbols_.checks = checks;
  }

  std::unique_ptr<const ProgramImpl> run() {
    program_->ptxVersion = module_.version;
    program_->target = module_.target;
    collectSymbols(module_, symbols_);
    program_->functions.resize(symbols_.functions.size());
    for (uint32_t f = 0; f < symbols_.functions.size(); ++f) function(f);
    for (const VariableNode& variable : symbols_.globals) image(variable);
    for (uint32_t f = 0; f < symbols_.functions.size(); ++f) {
      if (symbols_.functions[f]->isEntry && symbols_.functions[f]->hasBody) kernel(f);
    }
    layOutShared();
    symbols_.constants.finish(sharedOffsets_, *program_);
    uint32_t constBytes = countConstBytes();
    for (KernelInfo& info : program_->kernels) info.constBytes = constBytes;
    if (program_->checks.any()) rememberPlaces();
    return std::move(program_);
  }

 private:
  static std::vector<uint32_t> parameterOffsets(const FunctionNode& function, KernelInfo* info) {
    std::vector<uint32_t> offsets;
    uint64_t end = 0;
    for (const FormalNode& formal : function.parameters) {
      const VariableNode& variable = formal.variable;
      uint64_t alignment = variable.effectiveAlignment();
      uint64_t offset = roundUp(end, alignment);
      end = offset + variable.bytes();
      if (end > kMaxParameterBytes) {
        fail(CompileError::Kind::kMemory, variable.line,
             "the parameters of kernel " + quoted(function.name) + " exceed " + std::to_string(kMaxParameterBytes) +
                 " bytes");
      }
      offsets.push_back(static_cast<uint32_t>(offset));
      if (info) {
        info->parameters.push_back(
            {offsets.back(), static_cast<uint32_t>(variable.bytes()), static_cast<uint32_t>(alignment)});
        info->parameterBytes = static_cast<uint32_t>(end);
      }
    }
    return offsets;
  }

  void function(uint32_t index) {
    const FunctionNode& node = *symbols_.functions[index];
    FunctionCode& code = program_->functions[index];
    code.name = node.name;
    code.isEntry = node.isEntry;
    code.hasBody = node.hasBody;
    code.signature = symbols_.signatures[index].hash;
    if (!node.hasBody) return;
    FunctionDecoder decoder(symbols_, node, index,
                            node.isEntry ? parameterOffsets(node, nullptr) : std::vector<uint32_t>());
    decoder.run();
    code.localBytes = static_cast<uint32_t>(roundUp(decoder.localBytes(), 16));
    finish(code, decoder.takeDraft());
  }

  /// Allocates registers and resolves everything to which instructions refer.
  static void finish(FunctionCode& code, FunctionDraft draft) {
    const Selectors& select = selectors();
    std::vector<uint32_t> joins;
    insertJoins(draft, select.control(ControlOp::kJoin), joins);
    RegisterLayout layout = assignRegisters(draft);
    code.registerBytes = layout.frameBytes;
    code.registers = layout.registers;
    code.code.reserve(draft.code.size());
    for (const Draft& item : draft.code) code.code.push_back(item.instruction);
    code.matrices = std::move(draft.matrices);
    const Instruction* first = code.code.data();
    for (size_t i = 0; i < draft.code.size(); ++i) {
      const Draft& item = draft.code[i];
      Instruction& out = code.code[i];
      const Instruction* join = joins[i] == kNoBlock ? nullptr : first + joins[i];
      if (item.flow == Flow::kBranch) {
        out.target = first + draft.labels[item.label];
        out.join = join;
        bool isBackward = out.target <= first + i;
        if (isBackward)
          out.run = select.control(item.isGuarded() ? ControlOp::kBranchBackward : ControlOp::kJumpBackward);
      } else if (item.flow == Flow::kTable) {
        std::vector<const Instruction*> targets;
        for (uint32_t label : draft.tables[item.table]) targets.push_back(first + draft.labels[label]);
        code.tableTargets.push_back(std::move(targets));
        const std::vector<const Instruction*>& kept = code.tableTargets.back();
        code.tables.push_back(
            std::make_unique<BranchTable>(BranchTable{kept.data(), static_cast<uint32_t>(kept.size())}));
        out.table = code.tables.back().get();
        out.join = join;
      } else if (item.isCall) {
        CallDraft& call = draft.calls[item.table];
        uint32_t returns = static_cast<uint32_t>(call.values.size()) - call.argumentCount;
        code.callValues.push_back(std::move(call.values));
        code.callSites.push_back(
            std::make_unique<CallSite>(CallSite{code.callValues.back().data(), call.argumentCount, returns}));
        out.table = code.callSites.back().get();
        // An indirect call is followed by the place where its lanes reconverge.
        out.join = first + i + 1;
      }
    }
  }

  void kernel(uint32_t index) {
    const FunctionNode& node = *symbols_.functions[index];
    KernelInfo info;
    info.name = node.name;
    parameterOffsets(node, &info);
    uint64_t limit = kMaxThreadsPerBlock;
    if (node.maxThreads[0]) {
      limit = std::min<uint64_t>(limit, uint64_t{node.maxThreads[0]} * node.maxThreads[1] * node.maxThreads[2]);
    }
    if (node.requiredThreads[0]) {
      info.requiredBlock = Dim3{node.requiredThreads[0], node.requiredThreads[1], node.requiredThreads[2]};
      limit = std::min(limit, info.requiredBlock->count());
    }
    info.maxThreads = static_cast<uint32_t>(limit);
    KernelCode code;
    code.function = index;
    code.stackBytes = stackOf(index);
    info.localBytes = code.stackBytes ? *code.stackBytes : program_->functions[index].localBytes;
    for (uint32_t f : reachable(index)) {
      info.registers = std::max(info.registers, program_->functions[f].registers);
      info.usesDynamicShared |= symbols_.uses[f].usesDynamicShared;
      info.usesHeap |= symbols_.uses[f].usesHeap;
      info.prints |= symbols_.uses[f].prints;
    }
    program_->kernels.push_back(std::move(info));
    program_->kernelCode.push_back(code);
  }

  /// The function and all functions that it may call, directly or through pointers.
  const std::vector<uint32_t>& reachable(uint32_t index) {
    auto [place, isNew] = reachable_.try_emplace(index);
    if (!isNew) return place->second;
    std::vector<bool> isSeen(symbols_.functions.size());
    std::vector<uint32_t> open{index};
    isSeen[index] = true;
    auto visit = [&](uint32_t f) {
      if (isSeen[f]) return;
      isSeen[f] = true;
      open.push_back(f);
    };
    std::vector<uint32_t> found;
    while (!open.empty()) {
      uint32_t f = open.back();
      open.pop_back();
      found.push_back(f);
      for (uint32_t callee : symbols_.uses[f].callees) visit(callee);
      if (!symbols_.uses[f].callsIndirectly) continue;
      for (uint32_t g = 0; g < symbols_.functions.size(); ++g) {
        if (symbols_.isAddressTaken[g] && symbols_.functions[g]->hasBody) visit(g);
      }
    }
    place->second = std::move(found);
    return place->second;
  }

  /// Local memory of the deepest chain of calls from a function on; none if calls may be recursive or allocate from the
  /// stack.
  std::optional<uint32_t> stackOf(uint32_t index) {
    enum class Mark : uint8_t { kNew, kOpen, kDone };
    std::vector<Mark> marks(symbols_.functions.size(), Mark::kNew);
    std::vector<uint64_t> bytes(symbols_.functions.size());
    std::vector<std::pair<uint32_t, size_t>> path{{index, 0}};
    marks[index] = Mark::kOpen;
    while (!path.empty()) {
      auto& [f, next] = path.back();
      const FunctionUse& use = symbols_.uses[f];
      if (use.callsIndirectly || use.allocatesStack) return std::nullopt;
      if (next < use.callees.size()) {
        uint32_t callee = use.callees[next++];
        if (marks[callee] == Mark::kOpen) return std::nullopt;
        if (marks[callee] == Mark::kNew) {
          marks[callee] = Mark::kOpen;
          path.emplace_back(callee, 0);
        }
        continue;
      }
      uint64_t deepest = 0;
      for (uint32_t callee : use.callees) deepest = std::max(deepest, bytes[callee]);
      // Each call takes some memory, even for functions without local memory.
      bytes[f] = std::max<uint64_t>(program_->functions[f].localBytes, use.callees.empty() ? 0 : 16) + deepest;
      marks[f] = Mark::kDone;
      path.pop_back();
    }
    return static_cast<uint32_t>(std::min<uint64_t>(bytes[index], UINT32_MAX));
  }

  /// Offsets of shared variables: two of them overlap only if no kernel uses both.
  void layOutShared() {
    std::vector<std::vector<uint32_t>> users(symbols_.shared.size());
    for (uint32_t k = 0; k < program_->kernels.size(); ++k) {
      for (uint32_t f : reachable(program_->kernelCode[k].function)) {
        for (uint32_t v : symbols_.uses[f].sharedVariables) {
          if (users[v].empty() || users[v].back() != k) users[v].push_back(k);
        }
      }
    }
    std::vector<std::vector<std::pair<uint64_t, uint64_t>>> taken(program_->kernels.size());
    sharedOffsets_.assign(symbols_.shared.size(), 0);
    for (uint32_t v = 0; v < symbols_.shared.size(); ++v) {
      const SharedVariable& variable = symbols_.shared[v];
      uint64_t offset = 0;
      for (bool isFree = false; !isFree;) {
        isFree = true;
        for (uint32_t k : users[v]) {
          for (auto [begin, end] : taken[k]) {
            if (offset < end && begin < offset + variable.bytes) {
              offset = roundUp(end, variable.alignment);
              isFree = false;
            }
          }
        }
      }
      sharedOffsets_[v] = offset;
      for (uint32_t k : users[v]) {
        taken[k].emplace_back(offset, offset + variable.bytes);
        KernelInfo& info = program_->kernels[k];
        if (offset + variable.bytes > kMaxStaticSharedBytes) {
          fail(CompileError::Kind::kMemory, symbols_.functions[program_->kernelCode[k].function]->line,
               "kernel " + quoted(info.name) + " uses more than " + std::to_string(kMaxStaticSharedBytes) +
                   " bytes of shared memory");
        }
        info.staticSharedBytes = std::max(info.staticSharedBytes, static_cast<uint32_t>(offset + variable.bytes));
      }
    }
    for (uint32_t k = 0; k < program_->kernels.size(); ++k) {
      program_->kernelCode[k].dynamicSharedStart =
          static_cast<uint32_t>(roundUp(program_->kernels[k].staticSharedBytes, symbols_.dynamicSharedAlignment));
    }
  }

  /// Names for findings: lines of the source, names of shared memory.
  void rememberPlaces() {
    for (const FunctionNode* function : symbols_.functions) program_->sources.push_back({function->line, "", 0});
    for (const LocationNode& location : module_.locations)
      program_->sources.push_back({location.line, std::string(fileOf(location)), location.fileLine});
    std::stable_sort(program_->sources.begin(), program_->sources.end(),
                     [](const SourceMark& a, const SourceMark& b) { return a.line < b.line; });
    for (uint32_t v = 0; v < symbols_.shared.size(); ++v) {
      SharedPlace place{std::string(symbols_.shared[v].name), sharedOffsets_[v], symbols_.shared[v].bytes, {}};
      for (const KernelCode& kernel : program_->kernelCode) {
        const std::vector<uint32_t>& functions = reachable(kernel.function);
        const bool isUsed = std::any_of(functions.begin(), functions.end(), [&](uint32_t f) {
          const std::vector<uint32_t>& used = symbols_.uses[f].sharedVariables;
          return std::find(used.begin(), used.end(), v) != used.end();
        });
        if (isUsed) place.functions.push_back(kernel.function);
      }
      program_->sharedPlaces.push_back(std::move(place));
    }
  }

  /// Compilers put the names of files behind the code; texts that were joined have several sets of them.
  std::string_view fileOf(const LocationNode& location) const {
    std::string_view before;
    for (const FileNode& file : module_.files) {
      if (file.index != location.file) continue;
      if (file.line > location.line) return file.name;
      before = file.name;
    }
    return before;
  }

  uint32_t countConstBytes() const {
    uint64_t bytes = 0;
    for (const VariableNode& variable : symbols_.globals) {
      if (variable.space == Space::kConst) bytes = roundUp(bytes, variable.effectiveAlignment()) + variable.bytes();
    }
    if (bytes > kMaxConstBytes) {
      fail(CompileError::Kind::kMemory, 0,
           "the const variables take " + std::to_string(bytes) + " bytes, more than " + std::to_string(kMaxConstBytes));
    }
    return static_cast<uint32_t>(bytes);
  }

  void image(const VariableNode& variable) {
    VariableInfo info;
    info.name = variable.name;
    info.space = variable.space == Space::kConst ? VariableSpace::kConst : VariableSpace::kGlobal;
    info.bytes = variable.bytes();
    info.alignment = variable.effectiveAlignment();
    info.isVisible = variable.linkage != Linkage::kInternal;
    info.isManaged = variable.isManaged;
    info.reference = variable.reference;
    VariableImage out;
    uint32_t width = bytesOf(variable.type);
    out.bytes.resize(variable.initial.size() * width);
    for (size_t i = 0; i < variable.initial.size(); ++i) {
      const InitialValue& value = variable.initial[i];
      if (value.symbol.empty()) {
        std::memcpy(out.bytes.data() + i * width, &value.bits, width);
      } else {
        out.relocations.push_back(relocation(value, i * width, width));
      }
    }
    program_->variables.push_back(std::move(info));
    program_->images.push_back(std::move(out));
  }

  Relocation relocation(const InitialValue& value, uint64_t offset, uint32_t width) {
    auto found = symbols_.names.find(value.symbol);
    if (found == symbols_.names.end()) syntaxError(value.line, quoted(value.symbol) + " is not declared");
    const Binding& binding = found->second;
    Relocation out;
    out.offset = offset;
    out.bytes = width;
    out.addend = value.bits;
    out.target = binding.index;
    if (value.byteMask)
      out.shift = static_cast<uint32_t>(__builtin_ctzll(value.byteMask)) / 8 * 8;
    else if (width != 8)
      syntaxError(value.line, "the address of " + quoted(value.symbol) + " needs 64 bits");
    if (binding.kind == Binding::Kind::kFunction) {
      out.isFunction = true;
      symbols_.isAddressTaken[binding.index] = true;
    } else if (binding.kind == Binding::Kind::kExternVariable) {
      fail(CompileError::Kind::kUnresolved, value.line,
           "the variable " + quoted(value.symbol) + " is declared .extern, but nothing defines it");
    } else if (binding.kind != Binding::Kind::kGlobal) {
      syntaxError(value.line, quoted(value.symbol) + " has no address that is known before a launch");
    }
    return out;
  }

  ModuleNode module_;
  ModuleSymbols symbols_;
  std::unique_ptr<ProgramImpl> program_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> reachable_;
  std::vector<uint64_t> sharedOffsets_;
};

}  // namespace

const SourceMark* ProgramImpl::sourceOf(uint32_t line) const {
  const auto next = std::upper_bound(sources.begin(), sources.end(), line,
                                     [](uint32_t at, const SourceMark& mark) { return at < mark.line; });
  if (next == sources.begin() || std::prev(next)->file.empty()) return nullptr;
  return &*std::prev(next);
}

const SharedPlace* ProgramImpl::sharedAt(const KernelCode& kernel, uint64_t offset) const {
  for (const SharedPlace& place : sharedPlaces) {
    if (offset < place.offset || offset - place.offset >= place.bytes) continue;
    if (std::find(place.functions.begin(), place.functions.end(), kernel.function) != place.functions.end())
      return &place;
  }
  return nullptr;
}

Compiled compile(std::string_view ptx, Checks checks) {
  Compiled out;
  if (size_t end = ptx.find('\0'); end != std::string_view::npos) ptx = ptx.substr(0, end);
  try {
    if (ptx.size() > kMaxTextBytes) fail(CompileError::Kind::kMemory, 0, "the PTX text is larger than 1 GiB");
    out.program = std::make_shared<const Program>(Compiler(ptx, checks).run());
  } catch (Failure& failure) {
    out.error = std::move(failure.error);
  } catch (const std::bad_alloc&) {
    out.error = {CompileError::Kind::kMemory, 0, "no memory left to compile the PTX"};
  }
  return out;
}

}  // namespace millpond::softgpu::ptx
