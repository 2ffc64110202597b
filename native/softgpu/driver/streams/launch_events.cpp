// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/streams/launch_events.h"

#include "softgpu/driver/graphs/capture.h"

namespace millpond::softgpu {
namespace {

CUresult resolve(const StreamTarget& stream, CUevent handle, const HandleTable<Event, CUevent>& known,
                 std::shared_ptr<Event>* event) {
  *event = known.find(handle);
  if (!*event || (*event)->context() != stream.context) return CUDA_ERROR_INVALID_HANDLE;
  if ((*event)->hasTiming()) return CUDA_ERROR_INVALID_VALUE;
  bool captured = false;
  if (CUresult result = captureRecord(stream, *event, false, handle, &captured)) return result;
  return captured ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

}  // namespace

CUresult LaunchEvents::of(const StreamTarget& stream, std::span<const CUlaunchAttribute> attributes,
                          const HandleTable<Event, CUevent>& known, LaunchEvents* events) {
  for (const CUlaunchAttribute& each : attributes) {
    const bool isOfBegin = each.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    if (!isOfBegin && each.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) continue;
    const auto& programmatic = each.value.programmaticEvent;
    std::shared_ptr<Event> event;
    if (CUresult result =
            resolve(stream, isOfBegin ? each.value.launchCompletionEvent.event : programmatic.event, known, &event))
      return result;
    // No kernel of this device releases later work before it has ended.
    (isOfBegin || programmatic.triggerAtBlockStart ? events->atBegin_ : events->atEnd_).push_back(std::move(event));
  }
  return CUDA_SUCCESS;
}

void LaunchEvents::recordBegin(const QueuePtr& queue) const {
  for (const auto& each : atBegin_) each->record(queue);
}

void LaunchEvents::recordEnd(const QueuePtr& queue) const {
  for (const auto& each : atEnd_) each->record(queue);
}

}  // namespace millpond::softgpu
