// SPDX-License-Identifier: Apache-2.0
// What follows a copy from the client's memory (CopyToDevice).
#pragma once

#include <cstdint>

namespace millpond::cmd {

/// Only later work of its stream is affected.
inline constexpr uint32_t kBeforeItsStream = 0;
/// Later commands begin when it is done.
inline constexpr uint32_t kBeforeLaterCommands = 1;
/// Later work of all streams, if its own stream had no work before it.
inline constexpr uint32_t kBeforeOtherStreams = 2;

}  // namespace millpond::cmd
