// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace millpond::bench {

/// Simulates a network between a client and a worker's `port` on this machine: each byte arrives `delayNs` after it was
/// sent, in both directions, at any rate. Prints the port on which it listens. Returns when standard input ends.
void relayWithDelay(uint16_t port, int64_t delayNs);

}  // namespace millpond::bench
