// SPDX-License-Identifier: Apache-2.0
// The parameters of a graph node: built from the arguments of the calls for its kind, and packed for the worker.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "client/call/call.h"
#include "client/gen/api.h"
#include "cuda/graph_node.h"

namespace millpond::client::api {

/// Versions of a structure that differ only in name, or by members at the end of the newer one.
template <typename To, typename From>
To as(const From& from) {
  To to{};
  std::memcpy(&to, &from, std::min(sizeof(to), sizeof(from)));
  return to;
}

inline CUgraphNodeParams nodeOf(CUgraphNodeType type) {
  CUgraphNodeParams out{};
  out.type = type;
  return out;
}
inline CUgraphNodeParams nodeOf(const CUDA_KERNEL_NODE_PARAMS& params) {
  CUgraphNodeParams out = nodeOf(CU_GRAPH_NODE_TYPE_KERNEL);
  out.kernel = as<CUDA_KERNEL_NODE_PARAMS_v3>(params);
  return out;
}
inline CUgraphNodeParams nodeOf(const CUDA_MEMCPY3D& params, CUcontext context = nullptr) {
  CUgraphNodeParams out = nodeOf(CU_GRAPH_NODE_TYPE_MEMCPY);
  out.memcpy.copyCtx = context;
  out.memcpy.copyParams = params;
  return out;
}
inline CUgraphNodeParams nodeOf(const CUDA_MEMSET_NODE_PARAMS& params, CUcontext context = nullptr) {
  CUgraphNodeParams out = nodeOf(CU_GRAPH_NODE_TYPE_MEMSET);
  out.memset = as<CUDA_MEMSET_NODE_PARAMS_v2>(params);
  out.memset.ctx = context;
  return out;
}
inline CUgraphNodeParams nodeOf(const CUDA_HOST_NODE_PARAMS& params) {
  CUgraphNodeParams out = nodeOf(CU_GRAPH_NODE_TYPE_HOST);
  out.host = {params.fn, params.userData};
  return out;
}
inline CUgraphNodeParams childNode(CUgraph child) {
  CUgraphNodeParams out = nodeOf(CU_GRAPH_NODE_TYPE_GRAPH);
  out.graph.graph = child;
  out.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
  return out;
}
inline CUgraphNodeParams recordNode(CUevent event) {
  CUgraphNodeParams out = nodeOf(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  out.eventRecord.event = event;
  return out;
}
inline CUgraphNodeParams waitNode(CUevent event) {
  CUgraphNodeParams out = nodeOf(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  out.eventWait.event = event;
  return out;
}
inline CUgraphNodeParams freeNode(CUdeviceptr address) {
  CUgraphNodeParams out = nodeOf(CU_GRAPH_NODE_TYPE_MEM_FREE);
  out.free.dptr = address;
  return out;
}
inline CUgraphNodeParams nodeOf(const CUDA_MEM_ALLOC_NODE_PARAMS& params) {
  CUgraphNodeParams out = nodeOf(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  out.alloc = as<CUDA_MEM_ALLOC_NODE_PARAMS_v2>(params);
  return out;
}
inline CUgraphNodeParams nodeOf(const CUDA_BATCH_MEM_OP_NODE_PARAMS& params) {
  CUgraphNodeParams out = nodeOf(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  out.memOp = as<CUDA_BATCH_MEM_OP_NODE_PARAMS_v2>(params);
  return out;
}

/// A node as sent to the worker: the record and the data that follows it.
struct PackedNode {
  graph::NodeRecord record{};
  std::vector<std::byte> rest;

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(sizeof(record) + rest.size());
    std::memcpy(all.data(), &record, sizeof(record));
    if (!rest.empty()) std::memcpy(all.data() + sizeof(record), rest.data(), rest.size());
    return all;
  }
  template <typename T>
  void follow(const T* first, size_t count) {
    const auto run = std::as_bytes(std::span(first, count));
    rest.assign(run.begin(), run.end());
    record.count = static_cast<uint32_t>(count);
  }
};

/// The copy between memory of this process that a node's function performs; null for a function of the program.
const CUDA_MEMCPY3D* hostCopyOf(Call& call, const graph::NodeRecord& record);

/// Performs the client's checks, and makes the call act in the node's context.
CUresult pack(Call& call, const CUgraphNodeParams& params, PackedNode& out);

}  // namespace millpond::client::api
