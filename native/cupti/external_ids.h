// SPDX-License-Identifier: Apache-2.0
// What the program calls its own pieces of work, thread by thread: records tie them to calls.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cupti/types.h"

namespace millpond::profiler {

/// Those on top of a thread's stacks at a given moment.
struct ExternalId {
  uint32_t kind = 0;
  uint64_t id = 0;
};

class ExternalIds {
 public:
  /// Kinds are numbered below this, 0 is none.
  static constexpr uint32_t kKinds = 6;

  Result push(uint32_t kind, uint64_t id);
  /// `last`: receives the removed id; may be null.
  Result pop(uint32_t kind, uint64_t* last);
  std::vector<ExternalId> top() const;

 private:
  std::array<std::vector<uint64_t>, kKinds> stacks_;
};

}  // namespace millpond::profiler
