// SPDX-License-Identifier: Apache-2.0
// CUPTI's numbers of calls, as facts.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>

namespace millpond::profiler {

/// The largest number of a call is less.
inline constexpr uint32_t kMostCalls = 1024;

extern const char kDriverNames[];
extern const char kRuntimeNames[];

class CallNames {
 public:
  /// Never destroyed: programs are profiled until they exit.
  static const CallNames& ofDriver();
  static const CallNames& ofRuntime();

  /// The number of an exported name; 0: it has none.
  uint32_t numberOf(std::string_view name) const;
  /// nullptr: there is no such number.
  const char* nameOf(uint32_t number) const { return number < kMostCalls ? names_[number] : nullptr; }

 private:
  explicit CallNames(const char* names);

  std::array<const char*, kMostCalls> names_{};
  std::unordered_map<std::string_view, uint32_t> numbers_;
};

}  // namespace millpond::profiler
