// SPDX-License-Identifier: Apache-2.0
#include "protocol/transport/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "protocol/futex.h"
#include "testing/check.h"

namespace millpond {
namespace {

struct Folder {
  std::string path = "/tmp/millpond-socket-XXXXXX";
  Folder() { CHECK(::mkdtemp(path.data()) != nullptr); }
  ~Folder() {
    ::unlink((path + "/s").c_str());
    ::rmdir(path.c_str());
  }
};

struct Pair {
  UniqueFd a;
  UniqueFd b;
  Pair() {
    int ends[2];
    CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    a.reset(ends[0]);
    b.reset(ends[1]);
  }
};

UniqueFd accepted(const UniqueFd& listener) {
  for (;;) {
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket || (errno != EAGAIN && errno != EINTR)) return socket;
    std::this_thread::yield();
  }
}

TEST("loopback addresses are told from others") {
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "192.0.2.7", "2001:db8::1", "255.255.255.255", "no such host"})
    CHECK(!isLoopbackHost(host));
  for (const char* host : {"127.0.0.1", "127.8.9.1", "::1"}) CHECK(isLoopbackHost(host));
}

TEST("what is no address of this machine is not listened on") {
  for (const char* host : {"no such host", "256.1.1.1", "192.0.2.7"}) {
    uint16_t port = 0;
    CHECK(!listenTcp(host, port));
    CHECK_EQ(port, 0);
  }
  for (const char* host : {"127.0.0.1", "127.8.9.1"}) {
    uint16_t port = 0;
    CHECK(bool(listenTcp(host, port)));
    CHECK(port != 0);
  }
}

TEST("a TCP connection is made, without Nagle's delay and noticing a vanished peer") {
  uint16_t port = 0;
  auto listener = listenTcp("127.0.0.1", port);
  CHECK(bool(listener));
  auto client = connectTcp("127.0.0.1", port, 2000);
  CHECK(bool(client));
  UniqueFd server = accepted(*listener);
  CHECK(bool(server));
  int value = 0;
  socklen_t size = sizeof(value);
  CHECK_EQ(::getsockopt(client->get(), IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
  CHECK(value != 0);
  CHECK_EQ(::getsockopt(client->get(), SOL_SOCKET, SO_KEEPALIVE, &value, &size), 0);
  CHECK(value != 0);
  CHECK_EQ(::getsockopt(client->get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size), 0);
  CHECK(value > 0 && value <= 60'000);
  CHECK_EQ(::fcntl(client->get(), F_GETFL) & O_NONBLOCK, 0);
  CHECK((::fcntl(client->get(), F_GETFD) & FD_CLOEXEC) != 0);
  // A second listener on the same port is an error with a reason.
  uint16_t same = port;
  auto second = listenTcp("127.0.0.1", same);
  CHECK(!second);
  CHECK(second.error().message.starts_with("cannot bind 127.0.0.1:" + std::to_string(port)));
}

TEST("a connection that cannot be made says why") {
  uint16_t port = 0;
  { auto listener = listenTcp("127.0.0.1", port); }
  auto refused = connectTcp("127.0.0.1", port, 2000);
  CHECK(!refused);
  CHECK_EQ(refused.error().message, "cannot connect to 127.0.0.1:" + std::to_string(port) + ": Connection refused");
  auto unknown = connectTcp("no.such.host.invalid", 1, 2000);
  CHECK(!unknown);
  CHECK(unknown.error().message.starts_with("cannot resolve no.such.host.invalid"));
  CHECK(!connectUnix("/no/such/socket"));
  CHECK(!connectUnix(""));
  CHECK(!connectUnix(std::string(108, 'x')));
  CHECK(!listenUnix(std::string(200, 'x'), 0600));
  CHECK(!listenUnix("/no/such/folder/socket", 0600));
}

TEST("a Unix socket is made anew with its mode") {
  Folder folder;
  const std::string path = folder.path + "/s";
  for (const unsigned mode : {0600u, 0666u}) {
    auto listener = listenUnix(path, mode);
    CHECK(bool(listener));
    struct stat info {};
    CHECK_EQ(::stat(path.c_str(), &info), 0);
    CHECK_EQ(info.st_mode & 0777u, mode);
    auto client = connectUnix(path);
    CHECK(bool(client));
    UniqueFd server = accepted(*listener);
    CHECK_EQ(peerPid(server.get()), ::getpid());
  }
  CHECK_EQ(peerPid(-1), 0);
}

TEST("descriptors of a program without standard streams leave the places of these") {
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) ::close(fd);
    uint16_t port = 0;
    auto server = listenTcp("127.0.0.1", port);
    auto client = server ? connectTcp("127.0.0.1", port, 1000) : Result<UniqueFd>(Error{"no server"});
    const bool isAbove = client && client->get() > STDERR_FILENO && (::fcntl(client->get(), F_GETFD) & FD_CLOEXEC);
    // The place is free for the program's next file.
    ::_exit(isAbove && ::open("/dev/null", O_RDONLY) <= STDERR_FILENO ? 0 : 1);
  }
  int status = -1;
  CHECK(pid > 0 && ::waitpid(pid, &status, 0) == pid);
  CHECK_EQ(status, 0);
}

TEST("everything is sent, also through a socket that is full") {
  Pair pair;
  CHECK_EQ(::fcntl(pair.a.get(), F_SETFL, O_NONBLOCK), 0);
  std::vector<std::byte> sent(8 << 20);
  std::minstd_rand random(5);
  for (auto& b : sent) b = static_cast<std::byte>(random());
  std::vector<std::byte> got(sent.size());
  std::thread reader([&] { CHECK(bool(receiveExactly(pair.b.get(), got, 20'000))); });
  CHECK(bool(sendAll(pair.a.get(), sent)));
  reader.join();
  CHECK(got == sent);
}

TEST("a send to a peer that reads nothing times out") {
  Pair pair;
  CHECK_EQ(::fcntl(pair.a.get(), F_SETFL, O_NONBLOCK), 0);
  const std::vector<std::byte> much(16 << 20);
  const int64_t start = monotonicNs();
  auto sent = sendAll(pair.a.get(), much, 100);
  CHECK(!sent);
  CHECK_EQ(sent.error().message, "the other side took nothing for 100 ms");
  CHECK(monotonicNs() - start < 5'000'000'000);
  UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto passed = sendFile(pair.a.get(), file.get(), 100);
  CHECK(!passed);
  CHECK_EQ(passed.error().message, "the other side took nothing for 100 ms");
}

TEST("a closed peer is an error, not a signal") {
  Pair pair;
  pair.b.reset();
  const std::vector<std::byte> bytes(16);
  CHECK(!sendAll(pair.a.get(), bytes));
  CHECK(!sendFile(pair.a.get(), 0));
  std::vector<std::byte> room(16);
  CHECK_EQ(receiveExactly(pair.a.get(), room, 1000).error().message, "the other side closed the connection");
}

TEST("receiving ends at its time, whatever trickles in") {
  Pair pair;
  std::vector<std::byte> room(16);
  int64_t start = monotonicNs();
  CHECK_EQ(receiveExactly(pair.a.get(), room, 30).error().message, "no answer within 30 ms");
  CHECK(monotonicNs() - start >= 29'000'000);
  CHECK_EQ(::send(pair.b.get(), "abc", 3, 0), 3);
  CHECK(!receiveExactly(pair.a.get(), room, 30));
  CHECK(!receiveFile(pair.a.get(), 30));
  CHECK(bool(receiveExactly(pair.a.get(), {}, 0)));
}

TEST("a file is passed") {
  Pair pair;
  Folder folder;
  int ends[2];
  CHECK_EQ(::pipe(ends), 0);
  UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  CHECK(bool(sendFile(pair.a.get(), in.get())));
  auto got = receiveFile(pair.b.get(), 1000);
  CHECK(bool(got));
  CHECK((::fcntl(got->get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK_EQ(::write(got->get(), "x", 1), 1);
  char c = 0;
  CHECK_EQ(::read(out.get(), &c, 1), 1);
  CHECK_EQ(c, 'x');
}

size_t openFiles() {
  size_t n = 0;
  for (int fd = 0; fd < 256; ++fd) n += ::fcntl(fd, F_GETFD) >= 0;
  return n;
}

TEST("anything but one file is refused and leaves none open") {
  Pair pair;
  CHECK_EQ(::send(pair.a.get(), "F", 1, 0), 1);
  CHECK_EQ(receiveFile(pair.b.get(), 1000).error().message,
           "the other side sent something other than a file descriptor");

  const size_t before = openFiles();
  const std::array<int, 2> two = {0, 0};
  char byte = 'F';
  iovec data{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(two))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof(room);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(two));
  std::memcpy(CMSG_DATA(header), two.data(), sizeof(two));
  CHECK_EQ(::sendmsg(pair.a.get(), &message, 0), 1);
  CHECK(!receiveFile(pair.b.get(), 1000));
  CHECK_EQ(openFiles(), before);

  pair.a.reset();
  CHECK(!receiveFile(pair.b.get(), 1000));
}

}  // namespace
}  // namespace millpond
