// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace millpond::profiler {

/// The largest number of a call.
inline constexpr uint32_t kMostCalls = 1024;

/// CUPTI's number of a call of the driver, by its exported name; 0: it has none.
uint32_t numberOf(std::string_view name);
/// The reverse; nullptr: there is no such number.
const char* nameOf(uint32_t number);

}  // namespace millpond::profiler
