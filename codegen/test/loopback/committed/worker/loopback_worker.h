// SPDX-License-Identifier: Apache-2.0
// In place of the loopback worker where generated code is compiled for the real worker: declarations only.
#pragma once

#include <cstddef>
#include <vector>

#include "worker/session/gen/command_parts.h"

namespace millpond::worker {

struct LoopbackWorker {
  const CommandParts& parts();

  std::vector<std::byte> answer;
};

}  // namespace millpond::worker
