// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/memory/texture_reference.h"

#include <algorithm>

namespace millpond::softgpu {
bool BoundTextures::find(uint64_t number, ptx::TextureView& view) const {
  const auto bound = std::find_if(bound_.begin(), bound_.end(), [&](const auto& each) { return each.first == number; });
  if (bound == bound_.end()) return objects_.find(number, view);
  view = bound->second;
  return true;
}

}  // namespace millpond::softgpu
