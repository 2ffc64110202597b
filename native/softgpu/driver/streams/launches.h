// SPDX-License-Identifier: Apache-2.0
// Launches that a stream is given: work, or a node of the graph into which the stream is captured.
#pragma once

#include <memory>
#include <span>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/engine/launch.h"
#include "softgpu/driver/model/event.h"
#include "softgpu/driver/model/handle_table.h"
#include "softgpu/driver/model/stream.h"

namespace millpond::softgpu {

/// Checks the launch as the driver does, copies the parameters and queues the grid. Parameters are given as one pointer
/// each (`parameters`) or as one buffer (`extra`, a list of CU_LAUNCH_PARAM_*), never both. `known`: the events that
/// `attributes` may name.
CUresult enqueueLaunch(const StreamTarget& stream, const std::shared_ptr<Function>& function, const LaunchShape& shape,
                       void** parameters, void** extra, std::span<const CUlaunchAttribute> attributes,
                       const HandleTable<Event, CUevent>& known);

}  // namespace millpond::softgpu
