// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace millpond::bench {

/// Stands between a client and a worker's `port` of this machine as a network would: each byte arrives `delayNs` after it was
/// sent, in both directions, at any rate. Prints the port that it listens on. Returns when standard input ends.
void relayWithDelay(uint16_t port, int64_t delayNs);

}  // namespace millpond::bench
