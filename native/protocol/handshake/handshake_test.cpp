// SPDX-License-Identifier: Apache-2.0
#include "protocol/handshake/handshake.h"

#include <cstring>
#include <random>

#include "testing/check.h"

namespace millpond {
namespace {

Hello someHello() {
  return {7,   0x1122334455667788ULL, Carrier::kTcp, 4242, "mpt1.payload.signature", "vectoradd", 60, "boot/pid", {},
          true};
}

Hello someReturn() {
  Hello hello = someHello();
  hello.ticket.clear();
  hello.resumption = Resumption{{}, 0x1020304050607080ULL, 9};
  hello.isParked = true;
  for (size_t i = 0; i < hello.resumption->secret.size(); ++i)
    hello.resumption->secret[i] = static_cast<std::byte>(i * 7);
  return hello;
}

Welcome someWelcome() {
  Welcome w{7, 0x8877665544332211ULL, Admission::kTicketExpired, "the ticket has expired", {}, 45, 77, 1 << 20, {}};
  w.secret.fill(std::byte{0x5a});
  for (int i = 0; i < 1000; ++i) w.snapshot.push_back(static_cast<std::byte>(i));
  return w;
}

void checkEqual(const Hello& a, const Hello& b) {
  CHECK_EQ(a.protocol, b.protocol);
  CHECK_EQ(a.apiHash, b.apiHash);
  CHECK(a.carrier == b.carrier);
  CHECK_EQ(a.pid, b.pid);
  CHECK_EQ(a.ticket, b.ticket);
  CHECK_EQ(a.program, b.program);
  CHECK_EQ(a.graceSeconds, b.graceSeconds);
  CHECK_EQ(a.processSpace, b.processSpace);
  CHECK_EQ(a.canPark, b.canPark);
  CHECK_EQ(a.isParked, b.isParked);
  CHECK_EQ(a.resumption.has_value(), b.resumption.has_value());
  if (!a.resumption) return;
  CHECK(a.resumption->secret == b.resumption->secret);
  CHECK_EQ(a.resumption->received, b.resumption->received);
  CHECK_EQ(a.resumption->attempt, b.resumption->attempt);
}

std::span<const std::byte, kHelloFixedBytes> fixedPart(const std::vector<std::byte>& bytes) {
  static_assert(kHelloFixedBytes == kWelcomeFixedBytes);
  return std::span(bytes).first<kHelloFixedBytes>();
}

TEST("a greeting arrives as it was sent") {
  for (const Hello& hello : {someHello(), someReturn(), Hello{},
                             Hello{~0u,
                                   ~uint64_t{0},
                                   Carrier::kSharedMemory,
                                   ~0u,
                                   std::string(kMaxTicket, 't'),
                                   std::string(kMaxProgram, '\0'),
                                   ~0u,
                                   std::string(kMaxProcessSpace, 's'),
                                   {}}}) {
    const auto bytes = encode(hello);
    CHECK_EQ(*helloRest(fixedPart(bytes)), bytes.size() - kHelloFixedBytes);
    auto read = decodeHello(bytes);
    CHECK(bool(read));
    checkEqual(*read, hello);
  }
}

TEST("an answer arrives as it was sent") {
  for (uint32_t admission = 0; admission <= static_cast<uint32_t>(Admission::kFailed); ++admission) {
    Welcome welcome = someWelcome();
    welcome.admission = static_cast<Admission>(admission);
    const auto bytes = encode(welcome);
    CHECK_EQ(*welcomeRest(fixedPart(bytes)), bytes.size() - kWelcomeFixedBytes);
    auto read = decodeWelcome(bytes);
    CHECK(bool(read));
    CHECK_EQ(read->protocol, welcome.protocol);
    CHECK_EQ(read->apiHash, welcome.apiHash);
    CHECK(read->admission == welcome.admission);
    CHECK_EQ(read->message, welcome.message);
    CHECK(read->snapshot == welcome.snapshot);
    CHECK_EQ(read->graceSeconds, welcome.graceSeconds);
    CHECK_EQ(read->pid, welcome.pid);
    CHECK_EQ(read->received, welcome.received);
    CHECK(read->secret == welcome.secret);
  }
  Welcome largest{1, 2, Admission::kWelcome, std::string(kMaxMessage, 'm'), {}, 0, 0, 0, {}};
  largest.snapshot.resize(kMaxSnapshot);
  CHECK(bool(decodeWelcome(encode(largest))));
}

TEST("every cut and every addition is refused") {
  const auto hello = encode(someHello());
  const auto welcome = encode(someWelcome());
  for (size_t n = 0; n < hello.size(); ++n) CHECK(!decodeHello(std::span(hello).first(n)));
  for (size_t n = 0; n < welcome.size(); ++n) CHECK(!decodeWelcome(std::span(welcome).first(n)));
  auto longer = hello;
  longer.push_back(std::byte{0});
  CHECK_EQ(decodeHello(longer).error().message, "the greeting has the wrong length");
  longer = welcome;
  longer.push_back(std::byte{0});
  CHECK(!decodeWelcome(longer));
}

TEST("any flipped bit gives another greeting of legal size, or none") {
  const Hello hello = someReturn();
  const auto bytes = encode(hello);
  size_t refused = 0;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    auto read = decodeHello(flipped);
    if (!read) {
      CHECK(!read.error().message.empty());
      ++refused;
      continue;
    }
    CHECK(read->ticket.size() <= kMaxTicket && read->program.size() <= kMaxProgram);
    CHECK_EQ(read->ticket.size() + read->program.size() + read->processSpace.size(),
             hello.ticket.size() + hello.program.size() + hello.processSpace.size());
    CHECK(read->carrier == Carrier::kSharedMemory || read->carrier == Carrier::kTcp);
  }
  // Magic, carrier (but for one bit) and the three lengths.
  CHECK(refused >= 64 + 31 + 96);
}

TEST("no bytes at all make it read outside of them") {
  std::minstd_rand random(17);
  const auto hello = encode(someHello());
  const auto welcome = encode(someWelcome());
  for (int round = 0; round < 20'000; ++round) {
    // Garbage after the right magic, in a block of its own size so that a sanitizer detects any read beyond it.
    auto garbage = round % 2 ? hello : welcome;
    garbage.resize(8 + random() % garbage.size());
    for (size_t i = 8; i < garbage.size(); ++i)
      if (random() % 4 == 0) garbage[i] = static_cast<std::byte>(random());
    garbage.shrink_to_fit();
    if (auto read = decodeHello(garbage))
      CHECK(kHelloFixedBytes + read->ticket.size() + read->program.size() + read->processSpace.size() <=
            garbage.size());
    if (auto read = decodeWelcome(garbage))
      CHECK(kWelcomeFixedBytes + read->message.size() + read->snapshot.size() <= garbage.size());
  }
}

TEST("more than allowed is refused before it is received") {
  Hello hello = someHello();
  hello.ticket.assign(kMaxTicket + 1, 't');
  CHECK_EQ(helloRest(fixedPart(encode(hello))).error().message,
           "the greeting announces 8193 bytes of ticket and 9 of program name, more than allowed");
  hello = someHello();
  hello.program.assign(kMaxProgram + 1, 'p');
  CHECK(!helloRest(fixedPart(encode(hello))));

  hello = someHello();
  hello.processSpace.assign(kMaxProcessSpace + 1, 's');
  CHECK_EQ(helloRest(fixedPart(encode(hello))).error().message, "the greeting is longer than allowed");

  Welcome welcome = someWelcome();
  welcome.message.assign(kMaxMessage + 1, 'm');
  CHECK(!welcomeRest(fixedPart(encode(welcome))));
  welcome = someWelcome();
  welcome.snapshot.resize(kMaxSnapshot + 1);
  CHECK(!welcomeRest(fixedPart(encode(welcome))));

  // Lengths whose sum would wrap around.
  auto bytes = encode(someHello());
  std::memset(bytes.data() + 28, 0xff, 8);
  CHECK(!helloRest(fixedPart(bytes)));
}

TEST("what is no greeting of ours is told apart from a broken one") {
  std::vector<std::byte> http(64, std::byte{'G'});
  CHECK_EQ(decodeHello(http).error().message, "these bytes are not the greeting of a Millpond client");
  CHECK_EQ(decodeWelcome(http).error().message, "the server is not a Millpond worker");
  // Each side refuses the other's message.
  CHECK(!decodeHello(encode(someWelcome())));
  CHECK(!decodeWelcome(encode(someHello())));
  auto odd = encode(someHello());
  odd[12] = std::byte{2};
  CHECK_EQ(decodeHello(odd).error().message, "the greeting asks for an unknown carrier");
  odd = encode(someWelcome());
  odd[12] = std::byte{static_cast<unsigned char>(Admission::kFailed) + 1};
  CHECK_EQ(decodeWelcome(odd).error().message, "the worker's answer is malformed");
}

TEST("another version without a word of the link is understood as far as it goes") {
  auto hello = encode(someHello());
  const uint32_t none = 0;
  std::memcpy(hello.data() + 36, &none, sizeof(none));
  hello.resize(kHelloFixedBytes + *helloRest(fixedPart(hello)));
  auto read = decodeHello(hello);
  CHECK(bool(read));
  CHECK_EQ(read->protocol, 7u);
  CHECK_EQ(read->ticket, someHello().ticket);
  CHECK_EQ(read->graceSeconds, 0u);
  auto welcome = encode(someWelcome());
  std::memset(welcome.data() + 32, 0, 8);
  welcome.resize(kWelcomeFixedBytes + *welcomeRest(fixedPart(welcome)));
  auto answer = decodeWelcome(welcome);
  CHECK(bool(answer));
  CHECK_EQ(answer->message, someWelcome().message);
  CHECK_EQ(answer->graceSeconds, 0u);
}

TEST("secrets are equal or not") {
  CHECK(equalSecrets("", ""));
  CHECK(equalSecrets(std::string("a\0b", 3), std::string("a\0b", 3)));
  CHECK(!equalSecrets("", "a"));
  CHECK(!equalSecrets("abc", "abd"));
  CHECK(!equalSecrets("xbc", "abc"));
  CHECK(!equalSecrets("abc", "abcd"));
  CHECK(!equalSecrets(std::string("a\0b", 3), std::string("a\0c", 3)));
  CHECK(!equalSecrets("\x80", std::string(1, '\0')));
}

}  // namespace
}  // namespace millpond
