// SPDX-License-Identifier: Apache-2.0
#include "protocol/lanes/lane.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "protocol/session_thread.h"

namespace millpond {
namespace {

/// A closed lane is noticed at once, because its socket is shut down; this bounds the wait all the same.
constexpr int kLookMs = 1000;
constexpr int64_t kSpinNs = 40'000;

struct PieceHeader {
  uint32_t bytes;
  uint32_t reserved;
};

}  // namespace

void Lane::send(std::span<const std::byte> piece) {
  const std::lock_guard lock(mutex_);
  if (isClosed_.load() || hasEnded_.load()) return;
  pieces_.push_back(piece);
  given_.fetch_add(1, std::memory_order_release);
  if (!sends_ && !(sends_ = startSessionThread(sender_, &Lane::sender, this))) return end();
  changed_.notifyAll();
}

void Lane::awaitSent() const {
  const uint64_t given = given_.load();
  while (!hasEnded() && !isClosed_.load() && sent_.load(std::memory_order_acquire) < given) cpuRelax();
}

void Lane::receive(std::span<std::byte> place, bool isExact) { addPlace({place.data(), place.size(), isExact}); }

void Lane::drop(size_t bytes) { addPlace({nullptr, bytes, true}); }

void Lane::addPlace(const Place& place) {
  const std::lock_guard lock(mutex_);
  if (isClosed_.load() || hasEnded_.load()) return;
  places_.push_back(place);
  placed_.fetch_add(1, std::memory_order_release);
  if (!receives_ && !(receives_ = startSessionThread(receiver_, &Lane::receiver, this))) return end();
  changed_.notifyAll();
}

size_t Lane::takeSize() {
  const std::lock_guard lock(mutex_);
  if (sizes_.empty()) return 0;
  const size_t bytes = sizes_.front();
  sizes_.pop_front();
  return bytes;
}

void Lane::end() {
  hasEnded_.store(true, std::memory_order_release);
  ::shutdown(channel_.socket(), SHUT_RDWR);
  onChange_();
}

void Lane::close() {
  bool sends = false, receives = false;
  {
    const std::lock_guard lock(mutex_);
    isClosed_.store(true);
    if (channel_.socket() >= 0) ::shutdown(channel_.socket(), SHUT_RDWR);
    changed_.notifyAll();
    sends = std::exchange(sends_, false);
    receives = std::exchange(receives_, false);
  }
  if (sends) ::pthread_join(sender_, nullptr);
  if (receives) ::pthread_join(receiver_, nullptr);
}

void Lane::abandon() {
  isClosed_.store(true);
  sends_ = receives_ = false;
  channel_.abandon();
}

void* Lane::sender(void* self) {
  ::prctl(PR_SET_NAME, "millpond-lane");
  static_cast<Lane*>(self)->sendUntilClosed();
  return nullptr;
}

void Lane::awaitWork(std::unique_lock<std::mutex>& lock, const std::atomic<uint64_t>& work, uint64_t done) {
  const auto isThere = [&] { return isClosed_.load() || work.load(std::memory_order_acquire) != done; };
  if (hasSpareCpus_ && !isThere()) {
    lock.unlock();
    for (const int64_t end = monotonicNs() + kSpinNs; !isThere() && monotonicNs() < end;)
      for (int i = 0; i < 16; ++i) cpuRelax();
    lock.lock();
  }
  changed_.wait(lock, isThere);
}

void Lane::sendUntilClosed() {
  std::unique_lock lock(mutex_);
  for (uint64_t done = 0;; ++done) {
    awaitWork(lock, given_, done);
    if (isClosed_.load()) return;
    const std::span<const std::byte> piece = pieces_.front();
    pieces_.pop_front();
    lock.unlock();
    if (look_) look_(piece);
    if (!sendPiece(piece)) return end();
    sent_.fetch_add(1, std::memory_order_release);
    lock.lock();
  }
}

bool Lane::sendPiece(std::span<const std::byte> piece) {
  const PieceHeader header{static_cast<uint32_t>(piece.size()), 0};
  SendRuns runs;
  runs.add(std::as_bytes(std::span(&header, 1)));
  runs.add(piece);
  while (!runs.done()) {
    if (isClosed_.load(std::memory_order_relaxed)) return false;
    if (runs.send(channel_) || errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    channel_.wait(POLLOUT, kLookMs);
  }
  return true;
}

void* Lane::receiver(void* self) {
  ::prctl(PR_SET_NAME, "millpond-lane");
  static_cast<Lane*>(self)->receiveUntilClosed();
  return nullptr;
}

void Lane::receiveUntilClosed() {
  std::unique_lock lock(mutex_);
  for (uint64_t done = 0;; ++done) {
    awaitWork(lock, placed_, done);
    if (isClosed_.load()) return;
    const Place place = places_.front();
    lock.unlock();
    size_t bytes = 0;
    if (!receivePiece(place, bytes)) return end();
    lock.lock();
    places_.pop_front();
    sizes_.push_back(bytes);
    arrived_.fetch_add(1, std::memory_order_release);
    lock.unlock();
    onChange_();
    lock.lock();
  }
}

bool Lane::receivePiece(const Place& place, size_t& bytes) {
  PieceHeader header{};
  if (!receiveAll(std::as_writable_bytes(std::span(&header, 1)))) return false;
  bytes = header.bytes;
  if (header.reserved != 0 || bytes == 0 || bytes > place.bytes || (place.isExact && bytes != place.bytes))
    return false;
  if (place.to) return receiveAll({place.to, bytes});
  std::array<std::byte, size_t{16} << 10> dropped;
  for (size_t left = bytes; left != 0;) {
    const size_t n = std::min(left, dropped.size());
    if (!receiveAll(std::span(dropped).first(n))) return false;
    left -= n;
  }
  return true;
}

bool Lane::receiveAll(std::span<std::byte> to) {
  for (int64_t spinUntil = 0; !to.empty();) {
    if (isClosed_.load(std::memory_order_relaxed)) return false;
    const ssize_t n = channel_.receive(to);
    if (n > 0) {
      to = to.subspan(static_cast<size_t>(n));
      spinUntil = 0;
      continue;
    }
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return false;
    const int64_t now = hasSpareCpus_ ? monotonicNs() : 0;
    if (spinUntil == 0) spinUntil = now + kSpinNs;
    if (hasSpareCpus_ && now < spinUntil)
      for (int i = 0; i < 16; ++i) cpuRelax();
    else
      channel_.wait(POLLIN, kLookMs);
  }
  return true;
}

}  // namespace millpond
