// SPDX-License-Identifier: Apache-2.0
#include "worker/process/control_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "protocol/futex.h"
#include "protocol/transport/socket.h"
#include "testing/check.h"

namespace millpond::worker {
namespace {

struct Line {
  std::string folder = "/tmp/millpond-control-XXXXXX";
  ControlChannel channel;

  Line() {
    CHECK(::mkdtemp(folder.data()) != nullptr);
    CHECK(bool(channel.listen(path())));
  }
  ~Line() {
    ::unlink(path().c_str());
    ::rmdir(folder.c_str());
  }
  std::string path() const { return folder + "/control.sock"; }
  /// A new agent that the channel has accepted.
  UniqueFd agent() {
    auto socket = connectUnix(path());
    CHECK(bool(socket));
    CHECK(channel.accept());
    CHECK(channel.connected());
    return std::move(*socket);
  }
  std::vector<Json> after(const UniqueFd& agent, const std::string& text) {
    CHECK(bool(sendAll(agent.get(), std::as_bytes(std::span(text)))));
    return channel.receive();
  }
};

/// The data received so far; "closed" if the other side has ended.
std::string readAll(const UniqueFd& socket) {
  std::string out;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::recv(socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n == 0) return out + "closed";
    if (n < 0) return errno == ECONNRESET ? out + "closed" : out;
    out.append(buffer, static_cast<size_t>(n));
  }
}

TEST("only the owner may use the control socket") {
  Line line;
  struct stat info {};
  CHECK_EQ(::stat(line.path().c_str(), &info), 0);
  CHECK_EQ(info.st_mode & 0777u, 0600u);
  CHECK(!line.channel.accept());
  CHECK(!line.channel.connected());
}

TEST("messages come one a line, in pieces or several at once") {
  Line line;
  UniqueFd agent = line.agent();
  CHECK(line.after(agent, "").empty());
  CHECK(line.after(agent, "{\"type\": ").empty());
  CHECK(line.after(agent, "\"close\"}").empty());
  auto messages = line.after(agent, "\n{\"type\":\"a\"}\n[1]\n{\"ty");
  CHECK_EQ(messages.size(), 3u);
  CHECK_EQ(*messages[0].find("type")->string(), "close");
  CHECK_EQ(*messages[1].find("type")->string(), "a");
  messages = line.after(agent, "pe\":\"b\"}\r\n");
  CHECK_EQ(messages.size(), 1u);
  CHECK_EQ(*messages[0].find("type")->string(), "b");
  CHECK(line.channel.connected());
}

TEST("what is no JSON ends the connection, after the messages before it") {
  for (const char* bad : {"{]\n", "\n", "{\"a\":1,\"a\":2}\n", "nonsense\n", "\x80\n", "{} {}\n"}) {
    Line line;
    UniqueFd agent = line.agent();
    const auto messages = line.after(agent, "{\"type\":\"a\"}\n" + std::string(bad) + "{\"type\":\"b\"}\n");
    CHECK_EQ(messages.size(), 1u);
    CHECK(!line.channel.connected());
    CHECK_EQ(readAll(agent), "closed");
    // The next one is accepted.
    UniqueFd next = line.agent();
    CHECK_EQ(line.after(next, "{}\n").size(), 1u);
  }
}

TEST("a line may be 64 KiB long and not a byte longer") {
  const size_t most = size_t{64} << 10;
  const auto message = [](size_t length) {
    const std::string frame = R"({"type":""})";
    return R"({"type":")" + std::string(length - frame.size(), 'x') + "\"}";
  };
  for (const bool ended : {true, false}) {
    Line line;
    UniqueFd agent = line.agent();
    CHECK_EQ(line.after(agent, message(most) + "\n").size(), 1u);
    CHECK(line.channel.connected());
    CHECK(line.after(agent, message(most + 1) + (ended ? "\n" : "")).empty());
    CHECK(!line.channel.connected());
    CHECK_EQ(readAll(agent), "closed");
  }
}

TEST("the newest connection is the agent") {
  Line line;
  UniqueFd first = line.agent();
  CHECK(line.after(first, "{\"type\": \"half").empty());
  UniqueFd second = line.agent();
  CHECK_EQ(readAll(first), "closed");
  // Half a line from the old one is not prepended to the new one's.
  const auto messages = line.after(second, "{\"type\":\"b\"}\n");
  CHECK_EQ(messages.size(), 1u);
  line.channel.send(Json::Object{{"type", "stats"}});
  CHECK_EQ(readAll(second), "{\"type\":\"stats\"}\n");
}

TEST("a closed connection is noticed, its last messages are not lost") {
  Line line;
  UniqueFd agent = line.agent();
  CHECK(bool(sendAll(agent.get(), std::as_bytes(std::span("{\"type\":\"last\"}\n", 16)))));
  agent.reset();
  CHECK_EQ(line.channel.receive().size(), 1u);
  CHECK(!line.channel.connected());
  line.channel.send(Json::Object{{"type", "stats"}});  // to nobody
}

TEST("an agent that does not read is dropped, not waited for") {
  Line line;
  UniqueFd agent = line.agent();
  const Json message = Json::Object{{"type", std::string(10'000, 'x')}};
  const int64_t start = monotonicNs();
  for (int i = 0; i < 10'000 && line.channel.connected(); ++i) line.channel.send(message);
  CHECK(!line.channel.connected());
  CHECK(monotonicNs() - start < 10'000'000'000);
}

TEST("where there is a key, only a connection that shows it takes the agent's place") {
  Line line;
  ControlChannel channel;
  const std::string path = line.folder + "/keyed.sock";
  CHECK(bool(channel.listen(path, "right")));
  const auto caller = [&](const std::string& says) {
    auto socket = connectUnix(path);
    CHECK(bool(socket));
    CHECK_EQ(::send(socket->get(), says.data(), says.size(), 0), static_cast<ssize_t>(says.size()));
    return std::move(*socket);
  };
  const UniqueFd agent = caller("{\"type\":\"attach\",\"key\":\"right\"}\n{\"type\":\"close\"}\n");
  CHECK(channel.accept());
  CHECK_EQ(channel.receive().size(), size_t{1});
  const std::string wrong[] = {"{\"type\":\"close\"}\n",
                               "{\"type\":\"attach\",\"key\":\"wrong\"}\n",
                               "{\"type\":\"attach\",\"key\":\"\"}\n",
                               "[]\n",
                               "\n",
                               std::string(600, 'x')};
  for (const std::string& says : wrong) {
    const UniqueFd other = caller(says);
    CHECK(!channel.accept());
    char byte;
    const ssize_t got = ::recv(other.get(), &byte, 1, 0);
    CHECK(got == 0 || (got < 0 && errno == ECONNRESET));  // the rest of the overlong line was not read
  }
  // The number of silent connections stays bounded, and the agent's connection stays.
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(caller("{"));
  CHECK(!channel.accept());
  std::vector<int> sockets;
  channel.collect(sockets);
  CHECK_EQ(sockets.size(), size_t{18});
  CHECK(channel.connected());
  const std::string more = "{\"type\":\"close\"}\n";
  CHECK_EQ(::send(agent.get(), more.data(), more.size(), 0), static_cast<ssize_t>(more.size()));
  CHECK_EQ(channel.receive().size(), size_t{1});
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace millpond::worker
