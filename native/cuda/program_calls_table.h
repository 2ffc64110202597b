// SPDX-License-Identifier: Apache-2.0
// Interface by which a worker reports the calls of its program to the software GPU, so that findings name their call.
// Available through cuGetExportTable, only while programs are checked.
#pragma once

#include <cstdint>

namespace millpond {

inline constexpr char kProgramCallsTableId[17] = "millpondcallinfo";

/// MemAlloc::flags of memory that the client mirrors: unwritten bytes are zero there.
inline constexpr uint32_t kManagedMemory = 1;
/// The call with which such memory is reported.
inline constexpr char kManagedCall[] = "cuMemAllocManaged";

struct ProgramCallsTable {
  uint64_t bytes = 0;  ///< of this table
  /// The id of the program's process, as reported by the process itself.
  void (*client)(uint32_t pid) = nullptr;
  /// Announces that the next driver call is for a command of that thread of the client, at that offset of the session's
  /// stream.
  void (*command)(uint32_t thread, uint64_t offset) = nullptr;
  /// A command for whose result no thread waits has failed. `name` lives as long as the worker.
  void (*failed)(const char* name, int32_t result) = nullptr;
};

}  // namespace millpond
