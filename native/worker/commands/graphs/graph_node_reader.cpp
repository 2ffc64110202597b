// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/graph_node_reader.h"

#include <cstddef>
#include <cstring>
#include <string>

namespace millpond::worker {
namespace {

constexpr uint32_t kMaxAccess = 64;

bool isHost(CUmemorytype type) { return type == CU_MEMORYTYPE_HOST; }

}  // namespace

CUresult GraphNodeReader::readKernel(const graph::NodeRecord& record, std::span<const std::byte> rest,
                                     NodeParams& out) {
  const uint64_t wire = record.kernel.function;
  CUfunction function = nullptr;
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!functions_.functionOrKernel(wire, function)) return violation("unknown function");
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  const FunctionInfo& info = functions_.info(wire);
  if (rest.size() != info.parameterBytes || record.count != rest.size())
    return violation("a kernel node with " + std::to_string(rest.size()) + " bytes of parameters instead of " +
                     std::to_string(info.parameterBytes));
  out.bytes.assign(rest.begin(), rest.end());
  for (size_t i = 0; i < info.layout.size(); i += 2) out.pointers.push_back(out.bytes.data() + info.layout[i]);
  auto& kernel = out.params.kernel;
  kernel.func = function;
  kernel.gridDimX = record.kernel.grid[0];
  kernel.gridDimY = record.kernel.grid[1];
  kernel.gridDimZ = record.kernel.grid[2];
  kernel.blockDimX = record.kernel.block[0];
  kernel.blockDimY = record.kernel.block[1];
  kernel.blockDimZ = record.kernel.block[2];
  kernel.sharedMemBytes = record.kernel.sharedBytes;
  kernel.kernelParams = out.pointers.empty() ? nullptr : out.pointers.data();
  kernel.ctx = contexts_.at(contexts_.bound()).handle;
  return CUDA_SUCCESS;
}

CUresult GraphNodeReader::readAllocation(const graph::NodeRecord& record, std::span<const std::byte> rest,
                                         NodeParams& out) {
  if (record.count > kMaxAccess || rest.size() != record.count * sizeof(CUmemAccessDesc))
    return violation("access descriptions of " + std::to_string(rest.size()) + " bytes");
  auto& allocation = out.params.alloc;
  allocation.poolProps = record.allocation.pool.numbers();
  if (allocation.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  // Memory that a graph allocates is its own.
  if (allocation.poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemLocation& location = allocation.poolProps.location;
  CUdevice real = 0;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device(location.id, real)) return CUDA_ERROR_INVALID_VALUE;
  ClaimBudget& budget = budgets_.at(static_cast<size_t>(location.id));
  // The driver counts such memory, and the counts cannot be set.
  journal_.leaveTrace(cmd::Op::kGraphMemory);
  location.id = real;
  out.access.resize(record.count);
  if (!rest.empty()) std::memcpy(out.access.data(), rest.data(), rest.size());
  for (CUmemAccessDesc& each : out.access)
    if (each.location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device(each.location.id, each.location.id))
      return CUDA_ERROR_INVALID_VALUE;
  allocation.accessDescs = out.access.empty() ? nullptr : out.access.data();
  allocation.accessDescCount = out.access.size();
  const uint64_t bytes = record.allocation.bytes;
  allocation.bytesize = bytes;
  // The driver allocates it from its own pool: it counts while a graph has the node, or while memory is left from a
  // launch.
  if (!budget.take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  budgets_.publish();
  out.allocation = std::shared_ptr<GraphAllocation>(std::make_unique<GraphAllocation>().release(),
                                                    [&budgets = budgets_, &budget, bytes](GraphAllocation* gone) {
                                                      const std::unique_ptr<GraphAllocation> end(gone);
                                                      budget.give({bytes});
                                                      budgets.publish();
                                                    });
  out.allocation->bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult GraphNodeReader::readArray(uint64_t wire, CUarray& out) {
  if (!handle(HandleKind::kArray, wire, out)) return violation("unknown array");
  return out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult GraphNodeReader::readCopy(const graph::NodeRecord& record, NodeParams& out) {
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  using C = CUDA_MEMCPY3D;
  CUDA_MEMCPY3D copy = record.copy.numbers();
  const auto isPlain = [](CUmemorytype type) {
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
  };
  const bool fromArray = copy.srcMemoryType == CU_MEMORYTYPE_ARRAY;
  const bool toArray = copy.dstMemoryType == CU_MEMORYTYPE_ARRAY;
  if ((!fromArray && !isPlain(copy.srcMemoryType)) || (!toArray && !isPlain(copy.dstMemoryType)))
    return CUDA_ERROR_INVALID_VALUE;
  if (fromArray)
    if (CUresult rc = readArray(record.copy.handle<offsetof(C, srcArray)>(), copy.srcArray)) return rc;
  if (toArray)
    if (CUresult rc = readArray(record.copy.handle<offsetof(C, dstArray)>(), copy.dstArray)) return rc;
  const bool toDevice = isHost(copy.srcMemoryType);
  // The client performs copies from its own memory to its own memory.
  if (toDevice && isHost(copy.dstMemoryType)) return CUDA_ERROR_NOT_SUPPORTED;
  Box src{
      .address = toDevice ? record.copy.address<offsetof(C, srcHost)>() : record.copy.address<offsetof(C, srcDevice)>(),
      .pitch = copy.srcPitch,
      .rows = copy.srcHeight,
      .x = copy.srcXInBytes,
      .y = copy.srcY,
      .z = copy.srcZ,
      .width = copy.WidthInBytes,
      .height = copy.Height,
      .depth = copy.Depth};
  Box dst{.address = isHost(copy.dstMemoryType) ? record.copy.address<offsetof(C, dstHost)>()
                                                : record.copy.address<offsetof(C, dstDevice)>(),
          .pitch = copy.dstPitch,
          .rows = copy.dstHeight,
          .x = copy.dstXInBytes,
          .y = copy.dstY,
          .z = copy.dstZ,
          .width = copy.WidthInBytes,
          .height = copy.Height,
          .depth = copy.Depth};
  if ((!fromArray && (!src.fill() || !src.extent())) || (!toArray && (!dst.fill() || !dst.extent())))
    return CUDA_ERROR_INVALID_VALUE;
  if (!fromArray) {
    copy.srcPitch = src.pitch;
    copy.srcHeight = src.rows;
  }
  if (!toArray) {
    copy.dstPitch = dst.pitch;
    copy.dstHeight = dst.rows;
  }
  // Memory of type "host" belongs to the client unless both sides map it: the worker has a stage for it. All other
  // memory belongs to the session, or is invalid: the driver never has to classify an address.
  SessionRange from, to;
  const CUresult fromRc = fromArray ? CUDA_SUCCESS : addresses_.reach(src, from, true);
  const CUresult toRc = toArray ? CUDA_SUCCESS : addresses_.reach(dst, to, true);
  const bool fromStage = toDevice && (fromRc || !from.isHost());
  const bool toStage = isHost(copy.dstMemoryType) && (toRc || !to.isHost());
  if (fromRc && !fromStage) return fromRc;
  if (toRc && !toStage) return toRc;
  if (fromStage || toStage)
    if (CUresult rc = stages_.make(fromStage ? src : dst, fromStage, record.copy.whole(), out.stage)) return rc;
  if (fromStage) {
    copy.srcHost = out.stage->memory;
    copy.srcXInBytes = copy.srcY = copy.srcZ = 0;
  } else if (!fromArray) {
    // The driver's offsets have the same base as the client's, unless that is none of the session's memory.
    const bool hasBase = addresses_.reachesBase(src, from);
    const uint64_t begin = hasBase ? from.device() - src.extent()->offset : from.device();
    if (!hasBase) copy.srcXInBytes = copy.srcY = copy.srcZ = 0;
    copy.srcMemoryType = from.isHost() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (from.isHost())
      copy.srcHost = reinterpret_cast<const void*>(begin);
    else
      copy.srcDevice = begin;
  }
  if (toStage) {
    copy.dstHost = out.stage->memory;
    copy.dstXInBytes = copy.dstY = copy.dstZ = 0;
  } else if (!toArray) {
    const bool hasBase = addresses_.reachesBase(dst, to);
    const uint64_t begin = hasBase ? to.device() - dst.extent()->offset : to.device();
    if (!hasBase) copy.dstXInBytes = copy.dstY = copy.dstZ = 0;
    copy.dstMemoryType = to.isHost() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (to.isHost())
      copy.dstHost = reinterpret_cast<void*>(begin);
    else
      copy.dstDevice = begin;
  }
  out.params.memcpy.copyCtx = contexts_.at(contexts_.bound()).handle;
  out.params.memcpy.copyParams = copy;
  return CUDA_SUCCESS;
}

CUresult GraphNodeReader::readFill(const graph::NodeRecord& record, NodeParams& out) {
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  const CUDA_MEMSET_NODE_PARAMS fill = record.fill.numbers();
  Box box{.address = record.fill.address<offsetof(CUDA_MEMSET_NODE_PARAMS, dst)>(), .pitch = fill.pitch};
  box.height = fill.height;
  if (__builtin_mul_overflow(fill.width, uint64_t{fill.elementSize}, &box.width)) return CUDA_ERROR_INVALID_VALUE;
  SessionRange range;
  if (CUresult rc = addresses_.reach(box, range, true)) return rc;
  out.params.memset = {range.device(),
                       fill.pitch,
                       fill.value,
                       fill.elementSize,
                       fill.width,
                       fill.height,
                       contexts_.at(contexts_.bound()).handle};
  return CUDA_SUCCESS;
}

CUresult GraphNodeReader::read(std::span<const std::byte> bytes, NodeParams& out) {
  graph::NodeRecord record;
  if (bytes.size() < sizeof(record)) return violation("a node of " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(&record, bytes.data(), sizeof(record));
  const auto rest = bytes.subspan(sizeof(record));
  out.params.type = static_cast<CUgraphNodeType>(record.type);
  switch (out.params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return readKernel(record, rest, out);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return readCopy(record, out);
    case CU_GRAPH_NODE_TYPE_MEMSET: return readFill(record, out);
    case CU_GRAPH_NODE_TYPE_HOST:
      if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
      out.call = calls_.of({CallbackKind::kHostFunction, contexts_.primaryOf(contexts_.bound()), record.host.function,
                            record.host.data, 0},
                           record.host.isCopy != 0);
      if (!out.call) return CUDA_ERROR_OUT_OF_MEMORY;
      out.params.host = {&HostCall::runNode, const_cast<HostCall*>(out.call)};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      const GraphTable::Graph* child = graphs_.graph(record.child.graph);
      if (!child) return CUDA_ERROR_INVALID_VALUE;
      switch (record.child.ownership) {
        case CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE: break;
        case CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE:
          // A graph that is part of another one cannot be moved out of it.
          if (child->root != record.child.graph) return CUDA_ERROR_INVALID_VALUE;
          break;
        default: return CUDA_ERROR_INVALID_VALUE;
      }
      out.params.graph.graph = child->handle;
      out.params.graph.ownership = static_cast<CUgraphChildGraphNodeOwnership>(record.child.ownership);
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_EMPTY: return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
      CUevent event = nullptr;
      if (!handle(HandleKind::kEvent, record.event, event)) return violation("unknown event");
      if (!event) return CUDA_ERROR_INVALID_HANDLE;
      (out.params.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? out.params.eventWait.event : out.params.eventRecord.event) =
          event;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return readAllocation(record, rest, out);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      // Found in a table that contains only memory of this session's graphs.
      if (!graphMemory_.contains(AddressGate::key(record.address))) return CUDA_ERROR_INVALID_VALUE;
      out.params.free.dptr = AddressGate::key(record.address);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
      if (CUresult rc = operations_.admit(rest, out.operations, true)) return rc;
      if (record.count != out.operations.size()) return violation("the number of memory operations does not match");
      out.params.memOp = {contexts_.at(contexts_.bound()).handle, record.count, out.operations.data(),
                          record.operationFlags};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
      if (record.conditional.bodies > graph::kMaxBodies) return CUDA_ERROR_NOT_SUPPORTED;
      // A graph that the driver created for this session and that still exists.
      if (!graphs_.hasCondition(record.conditional.handle)) return CUDA_ERROR_INVALID_VALUE;
      out.params.conditional.handle = record.conditional.handle;
      out.params.conditional.type = static_cast<CUgraphConditionalNodeType>(record.conditional.kind);
      out.params.conditional.size = record.conditional.bodies;
      out.params.conditional.ctx = contexts_.at(contexts_.bound()).handle;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

void GraphNodeReader::adoptAllocation(uint64_t node, const NodeParams& params) {
  if (params.params.type == CU_GRAPH_NODE_TYPE_MEM_FREE) graphMemory_.willFree(params.params.free.dptr);
  if (!params.allocation) return;
  params.allocation->address = params.params.alloc.dptr;
  graphMemory_.add(params.allocation);
  graphs_.node(node)->allocation = params.allocation;
  graphs_.markSpecial(node);
}

}  // namespace millpond::worker
