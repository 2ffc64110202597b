// SPDX-License-Identifier: Apache-2.0
// The decoded form of an instruction: what to call and where its operands lie.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millpond::softgpu::ptx {

struct Instruction;
struct Lanes;
struct Context;

/// Executes one instruction for the active lanes and returns the next one to execute, or null if the warp must stop for
/// now (Context::stop has the reason).
using Handler = const Instruction* (*)(const Instruction*, Context&);

/// Operands are offsets into the registers of the current frame or, with kConstant set, into the module's
/// constants. Either holds one value per lane, side by side; a predicate is one word with a bit per lane.
inline constexpr uint32_t kConstant = uint32_t{1} << 31;
inline constexpr uint32_t kNoOperand = UINT32_MAX;
/// A flag of a guard: the instruction executes where the predicate is false.
inline constexpr uint32_t kNegatedGuard = uint32_t{1} << 30;

/// Finds the memory that the lanes of `mask` access; false after a fault.
using Locator = bool (*)(const Instruction*, Context&, uint32_t mask, bool isWrite, Lanes& lanes);
/// Moves the elements of a load or store between memory and registers.
using Mover = void (*)(const Instruction*, Context&, const Lanes&);

/// Where in the host's memory the lanes of an access find their data.
struct Lanes {
  enum class Shape : uint8_t {
    kUniform,     // all at `base`
    kContiguous,  // all 32 lanes, side by side from `base` on
    kScattered,   // each at its own place
  };
  Shape shape;
  uint32_t mask;
  std::byte* base;
  std::byte* lane[32];
};

struct Instruction {
  Handler run = nullptr;
  uint32_t op[6] = {kNoOperand, kNoOperand, kNoOperand, kNoOperand, kNoOperand, kNoOperand};
  uint32_t guard = kNoOperand;
  uint32_t line = 0;
  /// Constant operand: address offset, lookup table, flags; each handler documents its use.
  int64_t immediate = 0;
  union {
    const Instruction* target = nullptr;  // branches
    Mover move;                           // loads and stores
    Locator locate;                       // atomics
    const void* table;                    // calls (CallSite), indexed branches (BranchTable)
    uint64_t form;                        // checks (CheckForm)
  };
  union {
    const Instruction* join = nullptr;  // branches: where the lanes reconverge; null: nowhere
    struct {
      uint8_t bytes;  // loads, stores, atomics: of one element
      uint8_t count;  // elements
      uint8_t flags;
    } access;
  };
};
static_assert(sizeof(Instruction) == 64);

}  // namespace millpond::softgpu::ptx
