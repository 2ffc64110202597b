// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "protocol/handshake/snapshot.h"

namespace millpond::client {

/// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`
std::string uuidText(std::span<const uint8_t, 16> uuid);

/// The session's devices that are visible to the program, in the order of CUDA_VISIBLE_DEVICES: ordinals of the session
/// and (unique prefixes of) UUIDs, separated by commas, up to the first invalid one. Unset: all. None if a device is
/// named twice, which the driver refuses.
std::optional<std::vector<uint16_t>> visibleDevices(std::span<const DeviceSnapshot> devices,
                                                    std::optional<std::string_view> variable);

}  // namespace millpond::client
