// SPDX-License-Identifier: Apache-2.0
// Attributes of a launch, in wire format.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "client/call/call.h"
#include "cuda/cluster_shape.h"
#include "cuda/launch_attribute.h"

namespace millpond::client {

class LaunchAttributes {
 public:
  /// Copies the attributes of a configuration, with events replaced by their numbers.
  CUresult take(Call& call, const CUlaunchConfig& config);
  std::span<const std::byte> bytes() const { return std::as_bytes(attributes_); }
  bool isCooperative() const { return isCooperative_; }
  /// The cluster size requested by the launch.
  const ClusterShape& cluster() const { return cluster_; }

 private:
  std::span<const CUlaunchAttribute> attributes_;
  bool isCooperative_ = false;
  ClusterShape cluster_;
  /// Filled only for launches with events: an array here would be several kilobytes to clear for every launch.
  std::vector<CUlaunchAttribute> translated_;
};

}  // namespace millpond::client
