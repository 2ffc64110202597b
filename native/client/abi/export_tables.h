// SPDX-License-Identifier: Apache-2.0
// The tables of functions behind cuGetExportTable, which NVIDIA's own libraries use and no document
// describes. What is known about them: docs/reference/export-tables.md.
#pragma once

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

/// Returns the table, which stays at the same address until the process ends; nullptr when there is none of that id, or
/// when the environment variable MILLPOND_DENY_TABLES (beginnings of ids, separated by commas) names it. The variable
/// serves to find out which library needs which table.
const void* exportTable(const CUuuid& id);

}  // namespace millpond::client
