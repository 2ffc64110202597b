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

template <typename T>
bool isOrdered(Order order, T a, T b) {
  switch (order) {
    case Order::kEqual: return a == b;
    case Order::kUnequal: return a != b;
    case Order::kLess: return a < b;
    case Order::kLessEqual: return a <= b;
    case Order::kGreater: return a > b;
    default: return a >= b;
  }
}

int32_t combineParts(const VideoForm& form, int32_t a, int32_t b) {
  switch (form.op) {
    case VideoOp::kCompare: return isOrdered(form.order, a, b) ? 1 : 0;
    case VideoOp::kAdd: return a + b;
    case VideoOp::kSubtract: return a - b;
    // Rounded away from zero.
    case VideoOp::kAverage: return (a + b + (a + b >= 0 ? 1 : 0)) >> 1;
    case VideoOp::kDifference: return a < b ? b - a : a - b;
    case VideoOp::kMinimum: return a < b ? a : b;
    default: return a < b ? b : a;
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
      int32_t value = combineParts(form, partOf(a[l], k, bits, form.isSignedA), partOf(b[l], k, bits, form.isSignedB));
      if (form.saturates) value = clampPart(value, bits, form.isSignedResult);
      sum += static_cast<uint32_t>(value);
      packed |= (static_cast<uint32_t>(value) & (UINT32_MAX >> (32 - bits))) << (bits * k);
    }
    return form.sums ? sum : packed;
  });
  return i + 1;
}

// One value each. 128 bits hold every result for two words.
using Exact = __int128;

struct PartPlace {
  uint32_t shift;
  uint32_t bits;
};
PartPlace placeOf(VideoPart part) {
  if (part == VideoPart::kWord) return {0, 32};
  const auto number = static_cast<uint32_t>(part);
  if (part >= VideoPart::kHalf0) return {16 * (number - static_cast<uint32_t>(VideoPart::kHalf0)), 16};
  return {8 * (number - static_cast<uint32_t>(VideoPart::kByte0)), 8};
}

int64_t selected(uint32_t word, VideoPart part, bool isSigned) {
  const auto [shift, bits] = placeOf(part);
  const uint64_t value = uint64_t{word} >> shift << (64 - bits);
  return isSigned ? static_cast<int64_t>(value) >> (64 - bits) : static_cast<int64_t>(value >> (64 - bits));
}

Exact combineValues(const ScalarVideoForm& form, int64_t a, int64_t b, uint32_t c) {
  const int64_t amount = form.wraps ? b & 31 : b < 0 || b > 32 ? 32 : b;
  switch (form.first.op) {
    case VideoOp::kAdd: return a + b;
    case VideoOp::kSubtract: return a - b;
    case VideoOp::kDifference: return a < b ? b - a : a - b;
    case VideoOp::kMinimum: return a < b ? a : b;
    case VideoOp::kMaximum: return a < b ? b : a;
    case VideoOp::kCompare: return isOrdered(form.first.order, a, b) ? 1 : 0;
    case VideoOp::kShiftLeft: return Exact{a} * (Exact{1} << amount);
    case VideoOp::kShiftRight: return a >> amount;
    default: {
      const Exact product = Exact{a} * b;
      const Exact third = selected(c, VideoPart::kWord, form.first.isSignedResult);
      return ((form.negatesProduct ? -product : product) + (form.negatesThird ? -third : third) +
              (form.plusOne ? 1 : 0)) >>
             form.scale;
    }
  }
}

uint32_t secondary(VideoSecond op, bool isSigned, uint32_t value, uint32_t c) {
  const auto wide = [isSigned](uint32_t word) { return selected(word, VideoPart::kWord, isSigned); };
  switch (op) {
    case VideoSecond::kNone: return value;
    case VideoSecond::kAdd: return value + c;
    case VideoSecond::kMinimum: return wide(value) < wide(c) ? value : c;
    default: return wide(value) < wide(c) ? c : value;
  }
}

uint32_t scalarVideo(const ScalarVideoForm& form, uint32_t a, uint32_t b, uint32_t c) {
  const VideoForm& first = form.first;
  const auto [shift, bits] = placeOf(form.result);
  Exact value = combineValues(form, selected(a, form.a, first.isSignedA), selected(b, form.b, first.isSignedB), c);
  if (first.saturates) {
    const Exact low = first.isSignedResult ? -(Exact{1} << (bits - 1)) : 0;
    const Exact high = (Exact{1} << (first.isSignedResult ? bits - 1 : bits)) - 1;
    value = value < low ? low : value > high ? high : value;
  }
  const uint32_t word = secondary(form.second, first.isSignedResult, static_cast<uint32_t>(value), c);
  const uint32_t mask = UINT32_MAX >> (32 - bits) << shift;
  return form.result == VideoPart::kWord ? word : (c & ~mask) | (word << shift & mask);
}

/// d, a, b, c. Instruction::immediate: a ScalarVideoForm, packed.
const Instruction* scalarVideoHandler(const Instruction* i, Context& context) {
  const uint32_t* a = slot<uint32_t>(context, i->op[1]);
  const uint32_t* b = slot<uint32_t>(context, i->op[2]);
  const uint32_t* c = slot<uint32_t>(context, i->op[3]);
  const ScalarVideoForm form = ScalarVideoForm::unpack(i->immediate);
  assignSparse(activeLanes(i, context), slot<uint32_t>(context, i->op[0]),
               [=](uint32_t l) { return scalarVideo(form, a[l], b[l], c[l]); });
  return i + 1;
}

}  // namespace

Handler selectVideo(bool isScalar) { return isScalar ? &scalarVideoHandler : &videoHandler; }

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
