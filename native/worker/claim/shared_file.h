// SPDX-License-Identifier: Apache-2.0
// A file of a fixed layout that several workers map, with mutexes that the kernel marks when their thread dies.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace millpond::worker {

/// The first words of each such file.
struct SharedFileHeader {
  uint64_t magic = 0;
  uint64_t bytes = 0;
};

/// Maps the file of a layout that begins with a SharedFileHeader, and creates it if it is missing: `make` initialises
/// the zeros of a new file, and returns whether it succeeded. `what` names the file in errors. The caller releases it
/// with munmap.
Result<void*> mapSharedFile(const std::string& path, const std::string& what, SharedFileHeader layout,
                            const std::function<bool(void*)>& make);

/// Maps a file of `bytes` bytes without a header, for users that are not trusted to leave a header alone.
Result<void*> mapSharedBytes(const std::string& path, const std::string& what, uint64_t bytes,
                             const std::function<bool(void*)>& make);

/// Initialises a mutex between processes that survives the death of its holder. Returns false if the system does not
/// support it.
bool makeRobustMutex(pthread_mutex_t& mutex);

/// Locks the mutex. The caller must tolerate a half-finished change of a dead thread. Aborts if the file was
/// overwritten.
void lockRobust(pthread_mutex_t& mutex);

/// Tries to lock it: true if it was free, or its holder is dead.
bool tryLockRobust(pthread_mutex_t& mutex);

}  // namespace millpond::worker
