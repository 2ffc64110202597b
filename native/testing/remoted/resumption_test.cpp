// SPDX-License-Identifier: Apache-2.0
// Connections that a test makes itself: resumption of a session by its secret, and the violations that end one.
#include <sys/socket.h>

#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "base/errors/coded_error.h"
#include "protocol/gen/api_hash.h"
#include "protocol/gen/commands.h"
#include "protocol/handshake/handshake.h"
#include "protocol/wire.h"
#include "testing/remoted.h"
#include "testing/remoted/broken_link.h"

using namespace millpond;
using namespace millpond::testing;

namespace {

struct Connection {
  UniqueFd socket;
  Welcome welcome;
};

Connection greet(const WorkerProcess& worker, const Hello& hello) {
  auto socket = connectTcp("127.0.0.1", worker.port());
  CHECK(bool(socket));
  CHECK(bool(sendAll(socket->get(), encode(hello))));
  std::vector<std::byte> bytes(kWelcomeFixedBytes);
  constexpr int kPatienceMs = 60'000;
  CHECK(bool(receiveExactly(socket->get(), bytes, kPatienceMs)));
  auto rest = welcomeRest(std::span(bytes).first<kWelcomeFixedBytes>());
  CHECK(bool(rest));
  bytes.resize(kWelcomeFixedBytes + *rest);
  CHECK(bool(receiveExactly(socket->get(), std::span(bytes).subspan(kWelcomeFixedBytes), kPatienceMs)));
  auto welcome = decodeWelcome(bytes);
  CHECK(bool(welcome));
  return {std::move(*socket), std::move(*welcome)};
}

Hello begins() { return {wire::kProtocolVersion, kApiHash, Carrier::kTcp, 1, "t", "by hand", 86'400, "elsewhere", {}}; }
Hello comesBack(const SessionSecret& secret, uint64_t received, uint32_t attempt) {
  Hello hello = begins();
  hello.ticket.clear();
  hello.resumption = Resumption{secret, received, attempt};
  return hello;
}

/// A round trip: the command, and the complete reply.
void ask(const UniqueFd& socket) {
  const wire::CommandHeader marker{16, static_cast<uint16_t>(cmd::Op::kMarker), 0, 1, 1};
  CHECK(bool(sendAll(socket.get(), std::as_bytes(std::span(&marker, 1)))));
  wire::ReplyHeader reply{};
  CHECK(bool(receiveExactly(socket.get(), std::as_writable_bytes(std::span(&reply, 1)), 60'000)));
  CHECK(reply.kind == wire::ReplyKind::kResult);
  CHECK_EQ(reply.request, 1u);
  CHECK_EQ(reply.bytes, sizeof(reply));
}

void sayGoodbye(const UniqueFd& socket) {
  struct {
    wire::CommandHeader header{sizeof(wire::CommandHeader) + sizeof(wire::LinkWord), wire::kLinkOp, 0, 0, 0};
    wire::LinkWord word{wire::LinkMessage::kGoodbye, 0, 0};
  } const goodbye;
  CHECK(bool(sendAll(socket.get(), std::as_bytes(std::span(&goodbye, 1)))));
}

bool isClosed(const UniqueFd& socket) {
  char c;
  ssize_t n;
  do n = ::recv(socket.get(), &c, 1, 0);
  while (n < 0 && errno == EINTR);
  return n <= 0;
}

}  // namespace

TEST("only who has the secret comes back, once by each connection, and to what is next") {
  Broken broken;
  Connection first = greet(*broken.worker, begins());
  CHECK(first.welcome.admission == Admission::kWelcome);
  CHECK_EQ(first.welcome.graceSeconds, 300u);  // as in the node
  CHECK_EQ(first.welcome.pid, 0u);
  const SessionSecret& secret = first.welcome.secret;
  ask(first.socket);

  SessionSecret wrong = secret;
  wrong[31] ^= std::byte{1};
  Connection stranger = greet(*broken.worker, comesBack(wrong, 0, 1));
  CHECK(stranger.welcome.admission == Admission::kTicketRefused);
  CHECK_EQ(stranger.welcome.message, codedText(codes::kTicketInvalid, "the secret does not belong to this session"));
  CHECK(greet(*broken.worker, comesBack({}, 0, 1)).welcome.admission == Admission::kTicketRefused);
  CHECK(greet(*broken.worker, begins()).welcome.admission == Admission::kBusy);
  ask(first.socket);  // no session was affected

  // The worker need not know yet that the connection was lost. One reply is requested again.
  Connection second = greet(*broken.worker, comesBack(secret, 16, 1));
  CHECK(second.welcome.admission == Admission::kWelcome);
  CHECK_EQ(second.welcome.received, 32u);
  CHECK(isClosed(first.socket));
  wire::ReplyHeader again{};
  CHECK(bool(receiveExactly(second.socket.get(), std::as_writable_bytes(std::span(&again, 1)), 60'000)));
  CHECK_EQ(again.bytes, sizeof(again));
  ask(second.socket);

  // An attempt that arrives late takes over nothing.
  CHECK(greet(*broken.worker, comesBack(secret, 32, 1)).welcome.admission == Admission::kBusy);
  ask(second.socket);
  Connection third = greet(*broken.worker, comesBack(secret, 64, 7));
  CHECK(third.welcome.admission == Admission::kWelcome);
  CHECK_EQ(third.welcome.received, 64u);
  ask(third.socket);
  third.socket.reset();
  Connection fourth = greet(*broken.worker, comesBack(secret, 80, 8));
  ask(fourth.socket);
  sayGoodbye(fourth.socket);
  fourth.socket.reset();
  std::string said;
  CHECK_EQ(broken.worker->wait(said), 0);
  CHECK_EQ(timesIn(said, "the client is back"), 3u);
}

TEST("who comes back for what never was ends the session") {
  Broken broken;
  Connection first = greet(*broken.worker, begins());
  ask(first.socket);
  auto socket = connectTcp("127.0.0.1", broken.worker->port());
  CHECK(bool(socket));
  CHECK(bool(sendAll(socket->get(), encode(comesBack(first.welcome.secret, 4096, 1)))));
  std::string said;
  CHECK_EQ(broken.worker->wait(said), 3);
  CHECK_EQ(timesIn(said, "came back for replies behind offset 4096"), 1u);
}

TEST("a client that acknowledges what was never sent ends its session") {
  Broken broken;
  Connection first = greet(*broken.worker, begins());
  struct {
    wire::CommandHeader header{sizeof(wire::CommandHeader) + sizeof(wire::LinkWord), wire::kLinkOp, 0, 0, 0};
    wire::LinkWord word{wire::LinkMessage::kReceived, 0, 8};
  } const lie;
  CHECK(bool(sendAll(first.socket.get(), std::as_bytes(std::span(&lie, 1)))));
  std::string said;
  CHECK_EQ(broken.worker->wait(said), 3);
  CHECK_EQ(timesIn(said, "a malformed frame of the link"), 1u);
}
