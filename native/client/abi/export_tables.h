// SPDX-License-Identifier: Apache-2.0
// The undocumented tables of functions behind cuGetExportTable, which NVIDIA's own libraries use. Known facts:
// docs/reference/export-tables.md.
#pragma once

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

/// Returns the table, which stays at the same address until the process ends; nullptr if no table has this id, or if
/// the environment variable MILLPOND_DENY_TABLES (prefixes of ids, separated by commas) names it. The variable helps to
/// determine which library needs which table.
const void* exportTable(const CUuuid& id);

}  // namespace millpond::client
