// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/decode/constants.h"

#include <cstring>

#include "softgpu/ptx/failure.h"

namespace millpond::softgpu::ptx {

void broadcast(std::byte* to, uint64_t value, uint32_t width) {
  for (uint32_t l = 0; l < kWarpSize; ++l) std::memcpy(to + size_t{l} * width / 8, &value, width / 8);
}

uint32_t Constants::find(Kind kind, uint64_t value, uint32_t symbol, uint32_t width) {
  auto [place, isNew] = known_.try_emplace({kind, value, symbol, width}, 0);
  if (!isNew) return place->second;
  size_t bytes = kind == Kind::kPredicate ? 64 : size_t{width} / 8 * kWarpSize;
  size_t offset = bytes_.size();
  if (offset + bytes >= kConstant) fail(CompileError::Kind::kMemory, 0, "the program has too many constants");
  bytes_.resize(offset + bytes);
  place->second = static_cast<uint32_t>(offset) | kConstant;
  return place->second;
}

uint32_t Constants::number(uint64_t bits, uint32_t width) {
  if (width < 64) bits &= (uint64_t{1} << width) - 1;
  uint32_t operand = find(Kind::kNumber, bits, 0, width);
  broadcast(bytes_.data() + (operand & ~kConstant), bits, width);
  return operand;
}

uint32_t Constants::predicate(bool value) {
  uint32_t operand = find(Kind::kPredicate, value, 0, 1);
  uint32_t lanes = value ? UINT32_MAX : 0;
  std::memcpy(bytes_.data() + (operand & ~kConstant), &lanes, sizeof(lanes));
  return operand;
}

uint32_t Constants::variable(uint32_t variable, uint64_t addend, uint32_t width) {
  size_t before = bytes_.size();
  uint32_t operand = find(Kind::kVariable, addend, variable, width);
  if (bytes_.size() != before) relocations_.push_back({operand & ~kConstant, width / 8, variable, addend});
  return operand;
}

uint32_t Constants::shared(uint32_t variable, uint64_t addend, uint32_t width) {
  size_t before = bytes_.size();
  uint32_t operand = find(Kind::kShared, addend, variable, width);
  if (bytes_.size() != before) shared_.push_back({operand & ~kConstant, width, variable, addend});
  return operand;
}

void Constants::finish(const std::vector<uint64_t>& sharedOffsets, ProgramImpl& program) {
  for (const SharedConstant& constant : shared_) {
    broadcast(bytes_.data() + constant.offset, sharedOffsets[constant.variable] + constant.addend, constant.width);
  }
  program.constants = std::move(bytes_);
  program.constantRelocations = std::move(relocations_);
}

}  // namespace millpond::softgpu::ptx
