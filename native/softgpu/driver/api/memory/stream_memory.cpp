// SPDX-License-Identifier: Apache-2.0
// Entry points: words of memory that streams write and wait for, and stream attributes.
#include <cstring>

#include "softgpu/driver/api/api.h"
#include "softgpu/driver/api/graphs/node_work.h"
#include "softgpu/driver/engine/transfer.h"
#include "softgpu/driver/graphs/capture.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

/// The value comes from the program and need not be an enumerator of its type.
bool isPolicy(const CUstreamAttrValue& value) {
  int32_t policy = 0;
  std::memcpy(&policy, &value, sizeof policy);
  return policy >= CU_SYNC_POLICY_AUTO && policy <= CU_SYNC_POLICY_BLOCKING_SYNC;
}

/// Gives the operations to a stream, or to its capture.
CUresult submit(CUstream stream, std::span<const CUstreamBatchMemOpParams> operations) {
  return withStream(stream, [&](Driver&, const StreamTarget& target) -> CUresult {
    PreparedTransfer prepared;
    if (CUresult result = prepareWords(target.context, operations, &prepared)) return result;
    bool captured = false;
    WordsWork work{{operations.begin(), operations.end()}, target.context};
    if (CUresult result = captureWork(target, std::move(work), &captured); result || captured) return result;
    if (prepared.body) target.context->enqueue(target.queue, prepared.kind, std::move(prepared.body));
    return CUDA_SUCCESS;
  });
}

template <typename Value>
CUresult write(CUstream stream, CUdeviceptr address, Value value, unsigned flags) {
  CUstreamBatchMemOpParams op{};
  op.writeValue.address = address;
  op.writeValue.flags = flags;
  if constexpr (sizeof(Value) == sizeof(cuuint64_t)) {
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    op.writeValue.value64 = value;
  } else {
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.value = value;
  }
  return submit(stream, {&op, 1});
}

template <typename Value>
CUresult waitFor(CUstream stream, CUdeviceptr address, Value value, unsigned flags) {
  CUstreamBatchMemOpParams op{};
  op.waitValue.address = address;
  op.waitValue.flags = flags;
  if constexpr (sizeof(Value) == sizeof(cuuint64_t)) {
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    op.waitValue.value64 = value;
  } else {
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.value = value;
  }
  return submit(stream, {&op, 1});
}

}  // namespace

extern "C" {

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return write(stream, addr, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return write(stream, addr, value, flags);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return waitFor(stream, addr, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return waitFor(stream, addr, value, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
                               unsigned int flags) {
  if (flags != 0 || count > kMostWords || (count > 0 && !paramArray)) return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, {paramArray, count});
}

// Preferences of a stream have no effect here; they are stored so that they can be read back.

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue* value) {
  return withStream(hStream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (!value || !Queue::isAttribute(attr)) return CUDA_ERROR_INVALID_VALUE;
    if (attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY && !isPolicy(*value)) return CUDA_ERROR_INVALID_VALUE;
    target.queue->setAttribute(attr, *value);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value_out) {
  return withStream(hStream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (!value_out || !Queue::isAttribute(attr)) return CUDA_ERROR_INVALID_VALUE;
    *value_out = target.queue->attribute(attr);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream) {
  return withStream(srcStream, [&](Driver&, const StreamTarget& from) -> CUresult {
    return withStream(dstStream, [&](Driver&, const StreamTarget& to) -> CUresult {
      to.queue->copyAttributes(*from.queue);
      return CUDA_SUCCESS;
    });
  });
}

}  // extern "C"
