// SPDX-License-Identifier: Apache-2.0
// What libcupti.so of Millpond asks of the libcuda.so.1 in the same process: the calls of the program, and the activity of the
// devices for it. Available through cuGetExportTable. Both libraries are of one release.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millpond {

inline constexpr char kActivityTableId[17] = "millpond's cupti";

/// A call of the program that has just returned, on the calling thread.
struct ObservedCall {
  const char* name = nullptr;  ///< exported name; lives as long as the process
  int64_t start = 0, end = 0;  ///< in ns since 1970
  int32_t result = 0;
  uint32_t waits = 0;      ///< how often it waited for the worker
  bool hasWorked = false;  ///< it has sent the worker a command, or queried it
  uint32_t thread = 0;     ///< number of the thread in the session
  /// The commands of the call are between these offsets of the session's stream, among those of other threads.
  uint64_t streamBegin = 0, streamEnd = 0;
  bool hasStream = false;
  uint64_t stream = 0;  ///< its argument
};

/// A call of the CUDA runtime begins or ends, on the calling thread. `number`: CUPTI's. `result`: at its end.
using RuntimeObserver = void (*)(uint32_t number, bool isExit, int32_t result);

struct ActivityTable {
  uint64_t bytes = sizeof(ActivityTable);
  /// Passes calls that gave the worker something to do, and waits, to `called` from now on; null: to nothing.
  void (*observe)(void (*called)(const ObservedCall*)) = nullptr;
  /// The same for calls of the CUDA runtime whose switches are on, at their beginnings and ends.
  void (*observeRuntime)(RuntimeObserver called) = nullptr;
  void (*setRuntimeSwitch)(uint32_t number, bool isOn) = nullptr;
  /// Asks the worker to record the activities of its devices, and the command for each; without a session, as soon as
  /// there is one. CUDA_ERROR_NOT_SUPPORTED (801): its node cannot. CUDA_ERROR_PROFILER_ALREADY_STARTED (7): `millpond
  /// run --profile` already does.
  int32_t (*begin)() = nullptr;
  /// Ends that.
  void (*end)() = nullptr;
  /// Passes what is complete to `each`: lines as in docs/reference/profile.md, whose times are on the worker's clock.
  /// `lead`: by how many ns that clock is ahead of this process's. `lost`: records that were dropped since the session
  /// began.
  int32_t (*read)(void (*each)(void* to, const char* lines, size_t bytes), void* to, int64_t* lead,
                  uint64_t* lost) = nullptr;
  /// The position of a device of the session among those that are visible to the program; -1: it is not visible.
  int32_t (*placeOf)(uint32_t device) = nullptr;
};

}  // namespace millpond
