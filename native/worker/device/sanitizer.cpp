// SPDX-License-Identifier: Apache-2.0
#include "worker/device/sanitizer.h"

#include <cstring>

namespace millpond::worker {

Sanitizer::Sanitizer(const Driver& driver) {
  CUuuid id{};
  std::memcpy(id.bytes, kSanitizerTableId, sizeof(id.bytes));
  const void* table = nullptr;
  if (!driver.cuGetExportTable || driver.cuGetExportTable(&table, &id) != CUDA_SUCCESS || !table) return;
  const auto* found = static_cast<const SanitizerTable*>(table);
  if (found->bytes == sizeof(SanitizerTable)) table_ = found;
}

}  // namespace millpond::worker
