// SPDX-License-Identifier: Apache-2.0
#include "protocol/transport/channel.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdint>

namespace millpond {

namespace {

constexpr size_t kPage = 4096;
/// Other threads may change the memory's protection repeatedly.
constexpr int kMostFaults = 1000;

template <typename Touch>
void touchPages(const void* data, size_t bytes, Touch&& touch) {
  const auto first = reinterpret_cast<uintptr_t>(data);
  for (uintptr_t at = first; at < first + bytes; at = (at / kPage + 1) * kPage) touch(at);
}

}  // namespace

// A system call fails where an access of the program would fault. That must not affect the connection: natively such a
// copy ends the program, or its fault handler makes the memory usable, so the memory is accessed here.

ssize_t Channel::send(std::span<const iovec> runs) {
  if (tls_) return tls_->send(socket_.get(), runs);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(runs.data());
  message.msg_iovlen = runs.size();
  for (int faults = 0;; ++faults) {
    const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0 || errno != EFAULT || faults == kMostFaults) return n;
    for (const iovec& run : runs)
      touchPages(run.iov_base, run.iov_len, [](uintptr_t at) { (void)*reinterpret_cast<const volatile char*>(at); });
  }
}

ssize_t Channel::receivePlain(std::span<std::byte> to) {
  for (int faults = 0;; ++faults) {
    const ssize_t n = ::recv(socket_.get(), to.data(), to.size(), MSG_DONTWAIT);
    if (n >= 0 || errno != EFAULT || faults == kMostFaults) return n;
    // Writes back the value that it has read, because other threads may write there, too.
    touchPages(to.data(), to.size(), [](uintptr_t at) {
      std::atomic_ref(*reinterpret_cast<char*>(at)).fetch_or(0, std::memory_order_relaxed);
    });
  }
}

int Channel::wait(short events, int timeoutMs) const {
  if ((events & POLLIN) != 0 && holds_.load(std::memory_order_relaxed)) return POLLIN;
  pollfd wait{socket_.get(), events, 0};
  return ::poll(&wait, 1, timeoutMs) < 0 ? events : wait.revents;
}

bool Channel::takeOver(Channel other) {
  if (::dup3(other.socket_.get(), socket_.get(), O_CLOEXEC) < 0) return false;
  tls_ = std::move(other.tls_);
  holds_.store(other.holds_.load());
  return true;
}

void Channel::abandon() {
  socket_.reset();
  // Its lock may be held by a thread that does not exist in this process.
  (void)tls_.release();
}

Status sendAll(Channel& channel, std::span<const std::byte> bytes, int patienceMs) {
  return sendAllBy(
      bytes, patienceMs,
      [&](std::span<const std::byte> some) {
        const iovec run{const_cast<std::byte*>(some.data()), some.size()};
        return channel.send(std::span(&run, 1));
      },
      [&](int timeoutMs) { return channel.wait(POLLOUT, timeoutMs) != 0; });
}

Status receiveExactly(Channel& channel, std::span<std::byte> bytes, int timeoutMs) {
  return receiveExactlyBy(
      bytes, timeoutMs, [&](std::span<std::byte> some) { return channel.receive(some); },
      [&](int leftMs) { return channel.wait(POLLIN, leftMs) != 0; });
}

void SendRuns::add(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  assert(used_ < kMost);
  runs_[used_++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  left_ += bytes.size();
}

bool SendRuns::send(Channel& channel) {
  const ssize_t n = channel.send(std::span(runs_).subspan(first_, used_ - first_));
  if (n <= 0) return false;
  left_ -= static_cast<size_t>(n);
  for (size_t gone = static_cast<size_t>(n); gone;) {
    iovec& run = runs_[first_];
    const size_t step = std::min(gone, run.iov_len);
    run.iov_base = static_cast<char*>(run.iov_base) + step;
    run.iov_len -= step;
    gone -= step;
    if (run.iov_len == 0) ++first_;
  }
  return true;
}

}  // namespace millpond
