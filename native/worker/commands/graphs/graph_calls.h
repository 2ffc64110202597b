// SPDX-License-Identifier: Apache-2.0
// Functions of the client in graphs: the driver's arguments for their nodes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "worker/core/callbacks.h"

namespace millpond::worker {

class GraphCalls {
 public:
  explicit GraphCalls(std::shared_ptr<Callbacks> callbacks) : callbacks_(std::move(callbacks)) {}

  /// The same one for the same function, data and context. Null if there are too many.
  const HostCall* of(const Callback& callback, bool isCopy = false) {
    const std::array<uint64_t, 3> key{callback.function, callback.data, callback.context};
    const auto known = all_.find(key);
    if (known != all_.end()) return known->second.get();
    if (all_.size() >= kMost) return nullptr;
    return all_.emplace(key, std::make_unique<HostCall>(HostCall{callbacks_, callback, isCopy})).first->second.get();
  }

 private:
  static constexpr size_t kMost = size_t{1} << 20;

  const std::shared_ptr<Callbacks> callbacks_;
  std::map<std::array<uint64_t, 3>, std::unique_ptr<HostCall>> all_;  ///< graphs may use them until the end
};

}  // namespace millpond::worker
