// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/gen/cuda_api.h"

namespace millpond {

/// Maximum number of attributes of one launch.
inline constexpr unsigned kMaxLaunchAttributes = 64;

/// How a launch attribute is transferred from one process to the other.
enum class LaunchAttributeKind {
  kPlain,   ///< numbers: same meaning on both sides
  kWindow,  ///< a window of memory: the worker checks its address
  kEvent,   ///< holds an event: a handle of the client, the driver's on the worker's side
  kRefused  ///< holds an object that exists on one side only, or is unknown
};

inline LaunchAttributeKind kindOf(CUlaunchAttributeID id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: return LaunchAttributeKind::kWindow;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING: return LaunchAttributeKind::kPlain;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT: return LaunchAttributeKind::kEvent;
    default: return LaunchAttributeKind::kRefused;
  }
}

/// The event of an attribute that holds one.
inline CUevent& eventOf(CUlaunchAttribute& attribute) {
  return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ? attribute.value.programmaticEvent.event
                                                                : attribute.value.launchCompletionEvent.event;
}

}  // namespace millpond
