// SPDX-License-Identifier: Apache-2.0
#include "protocol/handshake.h"

#include <cstring>

namespace millpond {
namespace {

// "MPNDhelo" and "MPNDwelc" in memory order.
constexpr uint64_t kHelloMagic = 0x6f6c6568444e504dULL;
constexpr uint64_t kWelcomeMagic = 0x636c6577444e504dULL;

struct HelloFixed {
  uint64_t magic;
  uint32_t protocol;
  uint32_t carrier;
  uint64_t apiHash;
  uint32_t pid;
  uint32_t ticketBytes;
  uint32_t programBytes;
  uint32_t reserved;
};
static_assert(sizeof(HelloFixed) == kHelloFixedBytes);

struct WelcomeFixed {
  uint64_t magic;
  uint32_t protocol;
  uint32_t admission;
  uint64_t apiHash;
  uint32_t messageBytes;
  uint32_t snapshotBytes;
  uint64_t reserved;
};
static_assert(sizeof(WelcomeFixed) == kWelcomeFixedBytes);

template <typename Fixed>
Fixed readFixed(std::span<const std::byte> bytes) {
  Fixed fixed;
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  return fixed;
}

template <typename Fixed>
std::vector<std::byte> join(const Fixed& fixed, std::span<const std::byte> a, std::span<const std::byte> b) {
  std::vector<std::byte> out(sizeof(Fixed) + a.size() + b.size());
  std::memcpy(out.data(), &fixed, sizeof(Fixed));
  if (!a.empty()) std::memcpy(out.data() + sizeof(Fixed), a.data(), a.size());
  if (!b.empty()) std::memcpy(out.data() + sizeof(Fixed) + a.size(), b.data(), b.size());
  return out;
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
                         0};
  return join(fixed, std::as_bytes(std::span(hello.ticket)), std::as_bytes(std::span(hello.program)));
}

Result<size_t> helloRest(std::span<const std::byte, kHelloFixedBytes> bytes) {
  const auto fixed = readFixed<HelloFixed>(bytes);
  if (fixed.magic != kHelloMagic) return Error{"these bytes are no greeting of a Millpond client"};
  if (fixed.ticketBytes > kMaxTicket || fixed.programBytes > kMaxProgram)
    return Error{"the greeting announces " + std::to_string(fixed.ticketBytes) + " bytes of ticket and " +
                 std::to_string(fixed.programBytes) + " of program name, more than allowed"};
  return size_t{fixed.ticketBytes} + fixed.programBytes;
}

Result<Hello> decodeHello(std::span<const std::byte> bytes) {
  if (bytes.size() < kHelloFixedBytes) return Error{"the greeting is cut short"};
  auto rest = helloRest(bytes.first<kHelloFixedBytes>());
  if (!rest) return rest.error();
  if (bytes.size() != kHelloFixedBytes + *rest) return Error{"the greeting has the wrong length"};
  const auto fixed = readFixed<HelloFixed>(bytes);
  if (fixed.carrier > static_cast<uint32_t>(Carrier::kTcp)) return Error{"the greeting asks for an unknown carrier"};
  const auto tail = bytes.subspan(kHelloFixedBytes);
  return Hello{fixed.protocol,
               fixed.apiHash,
               static_cast<Carrier>(fixed.carrier),
               fixed.pid,
               text(tail.first(fixed.ticketBytes)),
               text(tail.subspan(fixed.ticketBytes))};
}

std::vector<std::byte> encode(const Welcome& welcome) {
  const WelcomeFixed fixed{kWelcomeMagic,
                           welcome.protocol,
                           static_cast<uint32_t>(welcome.admission),
                           welcome.apiHash,
                           static_cast<uint32_t>(welcome.message.size()),
                           static_cast<uint32_t>(welcome.snapshot.size()),
                           0};
  return join(fixed, std::as_bytes(std::span(welcome.message)), welcome.snapshot);
}

Result<size_t> welcomeRest(std::span<const std::byte, kWelcomeFixedBytes> bytes) {
  const auto fixed = readFixed<WelcomeFixed>(bytes);
  if (fixed.magic != kWelcomeMagic) return Error{"what answers there is no Millpond worker"};
  if (fixed.messageBytes > kMaxMessage || fixed.snapshotBytes > kMaxSnapshot)
    return Error{"the worker's answer is larger than allowed"};
  return size_t{fixed.messageBytes} + fixed.snapshotBytes;
}

Result<Welcome> decodeWelcome(std::span<const std::byte> bytes) {
  if (bytes.size() < kWelcomeFixedBytes) return Error{"the worker's answer is cut short"};
  auto rest = welcomeRest(bytes.first<kWelcomeFixedBytes>());
  if (!rest) return rest.error();
  if (bytes.size() != kWelcomeFixedBytes + *rest) return Error{"the worker's answer has the wrong length"};
  const auto fixed = readFixed<WelcomeFixed>(bytes);
  if (fixed.admission > static_cast<uint32_t>(Admission::kFailed)) return Error{"the worker's answer makes no sense"};
  const auto tail = bytes.subspan(kWelcomeFixedBytes);
  const auto snapshot = tail.subspan(fixed.messageBytes);
  return Welcome{fixed.protocol, fixed.apiHash, static_cast<Admission>(fixed.admission),
                 text(tail.first(fixed.messageBytes)), {snapshot.begin(), snapshot.end()}};
}

bool equalSecrets(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned>(static_cast<unsigned char>(b[i]));
  return difference == 0;
}

}  // namespace millpond
