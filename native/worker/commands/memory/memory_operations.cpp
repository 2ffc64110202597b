// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/memory/memory_operations.h"

#include <cstddef>
#include <string>

namespace millpond::worker {
namespace {

constexpr uint32_t kMaxOperations = 1024;

}  // namespace

CUresult MemoryOperations::admit(std::span<const std::byte> bytes, std::vector<CUstreamBatchMemOpParams>& out,
                                 bool isRecorded) {
  using Operation = CUstreamBatchMemOpParams;
  if (bytes.size() % sizeof(Operation) || bytes.size() > kMaxOperations * sizeof(Operation))
    return violation("memory operations of " + std::to_string(bytes.size()) + " bytes");
  out.clear();
  for (size_t at = 0; at < bytes.size(); at += sizeof(Operation)) {
    const auto sent = Crossing<Operation>::in(bytes.data() + at);
    Operation operation = sent.numbers();
    uint64_t width = 0;
    switch (operation.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_32: width = 4; break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64: width = 8; break;
      case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      case CU_STREAM_MEM_OP_BARRIER: break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
    // Waits and writes have their address at the same offset.
    static_assert(offsetof(Operation, waitValue.address) == offsetof(Operation, writeValue.address));
    SessionRange word;
    if (width)
      if (CUresult rc =
              addresses_.reach(sent.address<offsetof(Operation, waitValue.address)>(), width, word, isRecorded))
        return rc;
    operation.waitValue.address = word.device();
    const bool isWait =
        operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    if (isWait && isRecorded) order_.expectWordsOfGraphs();
    out.push_back(operation);
  }
  return CUDA_SUCCESS;
}

CUresult MemoryOperations::attribute(CUlaunchAttributeID id, const Crossing<CUlaunchAttributeValue>& value,
                                     CUlaunchAttributeValue& out, bool isRecorded) {
  if (kindOf(id) != LaunchAttributeKind::kWindow) {
    out = value.whole();
    return CUDA_SUCCESS;
  }
  out = value.numbers();
  // A hint for the device's cache: the device checks that the window ends within its memory.
  SessionRange first;
  if (CUresult rc = addresses_.reach(value.address<offsetof(CUlaunchAttributeValue, accessPolicyWindow.base_ptr)>(),
                                     out.accessPolicyWindow.num_bytes ? 1 : 0, first, isRecorded))
    return rc;
  out.accessPolicyWindow.base_ptr = reinterpret_cast<void*>(first.device());
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
