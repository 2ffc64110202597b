// SPDX-License-Identifier: Apache-2.0
#include "bench/delay_relay.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/report.h"
#include "protocol/futex.h"
#include "protocol/transport/socket.h"

namespace millpond::bench {
namespace {

/// Limit of bytes in transit in one direction; further ones wait at their source. 5 GB/s at 3 ms.
constexpr size_t kMostUnderWay = size_t{16} << 20;
constexpr size_t kReadBytes = size_t{128} << 10;
/// Sleeps end this much late; the rest of a delay is spun.
constexpr int64_t kLateNs = 100'000;

/// One direction: bytes and the time at which each of them arrives.
class DelayLine {
 public:
  explicit DelayLine(int64_t delayNs) : delayNs_(delayNs) {}

  /// False: the other end is gone.
  bool put(std::vector<std::byte> bytes) {
    const int64_t due = now() + delayNs_;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return underWay_ < kMostUnderWay || isClosed_; });
    underWay_ += bytes.size();
    pieces_.push_back({due, std::move(bytes)});
    changed_.notify_all();
    return !isClosed_;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    isClosed_ = true;
    changed_.notify_all();
  }
  /// The next bytes, when it is time; none behind the last.
  std::vector<std::byte> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !pieces_.empty() || isClosed_; });
    if (pieces_.empty()) return {};
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    underWay_ -= piece.bytes.size();
    changed_.notify_all();
    lock.unlock();
    waitUntil(piece.due);
    return std::move(piece.bytes);
  }

 private:
  struct Piece {
    int64_t due;
    std::vector<std::byte> bytes;
  };

  static void waitUntil(int64_t due) {
    if (const int64_t early = due - kLateNs; early > now()) {
      const timespec at{early / 1'000'000'000, early % 1'000'000'000};
      ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
    }
    while (now() < due) cpuRelax();
  }

  const int64_t delayNs_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  size_t underWay_ = 0;
  bool isClosed_ = false;
};

/// Forwards bytes from `from` to `to`, until either end is gone.
void relay(int from, int to, int64_t delayNs) {
  DelayLine line(delayNs);
  std::thread writer([&] {
    ::prctl(PR_SET_TIMERSLACK, 1UL);
    for (auto bytes = line.take(); !bytes.empty(); bytes = line.take())
      if (!sendAll(to, bytes)) break;
    line.close();
    ::shutdown(to, SHUT_WR);
    ::shutdown(from, SHUT_RD);
  });
  std::vector<std::byte> piece(kReadBytes);
  for (ssize_t n = 1; n > 0;) {
    n = ::recv(from, piece.data(), piece.size(), 0);
    if (n > 0 && !line.put({piece.begin(), piece.begin() + n})) break;
  }
  line.close();
  writer.join();
}

struct Connection {
  UniqueFd client, worker;
  std::thread there, back;

  Connection(UniqueFd accepted, UniqueFd made, int64_t delayNs) : client(std::move(accepted)), worker(std::move(made)) {
    there = std::thread([this, delayNs] { relay(client.get(), worker.get(), delayNs); });
    back = std::thread([this, delayNs] { relay(worker.get(), client.get(), delayNs); });
  }
  ~Connection() {
    for (const UniqueFd* each : {&client, &worker}) ::shutdown(each->get(), SHUT_RDWR);
    there.join();
    back.join();
  }
};

}  // namespace

void relayWithDelay(uint16_t port, int64_t delayNs) {
  uint16_t own = 0;
  auto listener = listenTcp("127.0.0.1", own);
  if (!listener) fail(listener.error().message);
  std::printf("%u\n", unsigned{own});
  std::fflush(stdout);
  std::list<Connection> connections;
  for (;;) {
    pollfd wait[2] = {{listener->get(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    if (::poll(wait, 2, -1) < 0) continue;
    char unread[256];
    if (wait[1].revents != 0 && ::read(STDIN_FILENO, unread, sizeof(unread)) <= 0) return;
    if (wait[0].revents == 0) continue;
    UniqueFd client(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) continue;
    auto worker = connectTcp("127.0.0.1", port);
    if (!worker) continue;  // the client sees its connection end
    tuneTcp(client.get());
    connections.emplace_back(std::move(client), std::move(*worker), delayNs);
  }
}

}  // namespace millpond::bench
