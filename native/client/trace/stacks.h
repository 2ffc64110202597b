// SPDX-License-Identifier: Apache-2.0
// Back traces of calls, for traces that have them (MILLPOND_TRACE_STACKS=1). Each stack is written once, with a number.
#pragma once

#include <cstdint>
#include <string>

namespace millpond::client::trace {

struct KnownStack {
  uint32_t number = 0;  ///< from 1; 0: there is none
  std::string line;     ///< to be written before the first line that refers to it; empty: it has already been written
};

/// The stack of the calling thread, without the frames of this library.
KnownStack currentStack();

/// Stacks of the parent's calls are unknown in the file of a child.
void forgetStacks() noexcept;

}  // namespace millpond::client::trace
