// SPDX-License-Identifier: Apache-2.0
// The work of a graph node, from its parameters.
#pragma once

#include <vector>

#include "softgpu/driver/api/api.h"
#include "softgpu/driver/graphs/graph.h"

namespace millpond::softgpu::api {

/// The largest number of writes of words and waits for them that one call takes.
inline constexpr unsigned kMostWords = 256;

/// The work of a node of `graph` that comes after others. Allocation nodes write their address into `params`,
/// conditional ones their bodies.
CUresult workOf(Driver& driver, Graph& graph, const std::vector<GraphNode::Edge>& after, CUgraphNodeParams& params,
                NodeWork* work);

}  // namespace millpond::softgpu::api
