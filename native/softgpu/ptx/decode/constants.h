// SPDX-License-Identifier: Apache-2.0
// The constants of a program, each once, broadcast to all lanes so that handlers read them like registers.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "softgpu/ptx/program_impl.h"

namespace millpond::softgpu::ptx {

class Constants {
 public:
  /// Operand that holds `bits` in registers of `width` (16, 32, 64).
  uint32_t number(uint64_t bits, uint32_t width);
  /// Operand that holds a predicate.
  uint32_t predicate(bool value);
  /// Operand that holds the address of a global or const variable plus `addend`.
  uint32_t variable(uint32_t variable, uint64_t addend, uint32_t width);
  /// Operand that holds the offset of a shared variable plus `addend`.
  uint32_t shared(uint32_t variable, uint64_t addend, uint32_t width);

  /// Writes the offsets of shared variables and moves all constants into the program.
  void finish(const std::vector<uint64_t>& sharedOffsets, ProgramImpl& program);

 private:
  enum class Kind : uint8_t { kNumber, kPredicate, kVariable, kShared };
  uint32_t find(Kind kind, uint64_t value, uint32_t symbol, uint32_t width);

  struct SharedConstant {
    uint32_t offset;
    uint32_t width;
    uint32_t variable;
    uint64_t addend;
  };
  std::map<std::tuple<Kind, uint64_t, uint32_t, uint32_t>, uint32_t> known_;
  std::vector<std::byte> bytes_;
  std::vector<ConstantRelocation> relocations_;
  std::vector<SharedConstant> shared_;
};

/// Writes a value of `width` bits for all 32 lanes.
void broadcast(std::byte* to, uint64_t value, uint32_t width);

}  // namespace millpond::softgpu::ptx
