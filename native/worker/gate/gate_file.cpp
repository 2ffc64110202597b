// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/gate_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/unique_fd.h"

namespace millpond::worker::gate {
namespace {

/// "gate", and the layout of what follows.
constexpr uint64_t kMagic = 0x6761746500000001;

Error problem(const std::string& path, const char* what) {
  return Error{"the gate " + path + " " + what + ": " + std::strerror(errno)};
}

bool makeMutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  if (::pthread_mutexattr_init(&attributes) != 0) return false;
  const bool made = ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
                    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                    ::pthread_mutex_init(&mutex, &attributes) == 0;
  ::pthread_mutexattr_destroy(&attributes);
  return made;
}

}  // namespace

struct GateFile::Content {
  uint64_t magic;
  uint64_t bytes;
  pthread_mutex_t mutex;         ///< of the table
  pthread_mutex_t lives[kSeats];  ///< held by whoever sits there
  Table table;
};

Result<std::unique_ptr<GateFile>> GateFile::open(const std::string& path) {
  const auto map = [](int file) {
    void* place = ::mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return place == MAP_FAILED ? nullptr : static_cast<Content*>(place);
  };
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file && errno == ENOENT) {
    // Made under another name, and given this one when it is whole: another worker may be making it, too.
    std::string draft = path + ".XXXXXX";
    const UniqueFd made(::mkostemp(draft.data(), O_CLOEXEC));
    if (!made) return problem(path, "cannot be made");
    bool whole = ::ftruncate(made.get(), sizeof(Content)) == 0;
    if (Content* content = whole ? map(made.get()) : nullptr) {
      new (&content->table) Table;
      whole = makeMutex(content->mutex);
      for (pthread_mutex_t& life : content->lives) whole = whole && makeMutex(life);
      content->bytes = sizeof(Content);
      content->magic = kMagic;
      ::munmap(content, sizeof(Content));
    } else {
      whole = false;
    }
    const bool named = whole && (::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
    const int why = errno;
    ::unlink(draft.c_str());
    errno = why;
    if (!named) return problem(path, "cannot be made");
    file.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  if (!file) return problem(path, "cannot be opened");
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return problem(path, "cannot be looked at");
  if (static_cast<uint64_t>(info.st_size) != sizeof(Content))
    return Error{"the gate " + path + " has " + std::to_string(info.st_size) + " bytes, not " +
                 std::to_string(sizeof(Content)) + ": it is another release's"};
  Content* content = map(file.get());
  if (!content) return problem(path, "cannot be mapped");
  if (content->magic != kMagic || content->bytes != sizeof(Content)) {
    ::munmap(content, sizeof(Content));
    return Error{"the gate " + path + " is of another release"};
  }
  return std::unique_ptr<GateFile>(new GateFile(content));
}

GateFile::~GateFile() { ::munmap(content_, sizeof(Content)); }

void GateFile::lock() {
  const int rc = ::pthread_mutex_lock(&content_->mutex);
  // Each number in the table is good by itself, so what a dead worker had half done is at most some time not charged.
  if (rc == EOWNERDEAD) ::pthread_mutex_consistent(&content_->mutex);
  // The mutex is no longer one: somebody has overwritten the file.
  if (rc != 0 && rc != EOWNERDEAD) std::abort();
}

GateFile::Locked::Locked(GateFile& file) : turns(file.content_->table), file_(file) { file_.lock(); }
GateFile::Locked::~Locked() { ::pthread_mutex_unlock(&file_.content_->mutex); }

std::optional<uint32_t> GateFile::sit(Share share, int64_t now) {
  const Locked locked(*this);
  sweepLocked(now);
  auto turns = Turns(content_->table);
  const auto seat = turns.sit(share, now);
  if (!seat) return std::nullopt;
  const int rc = ::pthread_mutex_trylock(&content_->lives[*seat]);
  if (rc == EOWNERDEAD) ::pthread_mutex_consistent(&content_->lives[*seat]);
  if (rc == 0 || rc == EOWNERDEAD) return seat;
  // Somebody holds it who does not sit there: not a worker of ours.
  turns.leave(*seat, now);
  return std::nullopt;
}

void GateFile::leave(uint32_t seat, int64_t now) {
  const Locked locked(*this);
  Turns(content_->table).leave(seat, now);
  ::pthread_mutex_unlock(&content_->lives[seat]);
}

void GateFile::sweep(int64_t now) {
  const Locked locked(*this);
  sweepLocked(now);
}

void GateFile::sweepLocked(int64_t now) {
  for (uint32_t seat = 0; seat < kSeats; ++seat) {
    if (content_->table.seats[seat].state == Seat::State::kFree) continue;
    const int rc = ::pthread_mutex_trylock(&content_->lives[seat]);
    if (rc == EBUSY) continue;
    if (rc == EOWNERDEAD) ::pthread_mutex_consistent(&content_->lives[seat]);
    if (rc == 0 || rc == EOWNERDEAD) {
      Turns(content_->table).leave(seat, now);
      ::pthread_mutex_unlock(&content_->lives[seat]);
    }
  }
}

bool GateFile::mayGoOn(uint32_t seat) const {
  Table& table = content_->table;
  return std::atomic_ref(table.holder).load(std::memory_order_relaxed) == seat &&
         std::atomic_ref(table.seats[seat].mustYield).load(std::memory_order_relaxed) == 0;
}

uint32_t GateFile::taken() const { return std::atomic_ref(content_->table.taken).load(std::memory_order_relaxed); }

}  // namespace millpond::worker::gate
