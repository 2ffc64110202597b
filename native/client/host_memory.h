// SPDX-License-Identifier: Apache-2.0
// Host memory that this process and a worker of the same host map at the same address.
#pragma once

#include "client/call.h"

namespace millpond::client {

/// `bytes`, whole pages, pinned and within reach of devices. `flags`: what the memory map is to know of it.
CUresult allocateShared(Call& call, size_t bytes, unsigned flags, void** out);
/// The end of one, when no device uses it any more.
CUresult freeShared(Call& call, const MemoryRun& run);

/// Waits until no copy from any device is on its way to this process's own memory.
CUresult awaitLandings(Call& call);

}  // namespace millpond::client
