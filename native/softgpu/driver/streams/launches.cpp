// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/streams/launches.h"

#include "softgpu/driver/graphs/capture.h"
#include "softgpu/driver/streams/launch_events.h"

namespace millpond::softgpu {

CUresult enqueueLaunch(const StreamTarget& stream, const std::shared_ptr<Function>& function, const LaunchShape& shape,
                       void** parameters, void** extra, std::span<const CUlaunchAttribute> attributes,
                       const HandleTable<Event, CUevent>& known) {
  PreparedLaunch prepared;
  if (CUresult result = prepareLaunch(stream.context, function, shape, parameters, extra, &prepared)) return result;
  LaunchEvents events;
  if (CUresult result = LaunchEvents::of(stream, attributes, known, &events)) return result;
  bool captured = false;
  const auto handle = HandleTable<Function, CUfunction>::handleOf(function.get());
  if (CUresult result = captureWork(
          stream,
          KernelWork{
              handle, stream.context->handle(), stream.context, prepared, {attributes.begin(), attributes.end()}},
          &captured))
    return result;
  if (captured) return CUDA_SUCCESS;
  events.recordBegin(stream.queue);
  stream.context->enqueue(stream.queue, Operation::Kind::work, launchBody(stream.context, prepared));
  events.recordEnd(stream.queue);
  return CUDA_SUCCESS;
}

}  // namespace millpond::softgpu
