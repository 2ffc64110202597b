// SPDX-License-Identifier: Apache-2.0
// Keeps kernels away from this process's own memory on hosts with heterogeneous memory management (HMM). Linked into a
// program, it replaces the C library's ioctl for every library that is loaded later, such as the driver.
#pragma once

namespace millpond::worker {

/// Whether the driver has initialised its unified memory, with the flag not to use pageable memory.
bool isPageableMemoryOff();

}  // namespace millpond::worker
