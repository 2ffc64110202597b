// SPDX-License-Identifier: Apache-2.0
// The control flow of a function: basic blocks, and where lanes that part meet again.
#pragma once

#include <cstdint>
#include <vector>

#include "softgpu/ptx/decode/draft.h"

namespace millpond::softgpu::ptx {

inline constexpr uint32_t kNoBlock = UINT32_MAX;

struct BasicBlock {
  uint32_t begin = 0;  // positions in FunctionDraft::code
  uint32_t end = 0;
  std::vector<uint32_t> successors;
  bool endsFunction = false;
  /// Where lanes that diverge at the end of this block reconverge: its immediate postdominator, among the paths on
  /// which threads do not end. kNoBlock: nowhere.
  uint32_t join = kNoBlock;
};

/// Blocks in the order of the code.
std::vector<BasicBlock> findBlocks(const FunctionDraft& draft);

/// Inserts a joining instruction at the head of each block where lanes reconverge, and sets where every branch joins:
/// `joins[i]` is the position of that instruction for the branch at i, or kNoBlock.
void insertJoins(FunctionDraft& draft, Handler joinHandler, std::vector<uint32_t>& joins);

}  // namespace millpond::softgpu::ptx
