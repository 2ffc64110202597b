// SPDX-License-Identifier: Apache-2.0
// Which commands may make a stream wait for a word that the program writes later.
#pragma once

#include "protocol/gen/commands.h"

namespace millpond::cmd {

constexpr bool isWaitForWord(Op op) noexcept {
  return op == Op::kStreamWaitValue32V2 || op == Op::kStreamWaitValue64V2 || op == Op::kStreamBatchMemOpV2;
}

}  // namespace millpond::cmd
