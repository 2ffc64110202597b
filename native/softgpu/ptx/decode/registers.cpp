// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/decode/registers.h"

#include <algorithm>
#include <queue>

#include "softgpu/ptx/decode/flow.h"
#include "softgpu/ptx/failure.h"

namespace millpond::softgpu::ptx {
namespace {

constexpr uint32_t kUnset = UINT32_MAX;
constexpr uint32_t kOperands = 6;

/// The interval in which a register is live. An instruction at i reads at 2 i and writes at 2 i + 1.
struct Interval {
  uint32_t begin = kUnset;
  uint32_t end = 0;
  void include(uint32_t position) {
    begin = std::min(begin, position);
    end = std::max(end, position);
  }
};

class BitSet {
 public:
  explicit BitSet(size_t bits) : words_((bits + 63) / 64) {}
  void set(uint32_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  bool has(uint32_t i) const { return words_[i / 64] >> (i % 64) & 1; }
  /// this = gen | (out & ~kill); whether that changed anything.
  bool transfer(const BitSet& gen, const BitSet& out, const BitSet& kill) {
    bool isChanged = false;
    for (size_t i = 0; i < words_.size(); ++i) {
      uint64_t value = gen.words_[i] | (out.words_[i] & ~kill.words_[i]);
      isChanged |= value != words_[i];
      words_[i] = value;
    }
    return isChanged;
  }
  void merge(const BitSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  template <typename F>
  void forEach(F body) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t word = words_[i]; word; word &= word - 1) {
        body(static_cast<uint32_t>(i * 64) + static_cast<uint32_t>(__builtin_ctzll(word)));
      }
    }
  }

 private:
  std::vector<uint64_t> words_;
};

bool isRegister(uint32_t operand) { return operand != kNoOperand && !(operand & kConstant); }

template <typename F>
void forReads(const Draft& draft, F body) {
  const Instruction& i = draft.instruction;
  if (i.guard != kNoOperand) body(i.guard & ~kNegatedGuard);
  for (uint32_t k = 0; k < kOperands; ++k) {
    bool isWrite = draft.writes >> k & 1;
    // A guarded instruction leaves its destination unchanged in some lanes, which counts as a read.
    if (isRegister(i.op[k]) && (!isWrite || i.guard != kNoOperand)) body(i.op[k]);
  }
  if (!draft.matrix) return;
  draft.matrix->forOperands([&](uint32_t operand, bool isWrite) {
    if (!isWrite && isRegister(operand)) body(operand);
  });
}
template <typename F>
void forWrites(const Draft& draft, F body) {
  for (uint32_t k = 0; k < kOperands; ++k) {
    if ((draft.writes >> k & 1) && isRegister(draft.instruction.op[k])) body(draft.instruction.op[k]);
  }
  if (!draft.matrix) return;
  draft.matrix->forOperands([&](uint32_t operand, bool isWrite) {
    if (isWrite) body(operand);
  });
}

/// Registers that are live across block boundaries, numbered densely: only these need the data flow analysis.
class Liveness {
 public:
  Liveness(const FunctionDraft& draft, const std::vector<BasicBlock>& blocks, std::vector<Interval>& intervals)
      : draft_(draft), blocks_(blocks), number_(draft.registers.size(), kUnset) {
    findCrossing();
    solve();
    extend(intervals);
  }

 private:
  void findCrossing() {
    std::vector<uint32_t> writtenIn(draft_.registers.size(), kUnset);
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      for (uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
        forReads(draft_.code[i], [&](uint32_t r) {
          if (writtenIn[r] == b || number_[r] != kUnset) return;
          number_[r] = static_cast<uint32_t>(crossing_.size());
          crossing_.push_back(r);
        });
        forWrites(draft_.code[i], [&](uint32_t r) { writtenIn[r] = b; });
      }
    }
  }

  void solve() {
    std::vector<BitSet> reads(blocks_.size(), BitSet(crossing_.size()));
    std::vector<BitSet> writes = reads;
    in_ = reads;
    out_ = reads;
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      for (uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
        forReads(draft_.code[i], [&](uint32_t r) {
          if (number_[r] != kUnset && !writes[b].has(number_[r])) reads[b].set(number_[r]);
        });
        forWrites(draft_.code[i], [&](uint32_t r) {
          if (number_[r] != kUnset) writes[b].set(number_[r]);
        });
      }
    }
    for (bool isChanged = true; isChanged;) {
      isChanged = false;
      for (size_t k = blocks_.size(); k > 0; --k) {
        size_t b = k - 1;
        for (uint32_t successor : blocks_[b].successors) out_[b].merge(in_[successor]);
        isChanged |= in_[b].transfer(reads[b], out_[b], writes[b]);
      }
    }
  }

  void extend(std::vector<Interval>& intervals) const {
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      in_[b].forEach([&](uint32_t n) { intervals[crossing_[n]].include(2 * blocks_[b].begin); });
      out_[b].forEach([&](uint32_t n) { intervals[crossing_[n]].include(2 * blocks_[b].end); });
    }
  }

  const FunctionDraft& draft_;
  const std::vector<BasicBlock>& blocks_;
  std::vector<uint32_t> number_;
  std::vector<uint32_t> crossing_;
  std::vector<BitSet> in_;
  std::vector<BitSet> out_;
};

/// Places of one width, allocated lowest first.
struct Pool {
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free;
  std::priority_queue<std::pair<uint32_t, uint32_t>, std::vector<std::pair<uint32_t, uint32_t>>, std::greater<>> busy;
  uint32_t count = 0;

  uint32_t take(const Interval& interval) {
    while (!busy.empty() && busy.top().first < interval.begin) {
      free.push(busy.top().second);
      busy.pop();
    }
    uint32_t place;
    if (free.empty()) {
      place = count++;
    } else {
      place = free.top();
      free.pop();
    }
    busy.emplace(interval.end, place);
    return place;
  }
};

constexpr size_t poolOf(RegisterWidth width) { return width == 64 ? 0 : width == 32 ? 1 : width == 16 ? 2 : 3; }
constexpr uint32_t kPlaceBytes[4] = {256, 128, 64, 4};

}  // namespace

RegisterLayout assignRegisters(FunctionDraft& draft) {
  std::vector<Interval> intervals(draft.registers.size());
  for (uint32_t i = 0; i < draft.code.size(); ++i) {
    forReads(draft.code[i], [&](uint32_t r) { intervals[r].include(2 * i); });
    forWrites(draft.code[i], [&](uint32_t r) { intervals[r].include(2 * i + 1); });
  }
  {
    std::vector<BasicBlock> blocks = findBlocks(draft);
    Liveness(draft, blocks, intervals);
  }
  std::vector<uint32_t> order;
  for (uint32_t r = 0; r < intervals.size(); ++r) {
    if (intervals[r].begin != kUnset) order.push_back(r);
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return intervals[a].begin != intervals[b].begin ? intervals[a].begin < intervals[b].begin : a < b;
  });
  Pool pools[4];
  std::vector<uint32_t> place(draft.registers.size());
  for (uint32_t r : order) place[r] = pools[poolOf(draft.registers[r])].take(intervals[r]);
  uint64_t base[5] = {0, 0, 0, 0, 0};
  for (size_t k = 0; k < 4; ++k) base[k + 1] = base[k] + uint64_t{pools[k].count} * kPlaceBytes[k];
  if (base[4] >= kNegatedGuard) fail(CompileError::Kind::kMemory, 0, "a function has too many registers");
  auto offset = [&](uint32_t r) {
    size_t pool = poolOf(draft.registers[r]);
    return static_cast<uint32_t>(base[pool]) + place[r] * kPlaceBytes[pool];
  };
  for (Draft& item : draft.code) {
    Instruction& i = item.instruction;
    if (i.guard != kNoOperand) i.guard = offset(i.guard & ~kNegatedGuard) | (i.guard & kNegatedGuard);
    for (uint32_t& operand : i.op) {
      if (isRegister(operand)) operand = offset(operand);
    }
    if (!item.matrix) continue;
    item.matrix->forOperands([&](uint32_t& operand, bool) {
      if (isRegister(operand)) operand = offset(operand);
    });
  }
  uint32_t counted = 2 * pools[0].count + pools[1].count + (pools[2].count + 1) / 2;
  return {static_cast<uint32_t>((base[4] + 63) / 64 * 64), std::min(std::max(counted, 1u), 255u)};
}

}  // namespace millpond::softgpu::ptx
