// SPDX-License-Identifier: Apache-2.0
#include "bench/link_speed.h"

#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "protocol/transport/channel.h"
#include "protocol/transport/socket.h"

namespace millpond::bench {
namespace {

constexpr int kPatienceMs = 60'000;
/// Large copies are sent this way: directly from memory, in pieces.
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kMemoryBytes = size_t{64} << 20;
constexpr double kGiB = 1024.0 * 1024 * 1024;

double threadSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <typename T>
T need(Result<T> result) {
  if (!result) fail(result.error().message);
  return std::move(*result);
}

/// One end of the connection: its handshake, then `work`. Returns the processor time of `work`.
template <typename Work>
double atEnd(Channel& channel, bool isEncrypted, MillpondTlsSide side, Work&& work) {
  if (isEncrypted) {
    auto tls = need(TlsStream::ofLink(side, LinkSecret{}));
    if (auto shaken = tls->shakeWithin(channel.socket(), kPatienceMs); !shaken) fail(shaken.error().message);
    channel.encrypt(std::move(tls));
  }
  const double begun = threadSeconds();
  work();
  return threadSeconds() - begun;
}

}  // namespace

void measureLink(bool isEncrypted, size_t megabytes, int rounds, Report& report) {
  uint16_t port = 0;
  const UniqueFd listener = need(listenTcp("127.0.0.1", port));
  Channel sender(need(connectTcp("127.0.0.1", port)));
  UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!accepted) fail("the connection was not accepted");
  tuneTcp(accepted.get());
  Channel receiver(std::move(accepted));

  std::vector<std::byte> from(kMemoryBytes), to(kMemoryBytes);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 2654435761u >> 24);
  const size_t all = megabytes << 20;
  const auto inPieces = [all](std::vector<std::byte>& memory, auto&& each) {
    for (size_t at = 0; at < all; at += kPieceBytes)
      each(std::span(memory).subspan(at % kMemoryBytes, std::min(kPieceBytes, all - at)));
  };
  const std::string name = isEncrypted ? "tls" : "clear";
  bool isFirst = true;  // it warms caches up, and makes the handshake
  for (int round = -1; round < rounds; ++round, isFirst = false) {
    const bool shakes = isEncrypted && isFirst;
    double sending = 0, receiving = 0;
    const int64_t begun = now();
    std::thread other([&] {
      receiving = atEnd(receiver, shakes, kTlsServer, [&] {
        inPieces(to, [&](std::span<std::byte> piece) {
          if (auto got = receiveExactly(receiver, piece, kPatienceMs); !got) fail(got.error().message);
        });
      });
    });
    sending = atEnd(sender, shakes, kTlsClient, [&] {
      inPieces(from, [&](std::span<const std::byte> piece) {
        if (auto sent = sendAll(sender, piece); !sent) fail(sent.error().message);
      });
    });
    other.join();
    const double seconds = static_cast<double>(now() - begun) * 1e-9;
    if (std::memcmp(from.data(), to.data(), std::min(all, kMemoryBytes)) != 0) fail("other bytes came than were sent");
    if (isFirst) continue;
    const double gibibytes = static_cast<double>(all) / kGiB;
    report.add(name + ".seconds", seconds / gibibytes);
    report.add(name + ".sender", sending / gibibytes);
    report.add(name + ".receiver", receiving / gibibytes);
  }
}

}  // namespace millpond::bench
