// SPDX-License-Identifier: Apache-2.0
// Makes random programs. It proposes ops, asks Order whether each can come next, and puts what orders them before those that
// cannot: every program that it returns is determinate and ends.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "testing/model/program.h"

namespace millpond::model {

/// The arguments of `--without`: parts of CUDA that programs then do not use. For the purpose see the docs of `npm run
/// model`. clang-format off
inline constexpr std::array<std::string_view, 28> kFeatures = {
    "threads",    // more than one thread
    "burst",      // a thousand or more consecutive launches
    "pile",       // much work after a host function
    "large",      // memory of 4 and 8 MiB
    "functions",  // host functions
    "sleep",      // host functions that sleep
    "promise",    // host functions that wait for a thread
    "value",      // streams that wait for words and write them
    "pageable",   "registered",   "managed", "pool", "peer",
    "mapped",     // kernels that work on host memory
    "copied",     // pinned and registered memory that only copies use
    "unasked",    // pinned and registered memory whose device address is not queried: kernels get the host's
    "indirect",   // kernels that find pointers to host memory in device memory, or at odd offsets of parameters
    "rows",       // copies and fills of two dimensions
    "box",        // copies of three dimensions
    "temporary",  // memory that is allocated for one copy, and freed while the copy may be in progress
    "fill-host",  // fills of host memory
    "graph",      "graph-copies",
    "update",  // of graphs
    "legacy",     "per-thread",
    "ask",         // calls that wait for nothing
    "touch-held",  // a thread accesses pinned or managed memory while a host function waits for a thread
};
// clang-format on
using Features = std::set<std::string, std::less<>>;

/// Program `number` of a seed: always the same for the same set of omitted features.
Program generate(uint64_t seed, uint64_t number, const Features& without);

}  // namespace millpond::model
