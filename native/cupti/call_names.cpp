// SPDX-License-Identifier: Apache-2.0
#include "cupti/call_names.h"

#include <cstring>
#include <memory>

namespace millpond::profiler {

CallNames::CallNames(const char* names) {
  uint32_t number = 1;
  for (const char* name = names; *name && number < kMostCalls; name += std::strlen(name) + 1, ++number) {
    names_[number] = name;
    numbers_.emplace(name, number);
  }
}

const CallNames& CallNames::ofDriver() {
  static const CallNames& all = *std::unique_ptr<CallNames>(new CallNames(kDriverNames)).release();
  return all;
}

const CallNames& CallNames::ofRuntime() {
  static const CallNames& all = *std::unique_ptr<CallNames>(new CallNames(kRuntimeNames)).release();
  return all;
}

uint32_t CallNames::numberOf(std::string_view name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? 0 : found->second;
}

}  // namespace millpond::profiler
