// SPDX-License-Identifier: Apache-2.0
// The lines of a worker's profile (docs/reference/profile.md), read.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cupti/types.h"

namespace millpond::profiler {

/// A piece of work of a device.
struct Work {
  Kind kind = kCopy;
  int64_t start = 0, end = 0;  ///< ns since 1970 by the worker's clock
  uint32_t device = 0, context = 0, stream = 0;
  uint32_t correlation = 0;            ///< the worker's own
  const char* name = nullptr;          ///< of a kernel, mangled; lives as long as the process
  std::array<uint64_t, 10> numbers{};  ///< the other fields of the line
};

/// A command of the session.
struct CommandPlace {
  uint32_t thread = 0;
  uint64_t position = 0;
};

class WorkReader {
 public:
  /// Takes whole lines. Lines of no known form are ignored.
  void add(std::string_view lines);
  std::vector<Work> take();
  /// The command for which work with the worker's correlation id was submitted; null: unknown.
  const CommandPlace* commandOf(uint32_t correlation) const;

 private:
  void addLine(std::string_view line);
  void addName(std::string_view number, std::string_view name);

  std::unordered_set<std::string> names_;  ///< names to which records may refer: never removed
  std::unordered_map<uint64_t, const char*> numberedNames_;
  std::unordered_map<uint32_t, CommandPlace> commands_, earlierCommands_;
  std::vector<Work> work_;
};

}  // namespace millpond::profiler
