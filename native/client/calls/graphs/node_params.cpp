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

/// The location of an end that may be anywhere, or of which the worker has its own copy. As on a card, device memory
/// that the program declares as host memory is still device memory.
void resolveMemoryType(Call& call, CUmemorytype& type, CUdeviceptr& device, uint64_t& host) {
  const CUdeviceptr place = type == CU_MEMORYTYPE_HOST ? host : device;
  const auto run = call.remote().memory.find(place);
  if (run && run->isOfWorker()) {
    type = CU_MEMORYTYPE_DEVICE;
    device = place;
    return;
  }
  if (type != CU_MEMORYTYPE_UNIFIED) return;
  type = CU_MEMORYTYPE_HOST;
  host = device;
}

/// Copies the rows of a CUDA_MEMCPY3D between memory of this process.
void copyRows(void* data) {
  const auto& copy = *static_cast<const CUDA_MEMCPY3D*>(data);
  const size_t toPitch = copy.dstPitch ? copy.dstPitch : copy.dstXInBytes + copy.WidthInBytes;
  const size_t fromPitch = copy.srcPitch ? copy.srcPitch : copy.srcXInBytes + copy.WidthInBytes;
  const size_t toRows = copy.dstHeight ? copy.dstHeight : copy.dstY + copy.Height;
  const size_t fromRows = copy.srcHeight ? copy.srcHeight : copy.srcY + copy.Height;
  for (size_t z = 0; z < copy.Depth; ++z)
    for (size_t y = 0; y < copy.Height; ++y) {
      auto* to = static_cast<std::byte*>(copy.dstHost) + ((copy.dstZ + z) * toRows + copy.dstY + y) * toPitch +
                 copy.dstXInBytes;
      const auto* from = static_cast<const std::byte*>(copy.srcHost) +
                         ((copy.srcZ + z) * fromRows + copy.srcY + y) * fromPitch + copy.srcXInBytes;
      std::memmove(to, from, copy.WidthInBytes);
    }
}

/// The same rules as for copies outside of graphs.
bool areRowsValid(size_t x, size_t y, size_t pitch, size_t rows, const CUDA_MEMCPY3D& copy) {
  const size_t row = x + copy.WidthInBytes;
  if (row < x || (pitch != 0 && pitch < row && copy.Height * copy.Depth > 1)) return false;
  return rows == 0 || copy.Depth == 1 || rows >= y + copy.Height;
}

/// The GPU's host cannot access either end, so a host function performs the copy in stream order.
CUresult packHostCopy(Call& call, const CUDA_MEMCPY3D& copy, PackedNode& out) {
  if (copy.srcLOD || copy.dstLOD || !copy.WidthInBytes || !copy.Height || !copy.Depth) return CUDA_ERROR_INVALID_VALUE;
  out.record.type = CU_GRAPH_NODE_TYPE_HOST;
  out.record.host = {reinterpret_cast<uint64_t>(&copyRows),
                     reinterpret_cast<uint64_t>(&call.remote().graphs.hostCopy(copy)), 1, 0};
  call.remote().functions.give(GivenFunctions::Shape::kOfData, out.record.host.function, out.record.host.data,
                               GivenFunctions::Uses::kAny);
  return CUDA_SUCCESS;
}

/// The worker's number for the array at an end of a copy.
CUresult resolveArray(Call& call, CUmemorytype type, CUarray& array) {
  if (type != CU_MEMORYTYPE_ARRAY) {
    array = nullptr;
    return CUDA_SUCCESS;
  }
  uint64_t number = 0;
  if (const CUresult r = call.handle(HandleKind::kArray, array, number); r != CUDA_SUCCESS) return r;
  array = reinterpret_cast<CUarray>(number);
  return CUDA_SUCCESS;
}

CUresult packCopy(Call& call, const CUDA_MEMCPY3D& params, CUcontext context, PackedNode& out) {
  if (const CUresult r = useContext(call, context); r != CUDA_SUCCESS) return r;
  CUDA_MEMCPY3D copy = params;
  if (const CUresult r = resolveArray(call, copy.srcMemoryType, copy.srcArray); r != CUDA_SUCCESS) return r;
  if (const CUresult r = resolveArray(call, copy.dstMemoryType, copy.dstArray); r != CUDA_SUCCESS) return r;
  auto from = reinterpret_cast<uint64_t>(copy.srcHost);
  auto to = reinterpret_cast<uint64_t>(copy.dstHost);
  resolveMemoryType(call, copy.srcMemoryType, copy.srcDevice, from);
  resolveMemoryType(call, copy.dstMemoryType, copy.dstDevice, to);
  copy.srcHost = reinterpret_cast<const void*>(from);
  copy.dstHost = reinterpret_cast<void*>(to);
  const bool fromHost = copy.srcMemoryType == CU_MEMORYTYPE_HOST;
  const bool toHost = copy.dstMemoryType == CU_MEMORYTYPE_HOST;
  if ((fromHost && !from) || (toHost && !to)) return CUDA_ERROR_INVALID_VALUE;
  if ((copy.srcMemoryType != CU_MEMORYTYPE_ARRAY &&
       !areRowsValid(copy.srcXInBytes, copy.srcY, copy.srcPitch, copy.srcHeight, copy)) ||
      (copy.dstMemoryType != CU_MEMORYTYPE_ARRAY &&
       !areRowsValid(copy.dstXInBytes, copy.dstY, copy.dstPitch, copy.dstHeight, copy)))
    return CUDA_ERROR_INVALID_VALUE;
  if (fromHost && toHost) return packHostCopy(call, copy, out);
  // From the first row of the first slice to the last row of the last; only the worker has the rows.
  const auto rows = [&](size_t pitch, size_t height) {
    return (copy.Depth ? copy.Depth - 1 : 0) * pitch * height + (copy.Height ? copy.Height - 1 : 0) * pitch +
           copy.WidthInBytes;
  };
  // The driver would check against its own allocations, of which the program's are parts.
  const auto isCovered = [&](CUmemorytype type, CUdeviceptr base, size_t x, size_t y, size_t z, size_t pitch,
                             size_t height) {
    const size_t step = pitch ? pitch : x + copy.WidthInBytes;
    const size_t slice = height ? height : y + copy.Height;
    return type != CU_MEMORYTYPE_DEVICE ||
           call.remote().memory.mayUse(base + (z * slice + y) * step + x, rows(step, slice));
  };
  if (!isCovered(copy.srcMemoryType, copy.srcDevice, copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcPitch,
                 copy.srcHeight) ||
      !isCovered(copy.dstMemoryType, copy.dstDevice, copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstPitch,
                 copy.dstHeight))
    return CUDA_ERROR_INVALID_VALUE;
  // Without a pitch or a number of rows there are no gaps.
  const auto visit = [&](uint64_t base, size_t x, size_t y, size_t z, size_t pitch, size_t height, auto allow) {
    const size_t step = pitch ? pitch : x + copy.WidthInBytes;
    const size_t slice = height ? height : y + copy.Height;
    allow(base + (z * slice + y) * step + x, rows(step, slice));
  };
  auto& graphs = call.remote().graphs;
  if (toHost)
    visit(to, copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstPitch, copy.dstHeight,
          [&](uint64_t first, uint64_t bytes) { graphs.allowLanding(first, bytes); });
  if (fromHost)
    visit(from, copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcPitch, copy.srcHeight,
          [&](uint64_t first, uint64_t bytes) { graphs.allowReading(first, bytes); });
  out.record.copy = copy;
  return CUDA_SUCCESS;
}

CUresult packFill(Call& call, const CUDA_MEMSET_NODE_PARAMS& params, CUcontext context, PackedNode& out) {
  if (const CUresult r = useContext(call, context); r != CUDA_SUCCESS) return r;
  const size_t above = params.height > 1 ? (params.height - 1) * params.pitch : 0;
  if (!call.remote().memory.mayUse(params.dst, above + params.width * params.elementSize))
    return CUDA_ERROR_INVALID_VALUE;
  out.record.fill = params;
  return CUDA_SUCCESS;
}

CUresult packEvent(Call& call, CUevent event, PackedNode& out) {
  return call.handle(HandleKind::kEvent, event, out.record.event);
}

}  // namespace

const CUDA_MEMCPY3D* hostCopyOf(Call& call, const graph::NodeRecord& record) {
  const bool isCopy =
      record.type == CU_GRAPH_NODE_TYPE_HOST && record.host.function == reinterpret_cast<uint64_t>(&copyRows);
  return isCopy ? call.remote().graphs.findHostCopy(record.host.data) : nullptr;
}

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
      out.record.host = {reinterpret_cast<uint64_t>(params.host.fn), reinterpret_cast<uint64_t>(params.host.userData),
                         0, 0};
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
