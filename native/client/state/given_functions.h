// SPDX-License-Identifier: Apache-2.0
// The functions that the program has given to the driver, each with its data: a worker can have no other one run in this process.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>

namespace millpond::client {

class GivenFunctions {
 public:
  /// How a function is called.
  enum class Shape : uint8_t {
    kOfData,    ///< CUhostFn: functions and destructors
    kOfStream,  ///< CUstreamCallback
  };
  enum class Uses : uint8_t {
    kOne,
    kAny,  ///< it belongs to a graph, which others may launch, clone and keep
  };

  void give(Shape shape, uint64_t function, uint64_t data, Uses uses) {
    const std::lock_guard lock(mutex_);
    Given& given = given_[{shape, function, data}];
    if (uses == Uses::kAny)
      given.isInGraph = true;
    else
      ++given.left;
  }
  /// Whether it may be run now. A function that was given for a single use is used up by that.
  bool use(Shape shape, uint64_t function, uint64_t data) {
    const std::lock_guard lock(mutex_);
    const auto found = given_.find({shape, function, data});
    if (found == given_.end()) return false;
    if (found->second.left != 0)
      --found->second.left;
    else if (!found->second.isInGraph)
      return false;
    if (found->second.left == 0 && !found->second.isInGraph) given_.erase(found);
    return true;
  }

 private:
  struct Given {
    uint64_t left = 0;
    bool isInGraph = false;
  };

  std::mutex mutex_;
  std::map<std::tuple<Shape, uint64_t, uint64_t>, Given> given_;
};

}  // namespace millpond::client
