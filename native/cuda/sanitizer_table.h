// SPDX-License-Identifier: Apache-2.0
// Interface by which a worker reports the memory that it gives to programs to the software GPU: it cuts that memory out
// of larger allocations, which are all that the driver knows. Available through cuGetExportTable, only while programs
// are checked.
#pragma once

#include <cstdint>

namespace millpond {

inline constexpr char kSanitizerTableId[17] = "millpondsanitize";

struct SanitizerTable {
  uint64_t bytes = 0;    ///< of this table
  uint64_t redzone = 0;  ///< bytes that stay unused behind each allocation
  /// None of these addresses may be used, except those of memory that is allocated later.
  void (*manage)(uint64_t address, uint64_t bytes) = nullptr;
  /// In program order: whether launches may use the memory from now on. `by` is the name of a driver function, and
  /// lives as long as the worker.
  void (*allocated)(uint64_t address, uint64_t bytes, const char* by) = nullptr;
  void (*freed)(uint64_t address, const char* by) = nullptr;
  /// It is freed because its context has ended, so it was leaked.
  void (*left)(uint64_t address) = nullptr;
  /// The session is over: memory that has not been freed is leaked.
  void (*ended)() = nullptr;
};

}  // namespace millpond
