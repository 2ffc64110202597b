// SPDX-License-Identifier: Apache-2.0
#include "worker/claim/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/unique_fd.h"

namespace millpond::worker {

Result<void*> mapSharedBytes(const std::string& path, const std::string& what, uint64_t bytes,
                             const std::function<bool(void*)>& make) {
  const auto problem = [&](const char* how) {
    return Error{what + " " + path + " " + how + ": " + std::strerror(errno)};
  };
  const auto map = [&](int file) {
    void* place = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return place == MAP_FAILED ? nullptr : place;
  };
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file && errno == ENOENT) {
    // Created under a temporary name, and renamed when complete: another worker may be creating it, too.
    std::string draft = path + ".XXXXXX";
    const UniqueFd made(::mkostemp(draft.data(), O_CLOEXEC));
    if (!made) return problem("cannot be made");
    bool whole = ::ftruncate(made.get(), static_cast<off_t>(bytes)) == 0;
    if (void* place = whole ? map(made.get()) : nullptr) {
      whole = make(place);
      ::munmap(place, bytes);
    } else {
      whole = false;
    }
    const bool named = whole && (::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
    const int why = errno;
    ::unlink(draft.c_str());
    errno = why;
    if (!named) return problem("cannot be made");
    file.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  if (!file) return problem("cannot be opened");
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return problem("cannot be looked at");
  if (static_cast<uint64_t>(info.st_size) != bytes)
    return Error{what + " " + path + " has " + std::to_string(info.st_size) + " bytes, not " + std::to_string(bytes) +
                 ": it belongs to another release"};
  void* place = map(file.get());
  if (!place) return problem("cannot be mapped");
  return place;
}

Result<void*> mapSharedFile(const std::string& path, const std::string& what, SharedFileHeader layout,
                            const std::function<bool(void*)>& make) {
  auto place = mapSharedBytes(path, what, layout.bytes, [&](void* zeros) {
    *static_cast<SharedFileHeader*>(zeros) = layout;
    return make(zeros);
  });
  if (!place) return place;
  const auto& header = *static_cast<const SharedFileHeader*>(*place);
  if (header.magic == layout.magic && header.bytes == layout.bytes) return place;
  ::munmap(*place, layout.bytes);
  return Error{what + " " + path + " is of another release"};
}

bool makeRobustMutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  if (::pthread_mutexattr_init(&attributes) != 0) return false;
  const bool made = ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
                    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                    ::pthread_mutex_init(&mutex, &attributes) == 0;
  ::pthread_mutexattr_destroy(&attributes);
  return made;
}

void lockRobust(pthread_mutex_t& mutex) {
  const int rc = ::pthread_mutex_lock(&mutex);
  if (rc == EOWNERDEAD) ::pthread_mutex_consistent(&mutex);
  // The mutex has been overwritten.
  if (rc != 0 && rc != EOWNERDEAD) std::abort();
}

bool tryLockRobust(pthread_mutex_t& mutex) {
  const int rc = ::pthread_mutex_trylock(&mutex);
  if (rc == EOWNERDEAD) ::pthread_mutex_consistent(&mutex);
  return rc == 0 || rc == EOWNERDEAD;
}

}  // namespace millpond::worker
