// SPDX-License-Identifier: Apache-2.0
// Host memory of this process that copies reach.
#pragma once

#include "client/call/call.h"

namespace millpond::client {

/// Waits until no copy from any device is on its way to this process's own memory.
CUresult awaitLandings(Call& call);

}  // namespace millpond::client
