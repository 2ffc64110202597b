// SPDX-License-Identifier: Apache-2.0
#include "protocol/handshake/handshake.h"

#include <cstring>
#include <utility>

namespace millpond {
namespace {

// "MPNDhelo" and "MPNDwelc" in memory order.
constexpr uint64_t kHelloMagic = 0x6f6c6568444e504dULL;
constexpr uint64_t kWelcomeMagic = 0x636c6577444e504dULL;
constexpr uint32_t kCanPark = 1;
constexpr uint32_t kIsParked = 2;
/// Purposes of a hello without a ticket.
constexpr uint32_t kResumes = 1;
constexpr uint32_t kAddsLane = 2;
/// Longer than any grace period.
constexpr uint32_t kParks = uint32_t{1} << 31;

struct HelloFixed {
  uint64_t magic;
  uint32_t protocol;
  uint32_t carrier;
  uint64_t apiHash;
  uint32_t pid;
  uint32_t ticketBytes;
  uint32_t programBytes;
  uint32_t linkBytes;  ///< HelloLink and the process space
};
static_assert(sizeof(HelloFixed) == kHelloFixedBytes);

struct HelloLink {
  uint32_t graceSeconds;
  uint32_t purpose;  ///< 0, kResumes or kAddsLane
  uint32_t attempt;
  uint32_t parking;   ///< of kCanPark and kIsParked
  uint64_t received;  ///< for a lane: its number, and the count of lanes in the upper half
  SessionSecret secret;
};
static_assert(sizeof(HelloLink) == 56);

struct WelcomeFixed {
  uint64_t magic;
  uint32_t protocol;
  uint32_t admission;
  uint64_t apiHash;
  uint32_t messageBytes;
  uint32_t snapshotBytes;
  uint64_t linkBytes;
};
static_assert(sizeof(WelcomeFixed) == kWelcomeFixedBytes);

struct WelcomeLink {
  uint32_t graceSeconds;  ///< with kParks: its length must not change, so that other versions can read the refusal
  uint32_t pid;
  uint64_t received;
  SessionSecret secret;
};
static_assert(sizeof(WelcomeLink) == 48);

template <typename Fixed>
Fixed readFixed(std::span<const std::byte> bytes) {
  Fixed fixed;
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  return fixed;
}

void append(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <typename Fixed>
std::span<const std::byte> bytesOf(const Fixed& fixed) {
  return std::as_bytes(std::span(&fixed, 1));
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::vector<std::byte> encode(const Hello& hello) {
  const HelloFixed fixed{kHelloMagic,
                         hello.protocol,
                         static_cast<uint32_t>(hello.carrier),
                         hello.apiHash,
                         hello.pid,
                         static_cast<uint32_t>(hello.ticket.size()),
                         static_cast<uint32_t>(hello.program.size()),
                         static_cast<uint32_t>(sizeof(HelloLink) + hello.processSpace.size())};
  Resumption claim = hello.resumption.value_or(Resumption{});
  if (hello.lane)
    claim = {hello.lane->secret, hello.lane->lane | uint64_t{hello.lane->count} << 32, hello.lane->attempt};
  const uint32_t purpose = hello.lane ? kAddsLane : hello.resumption ? kResumes : 0;
  const uint32_t parking = (hello.canPark ? kCanPark : 0) | (hello.isParked ? kIsParked : 0);
  const HelloLink link{hello.graceSeconds, purpose, claim.attempt, parking, claim.received, claim.secret};
  std::vector<std::byte> out;
  append(out, bytesOf(fixed));
  append(out, std::as_bytes(std::span(hello.ticket)));
  append(out, std::as_bytes(std::span(hello.program)));
  append(out, bytesOf(link));
  append(out, std::as_bytes(std::span(hello.processSpace)));
  return out;
}

Result<size_t> helloRest(std::span<const std::byte, kHelloFixedBytes> bytes) {
  const auto fixed = readFixed<HelloFixed>(bytes);
  if (fixed.magic != kHelloMagic) return Error{"these bytes are not the greeting of a Millpond client"};
  if (fixed.ticketBytes > kMaxTicket || fixed.programBytes > kMaxProgram)
    return Error{"the greeting announces " + std::to_string(fixed.ticketBytes) + " bytes of ticket and " +
                 std::to_string(fixed.programBytes) + " of program name, more than allowed"};
  // In another version this may be anything.
  if (fixed.linkBytes > sizeof(HelloLink) + kMaxProcessSpace) return Error{"the greeting is longer than allowed"};
  return size_t{fixed.ticketBytes} + fixed.programBytes + fixed.linkBytes;
}

Result<Hello> decodeHello(std::span<const std::byte> bytes) {
  if (bytes.size() < kHelloFixedBytes) return Error{"the greeting is cut short"};
  auto rest = helloRest(bytes.first<kHelloFixedBytes>());
  if (!rest) return rest.error();
  if (bytes.size() != kHelloFixedBytes + *rest) return Error{"the greeting has the wrong length"};
  const auto fixed = readFixed<HelloFixed>(bytes);
  if (fixed.carrier > static_cast<uint32_t>(Carrier::kTcp)) return Error{"the greeting asks for an unknown carrier"};
  auto tail = bytes.subspan(kHelloFixedBytes);
  const auto take = [&tail](size_t n) { return std::exchange(tail, tail.subspan(n)).first(n); };
  Hello hello{fixed.protocol,
              fixed.apiHash,
              static_cast<Carrier>(fixed.carrier),
              fixed.pid,
              text(take(fixed.ticketBytes)),
              text(take(fixed.programBytes)),
              0,
              "",
              std::nullopt};
  // Without it this is a client of an earlier version, and the refusal reports that.
  if (tail.empty()) return hello;
  if (tail.size() < sizeof(HelloLink)) return Error{"the greeting is cut short"};
  const auto link = readFixed<HelloLink>(take(sizeof(HelloLink)));
  hello.graceSeconds = link.graceSeconds;
  hello.processSpace = text(tail);
  hello.canPark = (link.parking & kCanPark) != 0;
  hello.isParked = (link.parking & kIsParked) != 0;
  if (link.purpose == kResumes) hello.resumption = {link.secret, link.received, link.attempt};
  if (link.purpose == kAddsLane)
    hello.lane = {link.secret, link.attempt, static_cast<uint32_t>(link.received),
                  static_cast<uint32_t>(link.received >> 32)};
  return hello;
}

std::vector<std::byte> encode(const Welcome& welcome) {
  const WelcomeFixed fixed{kWelcomeMagic,
                           welcome.protocol,
                           static_cast<uint32_t>(welcome.admission),
                           welcome.apiHash,
                           static_cast<uint32_t>(welcome.message.size()),
                           static_cast<uint32_t>(welcome.snapshot.size()),
                           sizeof(WelcomeLink)};
  const WelcomeLink link{(welcome.graceSeconds & ~kParks) | (welcome.parks ? kParks : 0), welcome.pid, welcome.received,
                         welcome.secret};
  std::vector<std::byte> out;
  append(out, bytesOf(fixed));
  append(out, std::as_bytes(std::span(welcome.message)));
  append(out, welcome.snapshot);
  append(out, bytesOf(link));
  return out;
}

Result<size_t> welcomeRest(std::span<const std::byte, kWelcomeFixedBytes> bytes) {
  const auto fixed = readFixed<WelcomeFixed>(bytes);
  if (fixed.magic != kWelcomeMagic) return Error{"the server is not a Millpond worker"};
  if (fixed.messageBytes > kMaxMessage || fixed.snapshotBytes > kMaxSnapshot || fixed.linkBytes > sizeof(WelcomeLink))
    return Error{"the worker's answer is larger than allowed"};
  return size_t{fixed.messageBytes} + fixed.snapshotBytes + fixed.linkBytes;
}

Result<Welcome> decodeWelcome(std::span<const std::byte> bytes) {
  if (bytes.size() < kWelcomeFixedBytes) return Error{"the worker's answer is cut short"};
  auto rest = welcomeRest(bytes.first<kWelcomeFixedBytes>());
  if (!rest) return rest.error();
  if (bytes.size() != kWelcomeFixedBytes + *rest) return Error{"the worker's answer has the wrong length"};
  const auto fixed = readFixed<WelcomeFixed>(bytes);
  if (fixed.admission > static_cast<uint32_t>(Admission::kFailed)) return Error{"the worker's answer is malformed"};
  const auto tail = bytes.subspan(kWelcomeFixedBytes);
  const auto snapshot = tail.subspan(fixed.messageBytes, fixed.snapshotBytes);
  const auto last = tail.subspan(fixed.messageBytes + size_t{fixed.snapshotBytes});
  // A worker of an earlier version does not mention the link.
  if (!last.empty() && last.size() != sizeof(WelcomeLink)) return Error{"the worker's answer is malformed"};
  const WelcomeLink link = last.empty() ? WelcomeLink{} : readFixed<WelcomeLink>(last);
  return Welcome{fixed.protocol,
                 fixed.apiHash,
                 static_cast<Admission>(fixed.admission),
                 text(tail.first(fixed.messageBytes)),
                 {snapshot.begin(), snapshot.end()},
                 link.graceSeconds & ~kParks,
                 link.pid,
                 link.received,
                 link.secret,
                 (link.graceSeconds & kParks) != 0};
}

bool equalSecrets(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  std::byte difference{};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

}  // namespace millpond
