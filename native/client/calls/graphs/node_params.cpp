// SPDX-License-Identifier: Apache-2.0
#include "client/calls/graphs/node_params.h"

#include "client/call/launch_parameters.h"
#include "client/call/preconditions.h"
#include "client/calls/graphs/graph_call.h"
#include "client/gen/api.h"

namespace millpond::client::api {
namespace {

CUresult packKernel(Call& call, const CUDA_KERNEL_NODE_PARAMS& params, PackedNode& out) {
  if (const CUresult r = useContext(call, params.ctx); r != CUDA_SUCCESS) return r;
  const void* function = params.func ? static_cast<const void*>(params.func) : static_cast<const void*>(params.kern);
  const auto kind = handle::kind(reinterpret_cast<uint64_t>(function));
  const HandleTable::Slot* slot =
      call.remote().handles.find(kind == HandleKind::kKernel ? kind : HandleKind::kFunction, function);
  if (!slot || !slot->function) return CUDA_ERROR_INVALID_HANDLE;
  const FunctionInfo& info = *slot->function;
  if (info.parameterBytes > kMaxParameterBytes) return CUDA_ERROR_INVALID_VALUE;
  out.rest.resize(info.parameterBytes);
  out.record.count = info.parameterBytes;
  out.record.kernel = {reinterpret_cast<uint64_t>(function),
                       {params.gridDimX, params.gridDimY, params.gridDimZ},
                       {params.blockDimX, params.blockDimY, params.blockDimZ},
                       params.sharedMemBytes,
                       0};
  return packParameters(info, params.kernelParams, params.extra, out.rest);
}

/// The location of an end that may be anywhere, or of which the worker has its own copy.
void resolveMemoryType(Call& call, CUmemorytype& type, CUdeviceptr& device, uint64_t& host) {
  const CUdeviceptr place = type == CU_MEMORYTYPE_HOST ? host : device;
  const auto run = call.remote().memory.find(place);
  if (run && (type == CU_MEMORYTYPE_UNIFIED ? run->isOfWorker() : run->kind == MemoryKind::kMirrored)) {
    type = CU_MEMORYTYPE_DEVICE;
    device = place;
    return;
  }
  if (type != CU_MEMORYTYPE_UNIFIED) return;
  type = CU_MEMORYTYPE_HOST;
  host = device;
}

CUresult packCopy(Call& call, const CUDA_MEMCPY3D& params, CUcontext context, PackedNode& out) {
  if (const CUresult r = useContext(call, context); r != CUDA_SUCCESS) return r;
  CUDA_MEMCPY3D copy = params;
  if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY || copy.dstMemoryType == CU_MEMORYTYPE_ARRAY)
    return notRemoted("a copy node with an array");
  auto from = reinterpret_cast<uint64_t>(copy.srcHost);
  auto to = reinterpret_cast<uint64_t>(copy.dstHost);
  resolveMemoryType(call, copy.srcMemoryType, copy.srcDevice, from);
  resolveMemoryType(call, copy.dstMemoryType, copy.dstDevice, to);
  copy.srcHost = reinterpret_cast<const void*>(from);
  copy.dstHost = reinterpret_cast<void*>(to);
  const bool fromHost = copy.srcMemoryType == CU_MEMORYTYPE_HOST;
  const bool toHost = copy.dstMemoryType == CU_MEMORYTYPE_HOST;
  if ((fromHost && !from) || (toHost && !to)) return CUDA_ERROR_INVALID_VALUE;
  if (fromHost && toHost) return notRemoted("a copy node from host memory to host memory");
  // From the first row of the first slice to the last of the last; only the worker has the rows.
  const auto rows = [&](size_t pitch, size_t height) {
    return (copy.Depth ? copy.Depth - 1 : 0) * pitch * height + (copy.Height ? copy.Height - 1 : 0) * pitch +
           copy.WidthInBytes;
  };
  if (toHost) {
    const uint64_t first = copy.dstZ * copy.dstPitch * copy.dstHeight + copy.dstY * copy.dstPitch + copy.dstXInBytes;
    call.remote().graphs.allowLanding(to + first, rows(copy.dstPitch, copy.dstHeight));
  }
  if (fromHost) {
    const uint64_t first = copy.srcZ * copy.srcPitch * copy.srcHeight + copy.srcY * copy.srcPitch + copy.srcXInBytes;
    call.remote().graphs.allowReading(from + first, rows(copy.srcPitch, copy.srcHeight));
  }
  out.record.copy = copy;
  return CUDA_SUCCESS;
}

CUresult packFill(Call& call, const CUDA_MEMSET_NODE_PARAMS& params, CUcontext context, PackedNode& out) {
  if (const CUresult r = useContext(call, context); r != CUDA_SUCCESS) return r;
  out.record.fill = params;
  return CUDA_SUCCESS;
}

CUresult packEvent(Call& call, CUevent event, PackedNode& out) {
  return call.handle(HandleKind::kEvent, event, out.record.event);
}

}  // namespace

CUresult pack(Call& call, const CUgraphNodeParams& params, PackedNode& out) {
  if (call.entry() != CUDA_SUCCESS) return call.entry();
  out.record.type = static_cast<uint32_t>(params.type);
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return packKernel(call, as<CUDA_KERNEL_NODE_PARAMS>(params.kernel), out);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return packCopy(call, params.memcpy.copyParams, params.memcpy.copyCtx, out);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return packFill(call, as<CUDA_MEMSET_NODE_PARAMS>(params.memset), params.memset.ctx, out);
    case CU_GRAPH_NODE_TYPE_HOST:
      if (!params.host.fn) return CUDA_ERROR_INVALID_VALUE;
      out.record.host = {reinterpret_cast<uint64_t>(params.host.fn), reinterpret_cast<uint64_t>(params.host.userData)};
      call.remote().functions.give(GivenFunctions::Shape::kOfData, out.record.host.function, out.record.host.data,
                                   GivenFunctions::Uses::kAny);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      out.record.child = {numberOf(params.graph.graph), static_cast<uint32_t>(params.graph.ownership), 0};
      return check(call, params.graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY: return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return packEvent(call, params.eventWait.event, out);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return packEvent(call, params.eventRecord.event, out);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      if (params.alloc.accessDescCount && !params.alloc.accessDescs) return CUDA_ERROR_INVALID_VALUE;
      out.record.allocation = {params.alloc.poolProps, params.alloc.bytesize, 0};
      out.follow(params.alloc.accessDescs, params.alloc.accessDescCount);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_FREE: out.record.address = params.free.dptr; return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      if (const CUresult r = useContext(call, params.memOp.ctx); r != CUDA_SUCCESS) return r;
      if (params.memOp.count && !params.memOp.paramArray) return CUDA_ERROR_INVALID_VALUE;
      out.record.operationFlags = params.memOp.flags;
      out.follow(params.memOp.paramArray, params.memOp.count);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      if (const CUresult r = useContext(call, params.conditional.ctx); r != CUDA_SUCCESS) return r;
      out.record.conditional = {params.conditional.handle, static_cast<uint32_t>(params.conditional.type),
                                params.conditional.size};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return notRemoted("a graph node for external semaphores",
                        "external semaphores belong to other APIs of the machine that has the GPU");
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace millpond::client::api
