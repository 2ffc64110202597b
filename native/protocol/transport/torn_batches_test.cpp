// SPDX-License-Identifier: Apache-2.0
// A TLS stream sends records in batches, and a connection may end within one.
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "protocol/transport/outgoing.h"
#include "testing/check.h"

namespace millpond {
namespace {

constexpr size_t kRing = size_t{1} << 20;
constexpr size_t kFrame = 4096;
constexpr int kPatienceMs = 60'000;
const LinkSecret kSecret{std::byte{1}};

struct Link {
  Channel sender, receiver;

  /// The sender's socket holds few records.
  Link() {
    int pair[2];
    CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const int bytes = 32 * 1024;
    CHECK_EQ(::setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
    sender = Channel(UniqueFd(pair[0]));
    receiver = Channel(UniqueFd(pair[1]));
    auto client = TlsStream::ofLink(kTlsClient, kSecret), server = TlsStream::ofLink(kTlsServer, kSecret);
    CHECK(client && server);
    std::thread other([&] { CHECK(bool((*server)->shakeWithin(pair[1], kPatienceMs))); });
    CHECK(bool((*client)->shakeWithin(pair[0], kPatienceMs)));
    other.join();
    sender.encrypt(std::move(*client));
    receiver.encrypt(std::move(*server));
  }
};

TEST("a connection that ends within a batch of records continues behind the last frame that arrived") {
  size_t ahead = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::minstd_rand random(seed);
    RingControl control{};
    std::vector<std::byte> bytes(2 * kRing);
    std::generate(bytes.begin(), bytes.begin() + kRing, [&] { return static_cast<std::byte>(random() >> 8); });
    RingProducer producer(control, bytes.data(), kRing);
    Outgoing outgoing(RingConsumer(control, bytes.data(), kRing));
    const size_t all = 128 * kFrame;
    producer.advance(all);
    producer.publish();
    std::vector<std::byte> got;
    while (got.size() < all) {
      Link link;
      const auto receive = [&] {
        std::vector<std::byte> some(kRing);
        const ssize_t n = link.receiver.receive(some);
        if (n > 0) got.insert(got.end(), some.begin(), some.begin() + n);
      };
      for (size_t rounds = 1 + random() % 12; rounds != 0 && got.size() < all; --rounds) {
        SendRuns runs;
        outgoing.collect(runs);
        const size_t before = runs.left();
        if (before != 0 && runs.send(link.sender)) outgoing.sent(before - runs.left());
        receive();
      }
      // The receiver keeps whole frames only.
      got.resize(got.size() / kFrame * kFrame);
      if (got.size() > outgoing.position()) ++ahead;
      CHECK(outgoing.resumeAt(got.size()));
    }
    CHECK(std::equal(got.begin(), got.end(), bytes.begin()));
  }
  CHECK(ahead > 10);
}

}  // namespace
}  // namespace millpond
