// SPDX-License-Identifier: Apache-2.0
// Instructions on their way from the syntax tree to the decoded form: operands are still virtual registers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "softgpu/ptx/call_site.h"
#include "softgpu/ptx/instruction.h"
#include "softgpu/ptx/matrix.h"
#include "softgpu/ptx/operations.h"
#include "softgpu/ptx/program_impl.h"

namespace millpond::softgpu::ptx {

/// Bits that a virtual register occupies per lane: 1 (predicate), 16, 32 or 64.
using RegisterWidth = uint8_t;

inline constexpr uint32_t kNoLabel = UINT32_MAX;

/// The effect of an instruction on control flow.
enum class Flow : uint8_t {
  kNext,    // goes on
  kBranch,  // to `label`, guarded or not
  kTable,   // to one of `labels`
  kReturn,  // ends the function
  kEnd,     // ends the threads (exit, trap); guarded: the others continue
  kJoin,    // lanes reconverge here
};

struct Draft {
  /// Operands and the guard name virtual registers; those with kConstant set are final.
  Instruction instruction;
  uint8_t writes = 0;  // a bit per operand that is written
  Flow flow = Flow::kNext;
  bool isUniform = false;  // kBranch, kTable: the program guarantees that lanes do not diverge
  uint32_t label = kNoLabel;
  uint32_t table = 0;  // kTable: index into FunctionDraft::tables; kCall: into FunctionDraft::calls
  bool isCall = false;
  MatrixSite* matrix = nullptr;  // further operands, one of FunctionDraft::matrices

  bool isGuarded() const { return instruction.guard != kNoOperand; }
};

struct CallDraft {
  std::vector<CallValue> values;
  uint32_t argumentCount = 0;
  uint64_t signature = 0;
};

struct FunctionDraft {
  std::vector<Draft> code;
  std::vector<uint32_t> labels;               // position in `code` of each label; code.size() at the end
  std::vector<std::vector<uint32_t>> tables;  // labels of indexed branches
  std::vector<CallDraft> calls;
  std::vector<std::unique_ptr<MatrixSite>> matrices;
  std::vector<RegisterWidth> registers;
};

}  // namespace millpond::softgpu::ptx
