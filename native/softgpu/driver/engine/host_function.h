// SPDX-License-Identifier: Apache-2.0
// Functions of the program that run in the order of a stream.
#pragma once

#include <functional>

#include "softgpu/driver/model/stream.h"

namespace millpond::softgpu {

/// Queues a function. It may block, but not call the driver: see isInHostFunction().
void enqueueHostFunction(const StreamTarget& stream, std::function<void()> function);

/// The work that runs it in a graph.
std::function<void()> hostFunctionBody(std::function<void()> function);

/// As above, but it also runs after a failure of the context, and receives the error.
void enqueueCallback(const StreamTarget& stream, std::function<void(CUresult)> function);

/// Whether the calling thread is running such a function now.
bool isInHostFunction();

}  // namespace millpond::softgpu
