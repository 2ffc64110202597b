// SPDX-License-Identifier: Apache-2.0
// The wire format of graphs and their nodes: the parameters of a node of any kind, and the numbers of graph objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "cuda/crossing.h"
#include "cuda/gen/cuda_api.h"
#include "protocol/address.h"

namespace millpond::graph {

/// The kinds of numbered objects: the worker assigns the numbers, and programs hold them as opaque pointers.
enum class Tag : uint64_t { kGraph = 0xf1, kNode = 0xf2, kExec = 0xf3, kUserObject = 0xf4 };
constexpr uint64_t number(Tag tag, uint64_t count) { return (count << 12) | (static_cast<uint64_t>(tag) << 4); }
constexpr bool is(Tag tag, uint64_t number) {
  return (number & 0xfff) == (static_cast<uint64_t>(tag) << 4) && number >> 12 != 0;
}

/// A node's parameters, plain data. Addresses of host memory are the client's.
struct NodeRecord {
  uint32_t type;   ///< CUgraphNodeType
  uint32_t count;  ///< of the data that follows: parameter bytes of a kernel, access descriptions, memory operations
  union {
    struct {
      uint64_t function;
      uint32_t grid[3];
      uint32_t block[3];
      uint32_t sharedBytes;
      uint32_t reserved;
    } kernel;
    Crossing<CUDA_MEMCPY3D> copy;
    Crossing<CUDA_MEMSET_NODE_PARAMS> fill;
    struct {
      uint64_t function;
      uint64_t data;
      uint32_t isCopy;  ///< 1: the function copies between memory of the client
      uint32_t reserved;
    } host;
    struct {
      uint64_t graph;
      uint32_t ownership;  ///< CUgraphChildGraphNodeOwnership
      uint32_t reserved;
    } child;
    uint64_t event;
    struct {
      Crossing<CUmemPoolProps> pool;
      uint64_t bytes;
      uint64_t address;  ///< to the client: its address
    } allocation;
    wire::Address address;  ///< that a free node frees
    struct {
      uint64_t handle;
      uint32_t kind;  ///< CUgraphConditionalNodeType
      uint32_t bodies;
    } conditional;
    uint32_t operationFlags;
  };
};

/// Where the device finds memory through a node as sent by the client, except client memory that copies read or write.
inline std::vector<uint64_t> devicePlaces(std::span<const std::byte> node) {
  NodeRecord record;
  if (node.size() < sizeof(record)) return {};
  std::memcpy(&record, node.data(), sizeof(record));
  switch (record.type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const CUDA_MEMCPY3D copy = record.copy.whole();
      std::vector<uint64_t> places;
      if (copy.srcMemoryType == CU_MEMORYTYPE_DEVICE) places.push_back(copy.srcDevice);
      if (copy.dstMemoryType == CU_MEMORYTYPE_DEVICE) places.push_back(copy.dstDevice);
      return places;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: return {record.fill.whole().dst};
    default: return {};
  }
}

/// The part behind the record, if addresses may be anywhere in it: parameters of a kernel, memory operations.
inline std::span<const std::byte> partWithAddresses(std::span<const std::byte> node) {
  uint32_t type = 0;
  if (node.size() < sizeof(NodeRecord)) return {};
  std::memcpy(&type, node.data(), sizeof(type));
  const bool has = type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  return has ? node.subspan(sizeof(NodeRecord)) : std::span<const std::byte>{};
}

/// Memory of the client that an executable graph reads or writes.
struct Source {
  uint64_t number;  ///< 0: it is written
  uint64_t address;
  uint64_t bytes;    ///< from the first to the last byte
  uint32_t hasGaps;  ///< 1: not every byte between them is written
  uint32_t reserved;
};

inline constexpr uint32_t kListPage = 1024;
inline constexpr uint32_t kSourcePage = 1024;
inline constexpr uint32_t kTextPage = 32 << 10;
inline constexpr uint32_t kMaxDependencies = 2048;  ///< of one captured node, or added by one call's frame
inline constexpr uint32_t kMaxBodies = 64;

}  // namespace millpond::graph
