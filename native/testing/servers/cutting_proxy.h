// SPDX-License-Identifier: Apache-2.0
// A TCP link that breaks: forwards the data of two sides, and cuts the link after random numbers of bytes.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "protocol/futex.h"
#include "protocol/transport/socket.h"
#include "testing/check.h"

namespace millpond::testing {

class CuttingProxy {
 public:
  /// `counter`: counts the cuts, possibly for other processes.
  CuttingProxy(uint32_t seed, std::atomic<uint32_t>& counter) : random_(seed), cuts_(counter) {
    auto listener = listenTcp("127.0.0.1", port_);
    CHECK(bool(listener));
    listener_ = std::move(*listener);
  }
  CuttingProxy(const CuttingProxy&) = delete;
  CuttingProxy& operator=(const CuttingProxy&) = delete;
  ~CuttingProxy() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }

  uint16_t port() const { return port_; }
  /// Forwards to that port, and cuts until there have been `cuts`.
  void start(uint16_t target, uint32_t cuts) {
    target_ = target;
    wanted_ = cuts;
    thread_ = std::thread([this] { run(); });
  }
  /// Flips a bit of the data that it forwards before it cuts, a moment later: a corrupted length could make
  /// the receiver wait for more.
  void setChanging() { isChanging_ = true; }
  /// Searches for these bytes in everything that it forwards.
  void watchFor(std::vector<std::byte> bytes) { watched_ = std::move(bytes); }
  /// How often they occurred.
  uint32_t seen() const { return seen_.load(); }
  /// Cuts now, and refuses connections while it is off.
  void setOff(bool off) { off_.store(off); }

 private:
  struct Line {
    std::array<UniqueFd, 2> ends;  ///< the client's and the worker's
    std::array<uint64_t, 2> passed{};
    std::array<std::vector<std::byte>, 2> waiting{};  ///< data to be sent to that end
    std::array<std::vector<std::byte>, 2> before{};   ///< the last of what came from that end
    unsigned cutDirection = 0;
    uint64_t cutAt = ~uint64_t{0};
    int64_t changedNs = 0;  ///< when; 0: not yet
    bool isOver = false;
  };

  void run() {
    std::vector<Line> lines;
    while (!stop_.load()) {
      std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
      for (const Line& line : lines)
        for (unsigned from = 0; from < 2; ++from) {
          // Nothing is read for which the other side has no room.
          const bool full = !line.waiting[1 - from].empty();
          const short events = static_cast<short>((full ? 0 : POLLIN) | (line.waiting[from].empty() ? 0 : POLLOUT));
          polled.push_back({line.ends[from].get(), events, 0});
        }
      ::poll(polled.data(), polled.size(), 5);
      if (off_.load())
        for (Line& line : lines) end(line);
      accept(lines);
      for (Line& line : lines)
        for (unsigned from = 0; from < 2 && !line.isOver; ++from) pass(line, from);
      std::erase_if(lines, [](const Line& line) { return line.isOver; });
    }
  }

  void accept(std::vector<Line>& lines) {
    UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client || off_.load()) return;
    auto worker = connectTcp("127.0.0.1", target_);
    if (!worker) return;
    Line line;
    line.ends = {std::move(client), std::move(*worker)};
    if (cuts_.load() < wanted_) {
      line.cutDirection = random_() % 2;
      // From the first byte to some MiB, small numbers as likely as large ones.
      line.cutAt = static_cast<uint64_t>(std::exp2(std::uniform_real_distribution<double>(0, 22)(random_)));
      // The first hello is not part of a session yet.
      if (!isBegun_) line.cutAt += kFirstGreetingBytes;
      isBegun_ = true;
    }
    lines.push_back(std::move(line));
  }

  void pass(Line& line, unsigned from) {
    std::vector<std::byte>& waiting = line.waiting[1 - from];
    if (waiting.empty()) {
      waiting.resize(size_t{64} << 10);
      const ssize_t n = ::recv(line.ends[from].get(), waiting.data(), waiting.size(), MSG_DONTWAIT);
      waiting.resize(n > 0 ? static_cast<size_t>(n) : 0);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return end(line);
      look(line.before[from], waiting);
      if (isChanging_) change(line, from);
    }
    if (line.changedNs != 0 && monotonicNs() - line.changedNs > kMomentNs) return end(line);
    const bool cuts = from == line.cutDirection && !isChanging_;
    const uint64_t left = cuts ? line.cutAt - line.passed[from] : ~uint64_t{0};
    if (!waiting.empty() && left != 0) {
      const ssize_t n = ::send(line.ends[1 - from].get(), waiting.data(), std::min<uint64_t>(waiting.size(), left),
                               MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return end(line);
      if (n > 0) {
        waiting.erase(waiting.begin(), waiting.begin() + n);
        line.passed[from] += static_cast<uint64_t>(n);
      }
    }
    if (!cuts || line.passed[from] < line.cutAt) return;
    ++cuts_;
    // Either end may see a reset, with data in flight lost, or an orderly close.
    for (UniqueFd& each : line.ends) {
      const linger reset{1, 0};
      if (random_() % 2) ::setsockopt(each.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    }
    end(line);
  }

  /// `before` is set to the remainder for the next read.
  void look(std::vector<std::byte>& before, const std::vector<std::byte>& bytes) {
    if (watched_.empty()) return;
    before.insert(before.end(), bytes.begin(), bytes.end());
    for (auto at = before.begin();; ++at) {
      at = std::search(at, before.end(), watched_.begin(), watched_.end());
      if (at == before.end()) break;
      ++seen_;
    }
    if (before.size() >= watched_.size())
      before.erase(before.begin(), before.end() - static_cast<ptrdiff_t>(watched_.size() - 1));
  }

  void change(Line& line, unsigned from) {
    std::vector<std::byte>& bytes = line.waiting[1 - from];
    const uint64_t at = line.cutAt - line.passed[from];
    if (from != line.cutDirection || line.passed[from] > line.cutAt || at >= bytes.size()) return;
    bytes[at] ^= static_cast<std::byte>(1u << random_() % 8);
    line.cutAt = ~uint64_t{0};
    line.changedNs = monotonicNs();
    ++cuts_;
  }

  static void end(Line& line) {
    for (UniqueFd& each : line.ends) each.reset();
    line.isOver = true;
  }

  static constexpr int64_t kMomentNs = 50'000'000;
  static constexpr uint64_t kFirstGreetingBytes = size_t{64} << 10;

  std::minstd_rand random_;
  bool isBegun_ = false;
  std::atomic<uint32_t>& cuts_;
  uint32_t wanted_ = 0;
  bool isChanging_ = false;
  std::vector<std::byte> watched_;
  std::atomic<uint32_t> seen_{0};
  uint16_t port_ = 0;
  uint16_t target_ = 0;
  UniqueFd listener_;
  std::atomic<bool> off_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace millpond::testing
