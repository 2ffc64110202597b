// SPDX-License-Identifier: Apache-2.0
#include "protocol/transport/outgoing.h"

#include <sys/socket.h>

#include <cstring>
#include <random>

#include "testing/check.h"

namespace millpond {
namespace {

constexpr size_t kRing = size_t{1} << 16;

/// A ring with its own memory, mapped once: data that wraps around is written twice, as in the two mappings.
struct Ring {
  RingControl control{};
  std::vector<std::byte> bytes = std::vector<std::byte>(2 * kRing);
  RingProducer producer{control, bytes.data(), kRing};
  Outgoing outgoing{RingConsumer(control, bytes.data(), kRing)};

  void write(std::span<const std::byte> run) {
    for (size_t i = 0; i < run.size(); ++i) {
      const size_t at = (producer.head() + i) % kRing;
      bytes[at] = bytes[at + kRing] = run[i];
    }
    producer.advance(run.size());
    producer.publish();
  }
};

/// Everything that is collected, as if a socket had accepted it.
std::vector<std::byte> collected(Outgoing& outgoing) {
  SendRuns runs;
  outgoing.collect(runs);
  std::vector<std::byte> out(runs.left());
  int pair[2];
  CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  Channel writer(UniqueFd{pair[0]});
  UniqueFd reader(pair[1]);
  size_t got = 0;
  while (got < out.size()) {
    if (!runs.done()) runs.send(writer);
    const ssize_t n = ::recv(reader.get(), out.data() + got, out.size() - got, MSG_DONTWAIT);
    if (n > 0) got += static_cast<size_t>(n);
  }
  return out;
}

TEST("whatever is sent, acknowledged and sent again is the stream, in order") {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    std::minstd_rand random(seed);
    Ring ring;
    Outgoing& outgoing = ring.outgoing;
    std::vector<std::byte> stream;    // everything that was ever passed in
    std::vector<uint64_t> frames{0};  // where frames end
    std::deque<std::vector<std::byte>> lent;
    uint64_t most = 0;  // the largest offset that was sent
    const auto fresh = [&](size_t bytes) {
      std::vector<std::byte> out(bytes);
      for (auto& each : out) each = static_cast<std::byte>(random());
      return out;
    };
    const auto appendFrame = [&] {
      const auto head = fresh(8 * (1 + random() % 20));
      if (!ring.producer.hasSpace(head.size())) return;
      ring.write(head);
      stream.insert(stream.end(), head.begin(), head.end());
      if (random() % 2) {
        auto data = fresh(1 + random() % 3000);
        stream.insert(stream.end(), data.begin(), data.end());
        stream.resize(wire::padded(stream.size()));
        if (random() % 2) {
          outgoing.append(ring.producer.head(), std::move(data));
        } else {
          lent.push_back(std::move(data));
          outgoing.lend(ring.producer.head(), lent.back());
        }
      }
      frames.push_back(stream.size());
    };
    for (int step = 0; step < 400; ++step) {
      switch (random() % 4) {
        case 0: appendFrame(); break;
        case 1: {
          const auto bytes = collected(outgoing);
          CHECK(outgoing.pending() == !bytes.empty());
          CHECK(outgoing.position() + bytes.size() <= stream.size());
          CHECK(std::equal(bytes.begin(), bytes.end(), stream.begin() + static_cast<ptrdiff_t>(outgoing.position())));
          most = std::max(most, outgoing.position() + bytes.size());
          // A TLS stream may have sent some of them and not say so.
          if (!bytes.empty() && random() % 4) outgoing.sent(1 + random() % bytes.size());
          break;
        }
        case 2: {
          const uint64_t to = frames[random() % frames.size()];
          const bool possible = to >= outgoing.acknowledged() && to <= most;
          CHECK_EQ(outgoing.acknowledge(to), possible);
          if (possible) CHECK_EQ(outgoing.acknowledged(), to);
          CHECK(!possible || outgoing.position() >= to);
          break;
        }
        default: {
          if (random() % 4) break;
          const uint64_t to = frames[random() % frames.size()];
          const bool possible = to >= outgoing.acknowledged() && to <= most;
          CHECK_EQ(outgoing.resumeAt(to), possible);
          if (possible) most = to;
          if (possible) CHECK_EQ(outgoing.position(), to);
        }
      }
      CHECK_EQ(outgoing.end(), stream.size());
    }
    while (outgoing.pending()) outgoing.sent(collected(outgoing).size());
    CHECK_EQ(outgoing.position(), stream.size());
    CHECK(outgoing.acknowledge(stream.size()));
    CHECK_EQ(outgoing.ownBytes(), 0u);
    CHECK_EQ(ring.producer.space(), kRing);
  }
}

TEST("an acknowledgement inside lent bytes, or of bytes that were not collected, is refused") {
  Ring ring;
  const std::vector<std::byte> data(1000);
  ring.write(std::span(data).first(16));
  ring.outgoing.lend(ring.producer.head(), data);
  CHECK(!ring.outgoing.acknowledge(16));
  ring.outgoing.sent(16 + 1000);
  CHECK(!ring.outgoing.acknowledge(16 + 500));
  CHECK(!ring.outgoing.resumeAt(16 + 1008));
  CHECK(ring.outgoing.acknowledge(0));
  CHECK(ring.outgoing.acknowledge(16 + 1000));
  CHECK(!ring.outgoing.acknowledge(0));
}

}  // namespace
}  // namespace millpond
