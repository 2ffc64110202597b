// SPDX-License-Identifier: Apache-2.0
// Where a stream, or an event, stands in a capture.
#pragma once

#include <memory>
#include <vector>

#include "cuda/gen/cuda_api.h"

namespace millpond::softgpu {

struct Capture;
struct GraphNode;

/// An edge from a node, as stored with its target.
struct GraphEdge {
  GraphNode* from = nullptr;
  CUgraphEdgeData data{};
};

/// Guarded by graphMutex().
struct CapturePoint {
  std::shared_ptr<Capture> capture;
  std::vector<GraphEdge> after;  ///< the dependencies of the next node
  explicit operator bool() const { return capture != nullptr; }
};

}  // namespace millpond::softgpu
