// SPDX-License-Identifier: Apache-2.0
// The first exchange on a data connection: one Hello, one Welcome.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace millpond {

enum class Carrier : uint32_t { kSharedMemory = 0, kTcp = 1 };

/// Client → worker.
struct Hello {
  uint32_t protocol = 0;
  uint64_t apiHash = 0;
  Carrier carrier = Carrier::kSharedMemory;
  uint32_t pid = 0;      ///< of the client in its own pid namespace
  std::string ticket;    ///< at most kMaxTicket
  std::string program;   ///< for people, at most kMaxProgram
};

enum class Admission : uint32_t {
  kWelcome = 0,
  kProtocolMismatch = 1,
  kApiMismatch = 2,
  kTicketRefused = 3,
  kTicketExpired = 4,
  kNoSession = 5,   ///< this worker has no session assigned
  kBusy = 6,        ///< its session already has its client
  kFailed = 7,      ///< the worker could not set the session up
};

/// Worker → client.
struct Welcome {
  uint32_t protocol = 0;
  uint64_t apiHash = 0;
  Admission admission = Admission::kWelcome;
  std::string message;              ///< why not, for people
  std::vector<std::byte> snapshot;  ///< Snapshot::encode
};

inline constexpr size_t kMaxTicket = 8192;
inline constexpr size_t kMaxProgram = 256;
inline constexpr size_t kMaxSnapshot = size_t{1} << 20;
inline constexpr size_t kMaxMessage = 4096;

/// A Hello is a fixed part, which tells the size of the rest.
inline constexpr size_t kHelloFixedBytes = 40;
inline constexpr size_t kWelcomeFixedBytes = 40;

std::vector<std::byte> encode(const Hello& hello);
std::vector<std::byte> encode(const Welcome& welcome);
/// Bytes behind the fixed part, or why this is no Hello of ours.
Result<size_t> helloRest(std::span<const std::byte, kHelloFixedBytes> fixed);
Result<Hello> decodeHello(std::span<const std::byte> bytes);
Result<size_t> welcomeRest(std::span<const std::byte, kWelcomeFixedBytes> fixed);
Result<Welcome> decodeWelcome(std::span<const std::byte> bytes);

/// Compares without telling by its time where the first difference is.
bool equalSecrets(const std::string& a, const std::string& b);

}  // namespace millpond
