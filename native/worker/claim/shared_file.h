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

/// Maps the file of a layout that begins with a SharedFileHeader, and makes it where it is missing: `make` fills the
/// zeros of a new one, and says whether it could. `what` names the file in errors. To be given back by munmap.
Result<void*> mapSharedFile(const std::string& path, const std::string& what, SharedFileHeader layout,
                            const std::function<bool(void*)>& make);

/// Maps a file of `bytes` bytes without a header, for users that are not trusted to leave a header alone.
Result<void*> mapSharedBytes(const std::string& path, const std::string& what, uint64_t bytes,
                             const std::function<bool(void*)>& make);

/// Makes a mutex between processes that outlives whoever holds it. False where the system cannot.
bool makeRobustMutex(pthread_mutex_t& mutex);

/// Locks it. What a dead thread had half done is the caller's to bear. Aborts where the file was overwritten.
void lockRobust(pthread_mutex_t& mutex);

/// Whether the calling thread holds it now, because nobody did or because the one that did is dead.
bool tryLockRobust(pthread_mutex_t& mutex);

}  // namespace millpond::worker
