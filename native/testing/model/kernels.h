// SPDX-License-Identifier: Apache-2.0
// The kernels of the programs: to[i] = 3 to[i] + from[i] + value, for `words` words, a thread for each. They differ in how
// they find `to` and `from`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace millpond::model {

/// Parameters of `mixPacked`, as the kernel takes them: one structure of 27 bytes by value, with nothing aligned in it.
struct Packed {
  static constexpr size_t kTo = 3;
  static constexpr size_t kFrom = 11;
  static constexpr size_t kWords = 19;
  static constexpr size_t kValue = 23;
  std::array<std::byte, 27> bytes{};
};

/// PTX of `mix(to, from, words, value)`, `mixTable(table, to, from, words, value)`, which finds two addresses in an array of
/// them, and `mixPacked(Packed)`.
std::string kernels();

}  // namespace millpond::model
