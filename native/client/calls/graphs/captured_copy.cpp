// SPDX-License-Identifier: Apache-2.0
#include "client/calls/graphs/captured_copy.h"

#include <span>
#include <vector>

#include "client/calls/graphs/graph_call.h"
#include "client/calls/graphs/node_params.h"

namespace millpond::client::api {

CUresult captureCopy(Call& call, uint64_t stream, const CUDA_MEMCPY3D& copy) {
  PackedNode packed;
  if (const CUresult r = pack(call, nodeOf(copy), packed); r != CUDA_SUCCESS) return r;
  Reply<cmd::CaptureInfoReply> place;
  if (const CUresult r = place.of(call, cmd::CaptureInfo{.stream = stream}); r != CUDA_SUCCESS) return r;
  switch (place.fixed().status) {
    case CU_STREAM_CAPTURE_STATUS_ACTIVE: break;
    case CU_STREAM_CAPTURE_STATUS_INVALIDATED: return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    default: return CUDA_ERROR_ILLEGAL_STATE;  // another thread has ended the capture
  }
  const std::vector<std::byte> bytes = packed.bytes();
  cmd::GraphAddNode node{};
  node.graph = place.fixed().graph;
  node.hasEdges = place.tail(1).empty() ? 0 : 1;
  Reply<cmd::GraphAddNodeReply> added;
  if (const CUresult r = added.of(call, node, place.tail(0), place.tail(1), std::span<const std::byte>(bytes));
      r != CUDA_SUCCESS)
    return r;
  const uint64_t number = added.fixed().node;
  Session::Answer answer;
  return call.waitFor(cmd::CaptureDepend{.stream = stream, .flags = CU_STREAM_SET_CAPTURE_DEPENDENCIES}, answer,
                      std::as_bytes(std::span(&number, 1)), std::span<const std::byte>());
}

}  // namespace millpond::client::api
