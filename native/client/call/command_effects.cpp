// SPDX-License-Identifier: Apache-2.0
#include "client/call/command_effects.h"

#include <cstring>

namespace millpond::client::effect {
namespace {

void hand(Call& call, const CUstreamBatchMemOpParams& operation) {
  // The members of a write have the same offsets as those of a wait.
  const auto& word = operation.waitValue;
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return handWord(call, operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32, word.address, word.value,
                      word.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return handWord(call, operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64, word.address, word.value64,
                      word.flags);
    default: return;
  }
}

template <typename T>
void await(Call& call, bool isWait, uint64_t address, T value, unsigned flags) {
  using By = AwaitedWord::By;
  call.remote().mirror.await({isWait ? By::kStream : By::kProgram, address, sizeof(T), value,
                              isWait ? flags : unsigned{CU_STREAM_WAIT_VALUE_EQ}});
}

}  // namespace

void handWord(Call& call, bool isWait, uint64_t address, uint32_t value, unsigned flags) {
  await(call, isWait, address, value, flags);
}

void handWord(Call& call, bool isWait, uint64_t address, uint64_t value, unsigned flags) {
  await(call, isWait, address, value, flags);
}

void batchesWords(Call& call, const cmd::StreamBatchMemOpV2& batch, std::span<const std::byte> operations) {
  if (!handsWords(call, batch.stream)) return;
  for (; operations.size() >= sizeof(CUstreamBatchMemOpParams);
       operations = operations.subspan(sizeof(CUstreamBatchMemOpParams))) {
    CUstreamBatchMemOpParams one;
    std::memcpy(&one, operations.data(), sizeof one);
    hand(call, one);
  }
}

}  // namespace millpond::client::effect
