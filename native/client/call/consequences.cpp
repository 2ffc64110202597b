// SPDX-License-Identifier: Apache-2.0
#include "client/call/consequences.h"

#include <cstring>

namespace millpond::client::consequence {
namespace {

void hand(Mirror& mirror, const CUstreamBatchMemOpParams& operation) {
  // The members of a write have the same offsets as those of a wait.
  const auto& word = operation.waitValue;
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return handWord(mirror, operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32, word.address, word.value,
                      word.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return handWord(mirror, operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64, word.address, word.value64,
                      word.flags);
    default: return;
  }
}

}  // namespace

void batchesWords(Call& call, const cmd::StreamBatchMemOpV2& batch, std::span<const std::byte> operations) {
  if (!handsWords(call, batch.stream)) return;
  for (; operations.size() >= sizeof(CUstreamBatchMemOpParams);
       operations = operations.subspan(sizeof(CUstreamBatchMemOpParams))) {
    CUstreamBatchMemOpParams one;
    std::memcpy(&one, operations.data(), sizeof one);
    hand(call.remote().mirror, one);
  }
}

}  // namespace millpond::client::consequence
