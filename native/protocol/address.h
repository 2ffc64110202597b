// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace millpond::worker {
class AddressGate;
}
namespace millpond::client {
class OwnAddress;
}

namespace millpond::wire {

/// An address received from a client. Code that executes a command cannot read it: only worker::AddressGate converts it
/// to an address for the driver, and only if it is in memory of the session.
class Address {
 public:
  Address() = default;
  constexpr Address(uint64_t value) : value_(value) {}

 private:
  friend class worker::AddressGate;
  friend class client::OwnAddress;
  uint64_t value_;
};
static_assert(sizeof(Address) == sizeof(uint64_t));

}  // namespace millpond::wire
