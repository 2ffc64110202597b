// SPDX-License-Identifier: Apache-2.0
// The first exchange on a data connection: one Hello, one Welcome.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace millpond {

enum class Carrier : uint32_t { kSharedMemory = 0, kTcp = 1 };

using SessionSecret = std::array<std::byte, 32>;

/// The proof by which a client resumes its session after the connection was lost.
struct Resumption {
  SessionSecret secret{};
  uint64_t received = 0;  ///< offset in the worker's stream after the last complete frame
  uint32_t attempt = 0;   ///< higher than any before: an abandoned attempt may still arrive
};

/// The proof by which a client adds a lane to the present connection of its session.
struct LaneClaim {
  SessionSecret secret{};
  uint32_t attempt = 0;  ///< of that connection; 0: the first one
  uint32_t lane = 0;     ///< its number: lanes are added in order
  uint32_t count = 0;    ///< how many there will be
};

/// Client → worker.
struct Hello {
  uint32_t protocol = 0;
  uint64_t apiHash = 0;
  Carrier carrier = Carrier::kSharedMemory;
  uint32_t pid = 0;                           ///< of the client in its own pid namespace
  std::string ticket;                         ///< at most kMaxTicket
  std::string program;                        ///< for display, at most kMaxProgram
  uint32_t graceSeconds = 0;                  ///< how long the session waits for a lost client; 0: not at all
  std::string processSpace = {};              ///< in which `pid` is valid, at most kMaxProcessSpace
  std::optional<Resumption> resumption = {};  ///< instead of a ticket
  bool canPark = false;                       ///< the client attaches again if the session is parked
  bool isParked = false;                      ///< it continues a session that was parked
  std::optional<LaneClaim> lane = {};         ///< instead of a ticket
};

enum class Admission : uint32_t {
  kWelcome = 0,
  kProtocolMismatch = 1,
  kApiMismatch = 2,
  kTicketRefused = 3,
  kTicketExpired = 4,
  kNoSession = 5,  ///< this worker has no session assigned
  kBusy = 6,       ///< its session already has its client
  kFailed = 7,     ///< the worker could not set the session up
};

/// Worker → client.
struct Welcome {
  uint32_t protocol = 0;
  uint64_t apiHash = 0;
  Admission admission = Admission::kWelcome;
  std::string message;              ///< reason of a refusal, for display
  std::vector<std::byte> snapshot;  ///< Snapshot::encode
  uint32_t graceSeconds = 0;        ///< as granted
  uint32_t pid = 0;                 ///< of the worker, 0 to a client in another process space
  uint64_t received = 0;            ///< for a reconnected client: offset after the last complete frame of its stream
  SessionSecret secret{};           ///< for reconnecting
  bool parks = false;               ///< the session may be parked: the client keeps data that only it can restore
};

inline constexpr size_t kMaxTicket = 8192;
inline constexpr size_t kMaxProgram = 256;
inline constexpr size_t kMaxProcessSpace = 256;
inline constexpr size_t kMaxSnapshot = size_t{1} << 20;
inline constexpr size_t kMaxMessage = 4096;

/// Both have a fixed part, which gives the size of the rest and is equal in every version of the protocol, so that a
/// client and a worker of different versions can recognize each other.
inline constexpr size_t kHelloFixedBytes = 40;
inline constexpr size_t kWelcomeFixedBytes = 40;

std::vector<std::byte> encode(const Hello& hello);
std::vector<std::byte> encode(const Welcome& welcome);
/// The number of bytes after the fixed part, or the reason why this is not our Hello.
Result<size_t> helloRest(std::span<const std::byte, kHelloFixedBytes> fixed);
Result<Hello> decodeHello(std::span<const std::byte> bytes);
Result<size_t> welcomeRest(std::span<const std::byte, kWelcomeFixedBytes> fixed);
Result<Welcome> decodeWelcome(std::span<const std::byte> bytes);

/// Compares in constant time.
bool equalSecrets(std::span<const std::byte> a, std::span<const std::byte> b);
inline bool equalSecrets(const std::string& a, const std::string& b) {
  return equalSecrets(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

}  // namespace millpond
