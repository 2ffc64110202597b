// SPDX-License-Identifier: Apache-2.0
// One function from syntax tree to drafts of instructions. The families of instructions are in files of their
// own; each has a member here that an opcode leads to.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "softgpu/ptx/decode/draft.h"
#include "softgpu/ptx/decode/modifiers.h"
#include "softgpu/ptx/decode/module_symbols.h"
#include "softgpu/ptx/exec/selectors.h"
#include "softgpu/ptx/parse/ast.h"
#include "softgpu/ptx/run/inspect.h"

namespace millpond::softgpu::ptx {

struct TextureForm;

class FunctionDecoder {
 public:
  /// `parameterOffsets`: of a kernel's parameters in the parameter buffer.
  FunctionDecoder(ModuleSymbols& module, const FunctionNode& function, uint32_t index,
                  const std::vector<uint32_t>& parameterOffsets);

  void run();

  FunctionDraft takeDraft();
  /// Local memory that the frame needs, in bytes.
  uint32_t localBytes() const { return localBytes_; }

 private:
  using Node = const InstructionNode&;
  using Member = void (FunctionDecoder::*)(Node);

  // Declarations, in declarations of names before any instruction is decoded: function_decoder.cpp
  void declareAll(const std::vector<uint32_t>& parameterOffsets);
  void declareFormals(const std::vector<uint32_t>& parameterOffsets);
  void declareCallTargets(uint32_t scope, const CallTargetsNode& targets);
  void declareVariable(uint32_t scope, const VariableNode& variable);
  void declareOrRefuse(uint32_t scope, std::string_view name, const Binding& symbol, uint32_t line);
  uint32_t allocateFrame(uint64_t bytes, uint64_t alignment, uint32_t line);
  void decode(Node node);
  void keepStack();
  static Member memberFor(std::string_view opcode);

  // Operands: operands.cpp
  Binding resolve(std::string_view name, uint32_t line);
  /// The operand of a source: register, constant or address. Registers must have the width of the type.
  uint32_t source(const Operand& operand, Type type);
  /// As source(), for a register of any width; nothing else is allowed. Returns its width.
  uint32_t anyRegister(const Operand& operand, uint32_t& width);
  /// The two halves of a register of 128 bits, the lower one first.
  using WideRegister = std::array<uint32_t, 2>;
  WideRegister wideRegister(const Operand& operand);
  uint32_t predicateSource(const Operand& operand);
  uint32_t destination(const Operand& operand, uint32_t width);
  uint32_t anyDestination(const Operand& operand, uint32_t& width);
  uint32_t symbolAddress(const Binding& symbol, int64_t addend, uint32_t width, std::string_view name, uint32_t line);
  std::optional<uint32_t> specialSource(std::string_view name, uint32_t width, uint32_t line);
  uint32_t immediate(const Operand& operand, Type type);
  uint32_t temporary(uint32_t width);
  void expectOperands(Node node, size_t least, size_t most);
  void expectOperands(Node node, size_t count) { expectOperands(node, count, count); }

  // Emission: operands.cpp
  /// Appends an instruction; a null handler refuses it by name.
  Draft& emit(Node node, Handler handler);
  Draft& emitUnguarded(Node node, Handler handler);
  /// d = f(sources): one destination first, then sources.
  Draft& elementwise(Node node, Handler handler, Type destinationType, std::initializer_list<Type> sourceTypes);
  /// Emits `body` to run where the node's guard is true, by a branch around it.
  template <typename F>
  void branchAround(Node node, F body);
  uint32_t guardOf(Node node, bool isInverted);
  uint32_t newLabel();
  void place(uint32_t label);
  void emitBranch(Node node, uint32_t guard, uint32_t label, bool isUniform);

  // Families of instructions.
  void integerOrFloat(Node node);  // arithmetic.cpp
  void floatOnly(Node node);
  void multiply(Node node);
  void multiplyAdd(Node node);
  void divide(Node node);
  void carry(Node node);
  void multiply24(Node node);
  void dot(Node node);
  void video(Node node);  // video.cpp
  void scalarVideo(Node node);
  void convertPacked(Node node, Modifiers& modifiers);
  uint32_t packPart(Node node, uint32_t value, uint32_t under, VideoPart part, bool isSigned, uint32_t out);
  void approximate(Node node);
  void testProperty(Node node);
  void copySign(Node node);
  void emitFloat(Node node, FloatOp op, Type type, FloatModes modes, size_t sources);

  void logic(Node node);  // bits.cpp
  void shift(Node node);
  void countBits(Node node);
  void bitField(Node node);
  void lookup3(Node node);
  void funnelShift(Node node);
  void permute(Node node);
  void mask(Node node);
  void findNth(Node node);
  void select(Node node);
  void compare(Node node);
  void compareSet(Node node);
  void selectBySign(Node node);

  void move(Node node);  // data.cpp
  void moveWide(Node node);
  void convert(Node node);
  void convertAddress(Node node);
  void isSpace(Node node);
  uint32_t narrowed(Node node, const Operand& operand, Type type);

  void load(Node node);  // memory.cpp
  void store(Node node);
  void atomic(Node node);
  void fence(Node node);
  void prefetch(Node node);
  struct Address {
    Space space;
    uint32_t operand;  // kNoOperand: a fixed place of the frame, or of the parameter buffer
    uint32_t width;    // of the operand
    int64_t offset;
    bool isKernelParameter;
  };
  Address address(Node node, const Operand& operand, Space space, uint64_t bytes);

  void copyAsync(Node node);
  void copyBulk(Node node, Modifiers& modifiers);
  uint32_t plainAddress(Node node, const Address& address);
  /// Copies `written` bytes, of which `read` come from memory and the rest are zero, in pieces of the given size.
  void emitCopy(Node node, const Address& from, const Address& to, uint32_t read, uint32_t written, uint8_t piece);
  bool isRegisterOf(const Operand& operand, uint32_t width);
  bool isPredicate(const Operand& operand);
  bool isPolicy(const Operand& operand);

  // Checks around instructions, where they are asked for: checks.cpp
  /// Before an access; `access` is as it will be in its instruction.
  void checkMemory(Node node, const Address& address, CheckForm form, uint32_t elementBytes, uint32_t count,
                   const uint32_t* stored = nullptr);
  /// Before a barrier at which the lanes of a warp arrive together. `threads`: kNoOperand if it has no count.
  void checkBarrier(Node node, uint32_t id, uint32_t threads);
  /// Emits an instruction at which lanes wait for one another, unguarded.
  Draft& emitCollective(Node node, Handler handler, uint32_t members);

  void branch(Node node);  // control.cpp
  void branchTable(Node node);
  void call(Node node);
  void finishFunction(Node node);
  void trap(Node node);
  void nothing(Node node);
  void pause(Node node);
  void allocate(Node node);
  void stack(Node node);
  Draft& emitStack(Node node, ControlOp op, uint32_t reg, bool isWritten);
  CallValue callArgument(Node node, const Operand& operand, const CallValue& formal, bool isReturn);

  void shuffle(Node node);  // collective.cpp
  void vote(Node node);
  void match(Node node);
  void reduceAcross(Node node);
  void activeMask(Node node);
  void elect(Node node);
  void barrier(Node node);
  void clusterBarrier(Node node, Modifiers& modifiers);
  void arriveOfCopies(Node node, Modifiers& modifiers);
  void memoryBarrier(Node node);
  void clusterAddress(Node node);
  void cachePolicy(Node node);
  Draft& emitMemoryBarrier(Node node, MemoryBarrierOp op, const Address& at, uint32_t argument, uint32_t bytes);
  void warpMatrix(Node node);  // matrix.cpp
  void matrixMultiply(Node node);
  void matrixRows(Node node);
  void transposeMatrix(Node node);
  void multiplyMatrices(Node node, const MatrixSite& form);
  void warpMatrixAccess(Node node, Modifiers& modifiers);
  void moveMatrixPart(Node node, const Address& base, const MatrixStep& step, uint32_t stride, Type type, uint32_t reg,
                      bool isLoad);
  void checkMatrixRows(Node node, const Address& at, uint32_t count, bool isLoad);
  void texture(Node node);  // texture.cpp
  void surface(Node node);
  uint32_t packed(Node node, const std::vector<uint32_t>& parts);
  void accessTexture(Node node, const Operand& operand, const TextureForm& form, const uint32_t* values, uint8_t writes,
                     uint32_t level = kNoOperand);
  uint32_t takeDetail(Node node, const TextureForm& form, const uint32_t* words);
  void loadTexture(Node node, const TextureForm& form, uint32_t width, uint32_t count);

  uint32_t memberOperand(Node node, size_t index);

  ModuleSymbols& module_;
  const FunctionNode& function_;
  uint32_t index_;
  const Selectors& select_;
  Scopes scopes_;
  FunctionDraft draft_;
  uint32_t scope_ = 0;
  std::vector<std::vector<std::string_view>> branchTargets_;
  std::vector<Signature> prototypes_;
  std::vector<std::pair<uint32_t, uint32_t>> returnRegisters_;  // virtual register, place in the frame
  uint32_t epilogue_ = kNoLabel;
  std::optional<uint32_t> stackAtEntry_;  // the register that saves it if the function allocates from the stack
  uint32_t localBytes_ = 0;
  uint32_t scopedBytes_ = 0;  // of .param variables in the scopes that are open
  uint32_t callBytes_ = 0;    // where the values of calls that are passed in registers are stored
};

template <typename F>
void FunctionDecoder::branchAround(Node node, F body) {
  if (!node.hasGuard) return body();
  uint32_t after = newLabel();
  emitBranch(node, guardOf(node, true), after, false);
  body();
  place(after);
}

}  // namespace millpond::softgpu::ptx
