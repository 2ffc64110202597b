// SPDX-License-Identifier: Apache-2.0
// How many blocks of a kernel a multiprocessor holds, by the rules of compute capability 7.5.
#pragma once

#include <cstddef>

#include "softgpu/driver/program/function.h"

namespace millpond::softgpu {

/// The number of blocks of `threads` threads and `dynamicSharedBytes` that fit on one multiprocessor; 0 if not even one
/// does.
int blocksPerMultiprocessor(const Function& function, unsigned threads, size_t dynamicSharedBytes);

/// The dynamic shared memory that each of `blocks` blocks on one multiprocessor may have, in bytes.
size_t dynamicSharedBytesPerBlock(const Function& function, unsigned blocks);

}  // namespace millpond::softgpu
