// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/gen/cuda_api.h"

namespace millpond::worker {

/// Memory of an allocation node, and its share of the limit.
struct GraphAllocation {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  bool isFreedByGraph = false;  ///< some graph has a node that frees it
};

}  // namespace millpond::worker
