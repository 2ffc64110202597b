// SPDX-License-Identifier: Apache-2.0
// The part of the notes that belongs to the calling thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_owned.h"
#include "cupti/external_ids.h"

namespace millpond::profiler {

/// A call of the runtime that has not returned yet.
struct RuntimeCall {
  uint32_t number = 0;  ///< CUPTI's
  int64_t start = 0;    ///< ns since 1970
  uint32_t correlation = 0;
  uint64_t kinds = 0;  ///< those that were enabled
  std::vector<ExternalId> externalIds;
};

struct ThreadNotes {
  ExternalIds externalIds;
  /// The innermost last, since the switches of the runtime's calls last changed: `turn` is the number of that change.
  std::vector<RuntimeCall> openCalls;
  uint32_t turn = 0;

  static ThreadNotes& own() { return threadOwned<ThreadNotes>(); }
};

}  // namespace millpond::profiler
