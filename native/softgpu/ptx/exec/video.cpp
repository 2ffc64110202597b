// SPDX-License-Identifier: Apache-2.0
// Arithmetic on the four bytes or two halves of words.
#include "softgpu/ptx/exec/lanes.h"
#include "softgpu/ptx/exec/selectors.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

int32_t partOf(uint32_t word, uint32_t index, uint32_t bits, bool isSigned) {
  uint32_t part = word << (32 - bits * (index + 1)) >> (32 - bits);
  return isSigned ? static_cast<int32_t>(part << (32 - bits)) >> (32 - bits) : static_cast<int32_t>(part);
}

int32_t combineParts(VideoOp op, int32_t a, int32_t b) {
  switch (op) {
    case VideoOp::kAdd:
      return a + b;
    case VideoOp::kSubtract:
      return a - b;
    // Rounded away from zero.
    case VideoOp::kAverage:
      return (a + b + (a + b >= 0 ? 1 : 0)) >> 1;
    case VideoOp::kDifference:
      return a < b ? b - a : a - b;
    case VideoOp::kMinimum:
      return a < b ? a : b;
    default:
      return a < b ? b : a;
  }
}

int32_t clampPart(int32_t value, uint32_t bits, bool isSigned) {
  int32_t low = isSigned ? -(1 << (bits - 1)) : 0;
  int32_t high = isSigned ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
  return value < low ? low : value > high ? high : value;
}

/// d, a, b, c. Instruction::immediate: a VideoForm, packed.
const Instruction* videoHandler(const Instruction* i, Context& context) {
  const uint32_t* a = slot<uint32_t>(context, i->op[1]);
  const uint32_t* b = slot<uint32_t>(context, i->op[2]);
  const uint32_t* c = slot<uint32_t>(context, i->op[3]);
  VideoForm form = VideoForm::unpack(i->immediate);
  uint32_t bits = form.isHalves ? 16 : 8;
  assignSparse(activeLanes(i, context), slot<uint32_t>(context, i->op[0]), [=](uint32_t l) {
    uint32_t packed = 0;
    uint32_t sum = c[l];
    for (uint32_t k = 0; k < 32 / bits; ++k) {
      int32_t value =
          combineParts(form.op, partOf(a[l], k, bits, form.isSignedA), partOf(b[l], k, bits, form.isSignedB));
      if (form.saturates) value = clampPart(value, bits, form.isSignedResult);
      sum += static_cast<uint32_t>(value);
      packed |= (static_cast<uint32_t>(value) & (UINT32_MAX >> (32 - bits))) << (bits * k);
    }
    return form.sums ? sum : packed;
  });
  return i + 1;
}

}  // namespace

Handler selectVideo() { return &videoHandler; }

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
