// SPDX-License-Identifier: Apache-2.0
// Functions that run in this process when a stream reaches them.
#pragma once

#include "client/call/call.h"

namespace millpond::client {

/// As cuLaunchHostFunc, on a stream of the worker's.
CUresult giveFunction(Call& call, uint64_t stream, CUhostFn function, void* data);

}  // namespace millpond::client
