// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/engine/host_function.h"

namespace millpond::softgpu {
namespace {

thread_local bool isRunning = false;

}  // namespace

void enqueueHostFunction(const StreamTarget& stream, std::function<void()> function) {
  stream.context->enqueue(stream.queue, Operation::Kind::host, hostFunctionBody(std::move(function)));
}

std::function<void()> hostFunctionBody(std::function<void()> function) {
  return [function = std::move(function)] {
    isRunning = true;
    function();
    isRunning = false;
  };
}

void enqueueCallback(const StreamTarget& stream, std::function<void(CUresult)> function) {
  stream.context->enqueueMarker(
      stream.queue,
      [context = stream.context, function = std::move(function)] {
        isRunning = true;
        function(context->fault());
        isRunning = false;
      },
      Operation::Kind::host);
}

bool isInHostFunction() { return isRunning; }

}  // namespace millpond::softgpu
