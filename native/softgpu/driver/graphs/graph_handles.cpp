// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/graphs/graph_handles.h"

#include <memory>

namespace millpond::softgpu {

GraphHandles& GraphHandles::instance() {
  static GraphHandles* const handles = std::make_unique<GraphHandles>().release();
  return *handles;
}

}  // namespace millpond::softgpu
