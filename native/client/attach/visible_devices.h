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

/// The session's devices that the program sees, in the order in which it sees them, as CUDA_VISIBLE_DEVICES
/// says it: ordinals of the session and (unique beginnings of) UUIDs, separated by commas, up to the first
/// that is wrong. Unset: all. Nothing where a device is named twice, which the driver refuses.
std::optional<std::vector<uint16_t>> visibleDevices(std::span<const DeviceSnapshot> devices,
                                                    std::optional<std::string_view> variable);

}  // namespace millpond::client
