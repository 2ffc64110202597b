// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda/gen/crossing_members.h"
#include "protocol/address.h"

namespace millpond {

/// A struct of the API as received from a client. Commands read its numbers, addresses and handles one by
/// one.
template <typename T>
class Crossing {
 public:
  using Members = CrossingMembers<T>;

  Crossing() = default;
  /// The sender's side.
  Crossing(const T& value) { std::memcpy(bytes_, &value, sizeof(T)); }
  /// Copies it from memory that may change concurrently.
  static Crossing in(const void* place) {
    Crossing out;
    std::memcpy(out.bytes_, place, sizeof(T));
    return out;
  }

  /// With zeros in place of addresses, handles, and members that must not be set.
  T numbers() const {
    T out;
    std::memcpy(&out, bytes_, sizeof(T));
    const auto clear = [&out](const auto& offsets) {
      for (const size_t offset : offsets) std::memset(reinterpret_cast<std::byte*>(&out) + offset, 0, sizeof(uint64_t));
    };
    clear(Members::kAddresses);
    clear(Members::kHandles);
    clear(Members::kUnset);
    return out;
  }
  template <size_t offset>
  wire::Address address() const {
    static_assert(std::ranges::find(Members::kAddresses, offset) != Members::kAddresses.end(), "no address is there");
    return wire::Address(word(offset));
  }
  /// A number of the session.
  template <size_t offset>
  uint64_t handle() const {
    static_assert(std::ranges::find(Members::kHandles, offset) != Members::kHandles.end(), "no handle is there");
    return word(offset);
  }
  /// Unchanged, to return it to the client, which owns it, or if another member states that it holds only numbers.
  T whole() const {
    T out;
    std::memcpy(&out, bytes_, sizeof(T));
    return out;
  }

 private:
  uint64_t word(size_t offset) const {
    uint64_t out;
    std::memcpy(&out, bytes_ + offset, sizeof(out));
    return out;
  }

  alignas(T) std::byte bytes_[sizeof(T)];
};

}  // namespace millpond
