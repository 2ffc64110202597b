// SPDX-License-Identifier: Apache-2.0
// transport-bench unix PATH TICKET ROUNDS | tcp HOST PORT TICKET ROUNDS | link MIB ROUNDS; MILLPOND_LINK_SECRET encrypts the
// second. The third measures a connection alone, in clear and encrypted: seconds for a GiB. `relay PORT MICROSECONDS` delays a
// worker's connections like a network, each way, until standard input ends.
// The cost of the command stream by itself: no client library, and commands that the driver has next to nothing to do with.
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "bench/delay_relay.h"
#include "bench/link_speed.h"
#include "bench/report.h"
#include "protocol/client/session_client.h"
#include "protocol/gen/commands.h"

namespace {

using namespace millpond;
using namespace millpond::bench;

constexpr char kUsage[] =
    "usage: transport-bench unix PATH TICKET ROUNDS | tcp HOST PORT TICKET ROUNDS | link MIB ROUNDS | "
    "relay PORT MICROSECONDS";
constexpr int kBurst = 1000;
constexpr int kRoundTrips = 100;

template <typename T>
T number(std::string_view text) {
  T value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value == T{0}) fail(kUsage);
  return value;
}

void measure(Session& session, int rounds, Report& report) {
  constexpr auto kMarker = static_cast<uint16_t>(cmd::Marker::kOp);
  // One without a reply, which may therefore be posted.
  constexpr auto kPosted = static_cast<uint16_t>(cmd::ContextSetCacheConfig::kOp);
  const auto nothing = [](std::byte*) {};
  const auto preferNone = [](std::byte* body) {
    const cmd::ContextSetCacheConfig command;
    std::memcpy(body, &command, sizeof(command));
  };
  const Session::Caller caller{};
  const auto roundTrip = [&] {
    Session::Answer answer;
    if (const int32_t result = session.wait(kMarker, caller, 0, nothing, answer); result != 0)
      fail("a marker answered " + std::to_string(result));
  };
  for (int round = -1; round < rounds; ++round) {
    const int64_t start = now();
    for (int i = 0; i < kBurst; ++i)
      if (!session.post(kPosted, caller, sizeof(cmd::ContextSetCacheConfig), preferNone)) fail("the session was lost");
    const int64_t posted = now();
    roundTrip();
    const int64_t begun = now();
    for (int i = 0; i < kRoundTrips; ++i) roundTrip();
    const int64_t finished = now();
    if (round < 0) continue;  // the first round warms caches up
    report.add("post", microsecondsEach(posted - start, kBurst));
    report.add("marker", microsecondsEach(finished - begun, kRoundTrips));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view carrier = argc > 1 ? argv[1] : "";
  if (carrier == "relay" && argc == 4) {
    relayWithDelay(number<uint16_t>(argv[2]), number<int64_t>(argv[3]) * 1000);
    return 0;
  }
  if (carrier == "link" && argc == 4) {
    Report report;
    for (const bool isEncrypted : {false, true})
      measureLink(isEncrypted, number<size_t>(argv[2]), number<int>(argv[3]), report);
    report.print();
    return 0;
  }
  Endpoint endpoint;
  if (carrier == "unix" && argc == 5) {
    endpoint.unixPath = argv[2];
  } else if (carrier == "tcp" && argc == 6) {
    endpoint.tcpHost = argv[2];
    endpoint.tcpPort = number<uint16_t>(argv[3]);
    endpoint.graceSeconds = 60;  // as in programs
    const char* secret = std::getenv("MILLPOND_LINK_SECRET");
    if (secret && *secret) endpoint.secret = parseHex32(secret);
  } else {
    fail(kUsage);
  }
  endpoint.ticket = argv[argc - 2];
  endpoint.program = "transport-bench";
  auto session = Session::connect(endpoint);
  if (!session) fail(session.error().message);
  Report report;
  measure(**session, number<int>(argv[argc - 1]), report);
  report.print();
  return 0;
}
