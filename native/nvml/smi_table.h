// SPDX-License-Identifier: Apache-2.0
// The undocumented table of functions that nvidia-smi requests.
#pragma once

namespace millpond::nvml {

/// The table of the id, 16 bytes; nullptr if there is none.
const void* smiTable(const void* id);

}  // namespace millpond::nvml
