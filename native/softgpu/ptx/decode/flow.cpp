// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/decode/flow.h"

#include <algorithm>

namespace millpond::softgpu::ptx {
namespace {

bool endsBlock(const Draft& draft) { return draft.flow != Flow::kNext && draft.flow != Flow::kJoin; }

/// Immediate postdominators by the algorithm of Cooper, Harvey and Kennedy on the reversed graph, whose entry
/// is a node behind all blocks that end the function.
class Postdominators {
 public:
  explicit Postdominators(const std::vector<BasicBlock>& blocks)
      : blocks_(blocks),
        exit_(static_cast<uint32_t>(blocks.size())),
        order_(blocks.size() + 1, kNoBlock),
        parent_(blocks.size() + 1, kNoBlock) {
    number();
    parent_[exit_] = exit_;
    for (bool isChanged = true; isChanged;) {
      isChanged = false;
      // Reverse postorder of the reversed graph, without its entry.
      for (size_t i = postorder_.size() - 1; i > 0; --i) {
        uint32_t block = postorder_[i - 1];
        uint32_t best = blocks_[block].endsFunction ? exit_ : kNoBlock;
        for (uint32_t successor : blocks_[block].successors) {
          if (parent_[successor] == kNoBlock) continue;
          best = best == kNoBlock ? successor : intersect(best, successor);
        }
        if (best != kNoBlock && parent_[block] != best) {
          parent_[block] = best;
          isChanged = true;
        }
      }
    }
  }

  uint32_t of(uint32_t block) const { return parent_[block] == exit_ ? kNoBlock : parent_[block]; }

 private:
  void number() {
    std::vector<std::vector<uint32_t>> predecessors(blocks_.size() + 1);
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      for (uint32_t successor : blocks_[b].successors) predecessors[successor].push_back(b);
      if (blocks_[b].endsFunction) predecessors[exit_].push_back(b);
    }
    std::vector<bool> isSeen(blocks_.size() + 1);
    std::vector<std::pair<uint32_t, size_t>> path{{exit_, 0}};
    isSeen[exit_] = true;
    while (!path.empty()) {
      auto& [node, next] = path.back();
      if (next < predecessors[node].size()) {
        uint32_t predecessor = predecessors[node][next++];
        if (!isSeen[predecessor]) {
          isSeen[predecessor] = true;
          path.emplace_back(predecessor, 0);
        }
      } else {
        order_[node] = static_cast<uint32_t>(postorder_.size());
        postorder_.push_back(node);
        path.pop_back();
      }
    }
  }

  uint32_t intersect(uint32_t a, uint32_t b) const {
    while (a != b) {
      while (order_[a] < order_[b]) a = parent_[a];
      while (order_[b] < order_[a]) b = parent_[b];
    }
    return a;
  }

  const std::vector<BasicBlock>& blocks_;
  uint32_t exit_;
  std::vector<uint32_t> order_;   // postorder number
  std::vector<uint32_t> parent_;  // the immediate postdominator
  std::vector<uint32_t> postorder_;
};

}  // namespace

std::vector<BasicBlock> findBlocks(const FunctionDraft& draft) {
  uint32_t size = static_cast<uint32_t>(draft.code.size());
  std::vector<bool> begins(size + 1);
  begins[0] = true;
  auto mark = [&](uint32_t label) { begins[draft.labels[label]] = true; };
  for (uint32_t i = 0; i < size; ++i) {
    const Draft& item = draft.code[i];
    if (endsBlock(item)) begins[i + 1] = true;
    if (item.flow == Flow::kBranch) mark(item.label);
    if (item.flow == Flow::kTable) {
      for (uint32_t label : draft.tables[item.table]) mark(label);
    }
  }
  std::vector<BasicBlock> blocks;
  std::vector<uint32_t> blockAt(size + 1, kNoBlock);
  for (uint32_t i = 0; i < size; ++i) {
    if (begins[i]) {
      if (!blocks.empty()) blocks.back().end = i;
      blocks.push_back({i, size, {}, false, kNoBlock});
    }
    blockAt[i] = static_cast<uint32_t>(blocks.size() - 1);
  }
  for (uint32_t b = 0; b < blocks.size(); ++b) {
    BasicBlock& block = blocks[b];
    const Draft& last = draft.code[block.end - 1];
    auto add = [&](uint32_t position) {
      uint32_t target = blockAt[position];
      if (std::find(block.successors.begin(), block.successors.end(), target) == block.successors.end()) {
        block.successors.push_back(target);
      }
    };
    switch (last.flow) {
      case Flow::kBranch: add(draft.labels[last.label]); break;
      case Flow::kTable:
        for (uint32_t label : draft.tables[last.table]) add(draft.labels[label]);
        break;
      case Flow::kReturn: block.endsFunction = true; break;
      default: break;
    }
    bool goesOn =
        last.flow == Flow::kNext || last.flow == Flow::kJoin || (last.flow != Flow::kTable && last.isGuarded());
    if (goesOn && block.end < size) add(block.end);
  }
  return blocks;
}

void insertJoins(FunctionDraft& draft, Handler joinHandler, std::vector<uint32_t>& joins) {
  std::vector<BasicBlock> blocks = findBlocks(draft);
  Postdominators postdominators(blocks);
  std::vector<bool> isJoin(blocks.size());
  for (uint32_t b = 0; b < blocks.size(); ++b) {
    const Draft& last = draft.code[blocks[b].end - 1];
    bool mayPart = (last.flow == Flow::kBranch && last.isGuarded()) || last.flow == Flow::kTable;
    if (!mayPart || last.isUniform || blocks[b].successors.size() < 2) continue;
    blocks[b].join = postdominators.of(b);
    if (blocks[b].join != kNoBlock) isJoin[blocks[b].join] = true;
  }
  // Each position is moved up by the joins that were inserted before it.
  std::vector<uint32_t> added(draft.code.size() + 1);
  std::vector<Draft> code;
  code.reserve(draft.code.size() + blocks.size());
  std::vector<uint32_t> joinOf;
  std::vector<uint32_t> headOf(blocks.size());
  for (uint32_t b = 0; b < blocks.size(); ++b) {
    headOf[b] = static_cast<uint32_t>(code.size());
    if (isJoin[b]) {
      Draft join;
      join.instruction.run = joinHandler;
      join.instruction.line = draft.code[blocks[b].begin].instruction.line;
      join.flow = Flow::kJoin;
      code.push_back(join);
      joinOf.push_back(kNoBlock);
    }
    for (uint32_t i = blocks[b].begin; i < blocks[b].end; ++i) {
      added[i] = i == blocks[b].begin ? headOf[b] : static_cast<uint32_t>(code.size());
      code.push_back(draft.code[i]);
      joinOf.push_back(i + 1 == blocks[b].end ? blocks[b].join : kNoBlock);
    }
  }
  added[draft.code.size()] = static_cast<uint32_t>(code.size());
  for (uint32_t& label : draft.labels) {
    if (label != kNoLabel) label = added[label];
  }
  for (uint32_t& join : joinOf) {
    if (join != kNoBlock) join = headOf[join];
  }
  draft.code = std::move(code);
  joins = std::move(joinOf);
}

}  // namespace millpond::softgpu::ptx
