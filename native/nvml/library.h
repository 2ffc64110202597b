// SPDX-License-Identifier: Apache-2.0
// The state of the library in this process: its initialisation count, and the cached view of the claim.
#pragma once

#include <atomic>
#include <memory>

#include "nvml/types.h"
#include "nvml/view.h"

namespace millpond::nvml {

/// For any number of threads. A child process goes on with what its parent knew, whatever the parent's other threads did
/// when it was forked off.
class Library {
 public:
  /// nvmlInit: says whether there is a claim to ask about, and asks nothing.
  static Return initialise();
  static Return shutDown();
  /// Whether the library is initialised.
  static Return check();

  /// Gives what is known of the claim, at most half a second old, to `function`.
  template <typename Function>
  static Return answer(Function&& function) {
    std::shared_ptr<const View> view;
    const Return result = current(view);
    return result == kSuccess ? function(*view) : result;
  }

  /// "Not supported", told once in the log.
  static Return refuse(const char* name, std::atomic<bool>& said);

 private:
  static Return current(std::shared_ptr<const View>& view);
};

}  // namespace millpond::nvml
