// SPDX-License-Identifier: Apache-2.0
// Which commands make a stream wait for a word, or write one: the mirror is told when they have been appended.
#pragma once

#include <cstring>
#include <span>

#include "client/mirror.h"
#include "protocol/gen/commands.h"

namespace millpond::client {

constexpr bool handsWords(cmd::Op op) noexcept {
  switch (op) {
    case cmd::Op::kStreamWaitValue32V2:
    case cmd::Op::kStreamWaitValue64V2:
    case cmd::Op::kStreamWriteValue32V2:
    case cmd::Op::kStreamWriteValue64V2:
    case cmd::Op::kStreamBatchMemOpV2:
      return true;
    default:
      return false;
  }
}

constexpr bool isWaitForWord(cmd::Op op) noexcept {
  return op == cmd::Op::kStreamWaitValue32V2 || op == cmd::Op::kStreamWaitValue64V2;
}

inline void handWord(const AwaitedWord& word) { Mirror::instance().await(word); }

/// A word that a stream has written is true when it is that value.
template <typename T>
void handWord(bool isWait, uint64_t address, T value, unsigned flags) {
  using By = AwaitedWord::By;
  handWord({isWait ? By::kStream : By::kProgram, address, sizeof(T), value,
            isWait ? flags : unsigned{CU_STREAM_WAIT_VALUE_EQ}});
}

/// The operations of a batch.
inline void handWords(std::span<const std::byte> operations) {
  for (; operations.size() >= sizeof(CUstreamBatchMemOpParams);
       operations = operations.subspan(sizeof(CUstreamBatchMemOpParams))) {
    CUstreamBatchMemOpParams one;
    std::memcpy(&one, operations.data(), sizeof one);
    // What is written lies where what is waited for does.
    const auto& word = one.waitValue;
    switch (one.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        handWord(one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32, word.address, word.value, word.flags);
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        handWord(one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64, word.address, word.value64, word.flags);
        break;
      default:
        break;
    }
  }
}

template <typename C, typename... Tails>
void handWords(const C& fixed, const Tails&... tails) {
  if constexpr (C::kOp == cmd::Op::kStreamBatchMemOpV2)
    (handWords(tails), ...);
  else
    handWord(isWaitForWord(C::kOp), fixed.addr, fixed.value, fixed.flags);
}

}  // namespace millpond::client
