// SPDX-License-Identifier: Apache-2.0
// Keeps kernels away from this process's own memory on hosts with heterogeneous memory management (HMM). Linked into
// a program, it takes the place of the C library's ioctl for every library that is loaded later, as the driver is.
#pragma once

namespace millpond::worker {

/// Whether the driver has set its unified memory up and was asked to leave pageable memory alone.
bool isPageableMemoryOff();

}  // namespace millpond::worker
