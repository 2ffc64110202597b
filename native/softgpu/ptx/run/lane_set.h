// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace millpond::softgpu::ptx {

/// body(lane) for each lane of the set, in order.
template <typename F>
void forLanes(uint32_t lanes, F body) {
  for (; lanes; lanes &= lanes - 1) body(static_cast<uint32_t>(std::countr_zero(lanes)));
}

}  // namespace millpond::softgpu::ptx
