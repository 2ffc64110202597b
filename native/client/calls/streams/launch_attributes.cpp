// SPDX-License-Identifier: Apache-2.0
#include "client/calls/streams/launch_attributes.h"

#include <atomic>

#include "base/log.h"

namespace millpond::client {

CUresult LaunchAttributes::take(Call& call, const CUlaunchConfig& config) {
  if (config.numAttrs > kMaxLaunchAttributes || (config.numAttrs && config.attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  attributes_ = {config.attrs, config.numAttrs};
  bool holdsEvents = false;
  for (const CUlaunchAttribute& attribute : attributes_) {
    switch (kindOf(attribute.id)) {
      case LaunchAttributeKind::kPlain:
      case LaunchAttributeKind::kWindow:
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute.value.cooperative) isCooperative_ = true;
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
          cluster_ = {attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z};
        break;
      case LaunchAttributeKind::kEvent: holdsEvents = true; break;
      case LaunchAttributeKind::kRefused: {
        static std::atomic<bool> said{false};
        logOnce(said, LogLevel::Warn, "launch attribute %d is not supported", static_cast<int>(attribute.id));
        return CUDA_ERROR_NOT_SUPPORTED;
      }
    }
  }
  if (!holdsEvents) return CUDA_SUCCESS;
  translated_.assign(attributes_.begin(), attributes_.end());
  attributes_ = translated_;
  for (CUlaunchAttribute& attribute : translated_) {
    if (kindOf(attribute.id) != LaunchAttributeKind::kEvent) continue;
    uint64_t wire = 0;
    if (const CUresult r = call.handle(HandleKind::kEvent, eventOf(attribute), wire); r != CUDA_SUCCESS) return r;
    eventOf(attribute) = reinterpret_cast<CUevent>(wire);
  }
  return CUDA_SUCCESS;
}

}  // namespace millpond::client
