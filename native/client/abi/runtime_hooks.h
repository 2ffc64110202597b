// SPDX-License-Identifier: Apache-2.0
// The hooks of the CUDA runtime for profilers: each copy of it in the process looks at a switch for each of its calls, and
// passes the call to a function of this library if it is on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/activity_table.h"

namespace millpond::client::runtime_hooks {

/// The arguments from the runtime, as observed in the runtimes of CUDA 11.8, 12.4 and 13.0.
struct Call {
  uint32_t bytes;
  uint32_t padding;
  uint64_t contextNumber, streamNumber;
  uint64_t reserved;
  uint64_t* correlationData;
  const int32_t* result;  ///< valid at the exit
  const char* name;
  const void* parameters;
  void* context;
  void* stream;
  uint32_t number;  ///< CUPTI's
  uint32_t isExit;
  uint64_t reserved2[2];
  const void* table;
  uint64_t reserved3;
};
static_assert(sizeof(Call) == 0x78 && offsetof(Call, result) == 0x28 && offsetof(Call, number) == 0x50);

/// The switches that the runtime reads.
void getSwitches(void** buffer, size_t* count);
/// Called by the runtime at the beginning and at the end of a call whose switch is on.
void called(uint32_t number, const Call* call);

/// Passes the calls whose switches are on to `observer`; null: passes none.
void observe(RuntimeObserver observer);
void setSwitch(uint32_t number, bool isOn);

}  // namespace millpond::client::runtime_hooks
