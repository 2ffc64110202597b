// SPDX-License-Identifier: Apache-2.0
#include "protocol/rings/ring.h"

#include <sys/wait.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "testing/check.h"

namespace millpond {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kStreamBytes = uint64_t{12} << 20;
#else
constexpr uint64_t kStreamBytes = uint64_t{96} << 20;
#endif
/// A sleep of this length was never ended by the other side.
constexpr int64_t kLostWakeupNs = 20'000'000'000;

SessionMemory makeMemory() {
  auto memory = SessionMemory::create();
  CHECK(bool(memory));
  return std::move(*memory);
}

/// The byte at an offset of the test's stream.
std::byte expected(uint64_t offset) { return static_cast<std::byte>((offset * 0x9E3779B97F4A7C15ULL) >> 56); }

/// The behaviour of one end of a ring: sizes of its steps, and occasional pauses in which the other end must sleep.
class Rhythm {
 public:
  explicit Rhythm(uint32_t seed) : random_(seed) {}
  size_t step(size_t most) {
    const size_t scale = size_t{1} << (random_() % 19);
    return std::min(most, 1 + random_() % scale);
  }
  void mayPause() {
    if (random_() % 64) return;
    const int64_t end = monotonicNs() + static_cast<int64_t>(random_() % 200'000);
    while (monotonicNs() < end) cpuRelax();
  }

 private:
  std::minstd_rand random_;
};

/// Writes the stream; returns how often it had to sleep.
uint64_t produce(RingProducer ring, uint64_t total, uint32_t seed) {
  Rhythm rhythm(seed);
  uint64_t sleeps = 0;
  for (uint64_t at = 0; at < total;) {
    const size_t n = rhythm.step(std::min<size_t>(ring.capacity(), total - at));
    while (!ring.hasSpace(n)) {
      const int64_t start = monotonicNs();
      ring.sleepForSpace(n, kLostWakeupNs);
      CHECK(monotonicNs() - start < kLostWakeupNs / 2);
      ++sleeps;
    }
    CHECK(ring.space() >= n);
    std::byte* place = ring.place();
    for (size_t i = 0; i < n; ++i) place[i] = expected(at + i);
    ring.advance(n);
    ring.publish();
    at += n;
    rhythm.mayPause();
  }
  return sleeps;
}

/// Reads the stream to its end and compares; returns how often it had to sleep, or -1 for a wrong byte.
int64_t consume(RingConsumer ring, uint64_t total, uint32_t seed) {
  Rhythm rhythm(seed);
  int64_t sleeps = 0;
  for (uint64_t at = 0; at < total;) {
    size_t n = ring.available(1);
    while (n == 0) {
      const int64_t start = monotonicNs();
      ring.sleep(kLostWakeupNs);
      if (monotonicNs() - start > kLostWakeupNs / 2) return -1;
      ++sleeps;
      n = ring.available(1);
    }
    if (n > ring.capacity()) return -1;
    n = rhythm.step(n);
    const std::byte* data = ring.data();
    for (size_t i = 0; i < n; ++i)
      if (data[i] != expected(at + i)) return -1;
    ring.skip(n);
    at += n;
    // Not every step is released immediately: copies may still read it.
    if (at == total || ring.position() - ring.released() > ring.capacity() / 3 || ring.available() == 0)
      ring.release(ring.position());
    rhythm.mayPause();
  }
  return sleeps;
}

TEST("a stream crosses two threads byte for byte, with both ends sleeping") {
  int64_t sleeps = 0;
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    SessionMemory memory = makeMemory();
    RingControl& control = memory.control().reply;
    int64_t consumed = 0;
    std::thread consumer([&] {
      consumed = consume(RingConsumer(control, memory.reply(), wire::kReplyBytes), kStreamBytes / 3, seed * 7919);
    });
    const uint64_t slept = produce(RingProducer(control, memory.reply(), wire::kReplyBytes), kStreamBytes / 3, seed);
    consumer.join();
    CHECK(consumed >= 0);
    sleeps += consumed + static_cast<int64_t>(slept);
    CHECK_EQ(control.head.load(), kStreamBytes / 3);
    CHECK_EQ(control.tail.load(), kStreamBytes / 3);
  }
  CHECK(sleeps > 10);
}

TEST("a stream crosses two processes byte for byte") {
  SessionMemory memory = makeMemory();
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    // A mapping of its own, as a client has it.
    auto mapped = SessionMemory::map(UniqueFd(::dup(memory.file())));
    if (!mapped) std::_Exit(2);
    RingConsumer ring(mapped->control().submit, mapped->submit(), wire::kSubmitBytes);
    std::_Exit(consume(ring, kStreamBytes / 2, 11) < 0 ? 1 : 0);
  }
  produce(RingProducer(memory.control().submit, memory.submit(), wire::kSubmitBytes), kStreamBytes / 2, 12);
  int status = -1;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}

TEST("a ring takes exactly its capacity") {
  SessionMemory memory = makeMemory();
  RingControl& control = memory.control().reply;
  RingProducer producer(control, memory.reply(), wire::kReplyBytes);
  RingConsumer consumer(control, memory.reply(), wire::kReplyBytes);
  CHECK(producer.hasSpace(wire::kReplyBytes));
  CHECK(!producer.hasSpace(wire::kReplyBytes + 1));
  producer.advance(wire::kReplyBytes);
  CHECK_EQ(consumer.available(), 0u);  // nothing is published yet
  producer.publish();
  CHECK_EQ(producer.space(), 0u);
  CHECK(!producer.hasSpace(1));
  CHECK_EQ(consumer.available(), wire::kReplyBytes);
  consumer.skip(10);
  CHECK(!producer.hasSpace(1));  // read is not released
  consumer.release(consumer.position());
  CHECK_EQ(producer.space(), 10u);
  CHECK(producer.hasSpace(10));
  CHECK(!producer.hasSpace(11));
}

TEST("a run that crosses the end of a ring is contiguous") {
  SessionMemory memory = makeMemory();
  RingControl& control = memory.control().submit;
  RingProducer producer(control, memory.submit(), wire::kSubmitBytes);
  RingConsumer consumer(control, memory.submit(), wire::kSubmitBytes);
  producer.advance(wire::kSubmitBytes - 3);
  producer.publish();
  consumer.skip(wire::kSubmitBytes - 3);
  consumer.release(consumer.position());
  const std::vector<std::byte> run(4096, std::byte{0x5a});
  CHECK(producer.hasSpace(run.size()));
  std::copy(run.begin(), run.end(), producer.place());
  producer.advance(run.size());
  producer.publish();
  CHECK_EQ(consumer.available(), run.size());
  CHECK(std::equal(run.begin(), run.end(), consumer.data()));
  // Its end is at the beginning of the memory.
  CHECK(memory.submit()[0] == std::byte{0x5a} && memory.submit()[4092] == std::byte{0x5a});
}

TEST("a ring that is taken up in the middle of a stream knows its room") {
  SessionMemory memory = makeMemory();
  RingControl& control = memory.control().reply;
  control.head.store(5 * wire::kReplyBytes + 100);
  control.tail.store(5 * wire::kReplyBytes + 60);
  RingProducer producer(control, memory.reply(), wire::kReplyBytes);
  RingConsumer consumer(control, memory.reply(), wire::kReplyBytes);
  CHECK_EQ(consumer.available(), 40u);
  CHECK(producer.hasSpace(wire::kReplyBytes - 40));
  CHECK(!producer.hasSpace(wire::kReplyBytes - 39));
}

TEST("a sleep ends when its time is over") {
  SessionMemory memory = makeMemory();
  RingProducer producer(memory.control().reply, memory.reply(), wire::kReplyBytes);
  RingConsumer consumer(memory.control().reply, memory.reply(), wire::kReplyBytes);
  producer.advance(wire::kReplyBytes);
  producer.publish();
  producer.sleepForSpace(1, 1'000'000);
  consumer.skip(wire::kReplyBytes);
  consumer.sleep(1'000'000);
  CHECK_EQ(memory.control().reply.consumerState.load(), 0u);
  CHECK_EQ(memory.control().reply.producerSleeps.load(), 0u);
}

TEST("a consumer reads the head when what it saw before is not enough") {
  SessionMemory memory = makeMemory();
  RingControl& control = memory.control().submit;
  RingProducer producer(control, memory.submit(), wire::kSubmitBytes);
  RingConsumer consumer(control, memory.submit(), wire::kSubmitBytes);
  producer.advance(64);
  producer.publish();
  CHECK_EQ(consumer.available(16), 64u);
  producer.advance(64);
  producer.publish();
  CHECK_EQ(consumer.available(64), 64u);
  CHECK_EQ(consumer.available(65), 128u);
  consumer.skip(128);
  CHECK_EQ(consumer.available(1), 0u);
  producer.advance(32);
  producer.publish();
  CHECK_EQ(consumer.available(1), 32u);
  // The last 24 bytes are taken back and replaced by 8 others.
  producer.retract(136);
  consumer.retracted();
  CHECK_EQ(consumer.available(9), 8u);
  producer.advance(8);
  producer.publish();
  CHECK_EQ(consumer.available(9), 16u);
}

TEST("a consumer can tell that the head lies") {
  SessionMemory memory = makeMemory();
  RingControl& control = memory.control().submit;
  RingConsumer consumer(control, memory.submit(), wire::kSubmitBytes);
  for (const uint64_t head : {uint64_t{wire::kSubmitBytes} + 1, ~uint64_t{0}, uint64_t{1} << 63}) {
    control.head.store(head);
    CHECK(consumer.available() > consumer.capacity());
  }
  control.head.store(64);
  consumer.skip(64);
  control.head.store(8);  // backwards
  CHECK(consumer.available() > consumer.capacity());
  CHECK(consumer.available(1) > consumer.capacity());
  consumer.skip(8);
  CHECK(consumer.available(1) > consumer.capacity());
}

}  // namespace
}  // namespace millpond
