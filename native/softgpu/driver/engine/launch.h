// SPDX-License-Identifier: Apache-2.0
// Kernel launches: what may be asked of a kernel, its parameters, and how its faults end the context.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/model/stream.h"
#include "softgpu/driver/program/function.h"
#include "softgpu/ptx/engine.h"

namespace millpond::softgpu {

struct LaunchShape {
  ptx::Dim3 grid;
  ptx::Dim3 block;
  uint32_t dynamicSharedBytes = 0;
  /// Its blocks may wait for each other, so all of them are on the device at the same time.
  bool isCooperative = false;
};

/// The attributes of a launch, parsed.
bool isCooperative(std::span<const CUlaunchAttribute> attributes);

/// A launch that has been checked, with its parameters.
struct PreparedLaunch {
  std::shared_ptr<Function> function;
  LaunchShape shape;
  std::vector<std::byte> parameters;
  std::shared_ptr<const ptx::TextureMap> textures;  // null: the objects, since the module has no references
};

/// Checks the launch as the driver does and copies the parameters. They are given either as one pointer each
/// (`parameters`) or as one buffer (`extra`, a list of CU_LAUNCH_PARAM_*), never as both.
CUresult prepareLaunch(const ContextPtr& context, const std::shared_ptr<Function>& function, const LaunchShape& shape,
                       void** parameters, void** extra, PreparedLaunch* prepared);
/// The work that runs the grid, which sets `conditions`, if given.
std::function<void()> launchBody(const ContextPtr& context, const PreparedLaunch& launch,
                                 std::shared_ptr<ptx::Conditions> conditions = nullptr);

/// The error with which a fault ends the context.
CUresult faultCode(ptx::Fault::Kind kind);

}  // namespace millpond::softgpu
