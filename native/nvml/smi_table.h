// SPDX-License-Identifier: Apache-2.0
// The hidden table of functions that nvidia-smi asks for.
#pragma once

namespace millpond::nvml {

/// The table of the id, 16 bytes; nullptr where there is none.
const void* smiTable(const void* id);

}  // namespace millpond::nvml
