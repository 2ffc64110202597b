// SPDX-License-Identifier: Apache-2.0
// The state of the library in this process: its initialisation count, and the cached view of the claim.
#pragma once

#include <atomic>
#include <memory>

#include "nvml/types.h"
#include "nvml/view.h"

namespace millpond::nvml {

/// Thread-safe. A child process continues with its parent's state, whatever the parent's other threads did during the
/// fork.
class Library {
 public:
  /// nvmlInit: returns whether there is a claim to query, without querying it.
  static Return initialise();
  static Return shutDown();
  /// Whether the library is initialised.
  static Return check();

  /// Passes the view of the claim, at most half a second old, to `function`.
  template <typename Function>
  static Return answer(Function&& function) {
    std::shared_ptr<const View> view;
    const Return result = current(view);
    return result == kSuccess ? function(*view) : result;
  }

  /// "Not supported", logged once.
  static Return refuse(const char* name, std::atomic<bool>& said);
  /// The same for a function of a device, and "invalid argument" if it is none.
  static Return refuse(const char* name, std::atomic<bool>& said, Handle device);

 private:
  static Return current(std::shared_ptr<const View>& view);
};

}  // namespace millpond::nvml
