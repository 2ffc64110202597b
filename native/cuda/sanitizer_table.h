// SPDX-License-Identifier: Apache-2.0
// What a worker tells the software GPU about the memory that it gives to programs: it cuts that out of larger pieces, of
// which the driver knows nothing else. Behind cuGetExportTable, and only there while programs are checked.
#pragma once

#include <cstdint>

namespace millpond {

inline constexpr char kSanitizerTableId[17] = "millpondsanitize";

struct SanitizerTable {
  uint64_t bytes = 0;    ///< of this table
  uint64_t redzone = 0;  ///< bytes that stay unused behind each allocation
  /// Nothing of these addresses may be used but what was given out since.
  void (*manage)(uint64_t address, uint64_t bytes) = nullptr;
  /// In the order of the program: what it launches from now on may, or may not, use the memory. `by` is the name of a
  /// function of the driver, and lives as long as the worker.
  void (*allocated)(uint64_t address, uint64_t bytes, const char* by) = nullptr;
  void (*freed)(uint64_t address, const char* by) = nullptr;
  /// It is freed because its context has ended: it is leaked.
  void (*left)(uint64_t address) = nullptr;
  /// The session is over: what it has not freed is leaked.
  void (*ended)() = nullptr;
};

}  // namespace millpond
