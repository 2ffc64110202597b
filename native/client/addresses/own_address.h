// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "protocol/address.h"

namespace millpond::client {

/// Converts this side's own addresses in a command back to pointers. A worker must not do this with a client's
/// addresses, so it lacks this function.
class OwnAddress {
 public:
  static constexpr uint64_t of(wire::Address address) { return address.value_; }
};

}  // namespace millpond::client
