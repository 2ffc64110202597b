// SPDX-License-Identifier: Apache-2.0
// Seats of a claim's sessions in a file that they share. A file has `seats` (with `isTaken`, `pid` and `deadSince`), one
// robust mutex for each in `lives`, which its session holds for as long as it lasts, and `seatsUsed`: beyond it no seat
// is taken. Each function expects the lock of the file.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "protocol/futex.h"
#include "protocol/handshake/process_watch.h"
#include "worker/claim/shared_file.h"

namespace millpond::worker {

/// Maximum number of sessions of an allocation on a device, including those that are ending: the agent admits 16 for
/// each of its 32 vGPUs, and the same number may not have ended yet.
inline constexpr uint32_t kClaimSeats = 1024;

/// Time after which a killed worker is considered ended, even if its process cannot be watched.
inline constexpr int64_t kWorkerEndsNs = 30'000'000'000;

/// Calls `visit` with the seat of each session that is over, except for `own`, until it returns true.
template <typename Content, typename Visit>
bool anyEndedSeat(Content& content, uint32_t own, Visit visit) {
  for (uint32_t i = 0; i < content.seatsUsed; ++i) {
    if (i == own || !content.seats[i].isTaken || !tryLockRobust(content.lives[i])) continue;
    const bool isFound = visit(i);
    ::pthread_mutex_unlock(&content.lives[i]);
    if (isFound) return true;
  }
  return false;
}

/// Whether a session is over whose seat is still taken: the seat is freed when the session's process ends.
template <typename Content>
bool hasEndingSeat(Content& content, uint32_t own) {
  return anyEndedSeat(content, own, [](uint32_t) { return true; });
}

/// Calls `clear` with each seat whose session is over and whose process has ended.
template <typename Content, typename Clear>
void clearEndedSeats(Content& content, uint32_t own, Clear clear) {
  anyEndedSeat(content, own, [&](uint32_t i) {
    auto& seat = content.seats[i];
    // The kernel releases a process's locks before it closes its files and returns its memory, the driver's included.
    const ProcessWatch process(seat.pid);
    const int64_t now = monotonicNs();
    if (seat.deadSince == 0) seat.deadSince = now;
    if (process.file() < 0 || process.ended() || now - seat.deadSince > kWorkerEndsNs) clear(i);
    return false;
  });
  while (content.seatsUsed > 0 && !content.seats[content.seatsUsed - 1].isTaken) --content.seatsUsed;
}

/// Takes a free seat for this process; `kClaimSeats` if there is none.
template <typename Content>
uint32_t takeSeat(Content& content) {
  for (uint32_t i = 0; i < kClaimSeats; ++i) {
    if (content.seats[i].isTaken || !tryLockRobust(content.lives[i])) continue;
    content.seats[i] = {};
    content.seats[i].isTaken = 1;
    content.seats[i].pid = ::getpid();
    content.seatsUsed = std::max(content.seatsUsed, i + 1);
    return i;
  }
  return kClaimSeats;
}

}  // namespace millpond::worker
