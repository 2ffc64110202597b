// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "protocol/address.h"

namespace millpond::client {

/// This side's own addresses, back out of a command. In a worker they are a stranger's: there this does not exist.
class OwnAddress {
 public:
  static constexpr uint64_t of(wire::Address address) { return address.value_; }
};

}  // namespace millpond::client
