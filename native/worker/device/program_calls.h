// SPDX-License-Identifier: Apache-2.0
// Reports the program's current call to a driver that checks programs. Other drivers have no such table.
#pragma once

#include <cstring>

#include "cuda/program_calls_table.h"
#include "worker/device/driver.h"

namespace millpond::worker {

/// Null if the driver does not check programs.
inline const ProgramCallsTable* programCallsOf(const Driver& driver) {
  CUuuid id{};
  std::memcpy(id.bytes, kProgramCallsTableId, sizeof(id.bytes));
  const void* table = nullptr;
  if (!driver.cuGetExportTable || driver.cuGetExportTable(&table, &id) != CUDA_SUCCESS || !table) return nullptr;
  const auto* found = static_cast<const ProgramCallsTable*>(table);
  return found->bytes == sizeof(ProgramCallsTable) ? found : nullptr;
}

}  // namespace millpond::worker
