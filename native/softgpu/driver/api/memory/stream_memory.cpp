// SPDX-License-Identifier: Apache-2.0
// Entry points: words of memory that streams write and wait for, and stream attributes.
#include <cstring>

#include "softgpu/driver/api/api.h"
#include "softgpu/driver/engine/transfer.h"
#include "softgpu/driver/graphs/capture.h"

using namespace millpond::softgpu;
using namespace millpond::softgpu::api;

namespace {

constexpr unsigned kWaitFlags = 3u | CU_STREAM_WAIT_VALUE_FLUSH;

CUresult write(const StreamTarget& target, const Word& word, unsigned flags) {
  if (flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) return CUDA_ERROR_INVALID_VALUE;
  return enqueueWrite(target, word);
}

/// The value comes from the program and need not be an enumerator of its type.
bool isPolicy(const CUstreamAttrValue& value) {
  int32_t policy = 0;
  std::memcpy(&policy, &value, sizeof policy);
  return policy >= CU_SYNC_POLICY_AUTO && policy <= CU_SYNC_POLICY_BLOCKING_SYNC;
}

CUresult waitFor(const StreamTarget& target, const Word& word, unsigned flags) {
  if (flags & ~kWaitFlags) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_STREAM_WAIT_VALUE_FLUSH) return CUDA_ERROR_NOT_SUPPORTED;  // as the device's attribute says
  return enqueueWaitFor(target, word, flags);
}

template <typename Body>
CUresult withFreeStream(CUstream stream, Body body) {
  return withStream(stream, [&](Driver&, const StreamTarget& target) -> CUresult {
    if (CUresult result = checkWait(target)) return result;
    return body(target);
  });
}

CUresult run(const StreamTarget& target, const CUstreamBatchMemOpParams& op) {
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return waitFor(target, {op.waitValue.address, op.waitValue.value, 4}, op.waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return waitFor(target, {op.waitValue.address, op.waitValue.value64, 8}, op.waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return write(target, {op.writeValue.address, op.writeValue.value, 4}, op.writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return write(target, {op.writeValue.address, op.writeValue.value64, 8}, op.writeValue.flags);
    case CU_STREAM_MEM_OP_BARRIER: return CUDA_SUCCESS;  // operations of a stream see earlier ones in any case
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

extern "C" {

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return withFreeStream(stream, [&](const StreamTarget& target) { return write(target, {addr, value, 4}, flags); });
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return withFreeStream(stream, [&](const StreamTarget& target) { return write(target, {addr, value, 8}, flags); });
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return withFreeStream(stream, [&](const StreamTarget& target) { return waitFor(target, {addr, value, 4}, flags); });
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return withFreeStream(stream, [&](const StreamTarget& target) { return waitFor(target, {addr, value, 8}, flags); });
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
                               unsigned int flags) {
  return withFreeStream(stream, [&](const StreamTarget& target) -> CUresult {
    if (flags != 0 || count > 256 || (count > 0 && !paramArray)) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i)
      if (CUresult result = run(target, paramArray[i])) return result;
    return CUDA_SUCCESS;
  });
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
