// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace millpond::client {

/// The meaning of stream 0 in a call: the legacy default stream, or the calling thread's own.
enum class Flavour : uint8_t { kLegacy, kPerThread };

}  // namespace millpond::client
