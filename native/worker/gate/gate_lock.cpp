// SPDX-License-Identifier: Apache-2.0
#include "worker/gate/gate_lock.h"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "protocol/futex.h"

namespace millpond::worker::gate {
namespace {

/// Set while a process may be asleep.
constexpr uint32_t kWaiters = uint32_t{1} << 31;
/// How often a waiting process checks that the owner lives.
constexpr int64_t kLookNs = 1'000'000;
constexpr int kSpins = 200;
constexpr int kTries = 16;

/// The byte of the file that represents an owner.
struct flock byteOf(uint32_t id, short type) {
  struct flock out {};
  out.l_type = type;
  out.l_whence = SEEK_SET;
  out.l_start = id;
  out.l_len = 1;
  return out;
}

bool isLocked(int file, uint32_t id) {
  // A write lock conflicts with the read locks that owners hold; testing for it needs no write access.
  struct flock probe = byteOf(id, F_WRLCK);
  return ::fcntl(file, F_OFD_GETLK, &probe) == 0 && probe.l_type != F_UNLCK;
}

}  // namespace

Result<GateLock> GateLock::open(const std::string& path, int64_t patienceNs) {
  const auto problem = [&](const char* how) {
    return Error{"the gate's lock " + path + " " + how + ": " + std::strerror(errno)};
  };
  // Read-only: the file has no content, and gets none.
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return problem("cannot be opened");
  for (int i = 0; i < kTries; ++i) {
    uint32_t id = 0;
    if (::getrandom(&id, sizeof(id), 0) != sizeof(id)) return problem("found no number for its owner");
    id = (id & ~kWaiters) | 1;
    if (isLocked(file.get(), id)) continue;
    struct flock own = byteOf(id, F_RDLCK);
    if (::fcntl(file.get(), F_OFD_SETLK, &own) == 0) return GateLock(std::move(file), id, patienceNs);
  }
  return problem("cannot be had");
}

bool GateLock::isAlive(uint32_t id) const { return id == id_ || isLocked(file_.get(), id); }

bool GateLock::lock(std::atomic<uint32_t>& word) {
  for (int i = 0; i < kSpins; ++i) {
    uint32_t none = 0;
    if (word.compare_exchange_weak(none, id_, std::memory_order_acquire)) return true;
    cpuRelax();
  }
  return wait(word);
}

bool GateLock::wait(std::atomic<uint32_t>& word) {
  const int64_t from = monotonicNs();
  waitedNs_ = std::max<int64_t>(waitedNs_ - (from - waitedAt_) / 2, 0);
  int64_t now = from;
  const auto done = [&](bool isMine) {
    waitedNs_ += now - from;
    waitedAt_ = now;
    return isMine;
  };
  // Terminates whatever other processes write there.
  for (; waitedNs_ + (now - from) <= patienceNs_; now = monotonicNs()) {
    uint32_t seen = word.load(std::memory_order_relaxed);
    // Others may be asleep, so the next owner wakes them.
    if ((seen & ~kWaiters) == 0) {
      if (word.compare_exchange_strong(seen, id_ | kWaiters, std::memory_order_acquire)) return done(true);
      continue;
    }
    if ((seen & kWaiters) == 0 && !word.compare_exchange_strong(seen, seen | kWaiters, std::memory_order_relaxed))
      continue;
    const uint32_t asleep = seen | kWaiters;
    futexWait(word, asleep, kLookNs);
    uint32_t still = asleep;
    if (word.load(std::memory_order_relaxed) == asleep && !isAlive(asleep & ~kWaiters) &&
        word.compare_exchange_strong(still, id_ | kWaiters, std::memory_order_acquire)) {
      now = monotonicNs();
      return done(true);
    }
  }
  return done(false);
}

void GateLock::unlock(std::atomic<uint32_t>& word) {
  if (word.exchange(0, std::memory_order_release) & kWaiters) futexWake(word);
}

}  // namespace millpond::worker::gate
