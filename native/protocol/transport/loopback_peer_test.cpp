// SPDX-License-Identifier: Apache-2.0
#include "protocol/transport/loopback_peer.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <optional>

#include "base/unique_fd.h"
#include "protocol/client/opened_session.h"
#include "protocol/transport/socket.h"
#include "testing/check.h"

namespace millpond {
namespace {

constexpr uid_t kStranger = 4321;

struct Kind {
  const char* address;  ///< the client's target
  bool listensOnAll = false;
  bool accepts = true;
  bool defers = false;   ///< the connection is complete with its first byte
  bool isBound = false;  ///< to the loopback interface
};

/// A process of another user that listens on a port.
class Server {
 public:
  Server(uid_t user, const Kind& kind) {
    int said[2];
    CHECK_EQ(::pipe(said), 0);
    UniqueFd from(said[0]), to(said[1]);
    pid_ = ::fork();
    CHECK(pid_ >= 0);
    if (pid_ == 0) serve(user, kind, to.get());
    to.reset(-1);
    CHECK_EQ(::read(from.get(), &port, sizeof port), ssize_t{sizeof port});
  }
  ~Server() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port = 0;

 private:
  [[noreturn]] static void serve(uid_t user, const Kind& kind, int out) {
    const auto must = [](bool isRight) {
      if (!isRight) ::_exit(1);
    };
    if (user != ::geteuid()) must(::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0);
    const bool isV6 = kind.listensOnAll || kind.address[0] == ':';
    const int listener = ::socket(isV6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1, seconds = 30;
    if (kind.defers) must(::setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds) == 0);
    if (kind.isBound) must(::setsockopt(listener, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2) == 0);
    must(::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    if (!kind.listensOnAll) v6.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(::bind(listener, isV6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4),
                isV6 ? sizeof v6 : sizeof v4) == 0 &&
         ::listen(listener, 8) == 0);
    socklen_t size = sizeof v6;
    must(::getsockname(listener, reinterpret_cast<sockaddr*>(&v6), &size) == 0);
    const uint16_t port = ntohs(v6.sin6_port);  // sin_port lies at the same place
    must(::write(out, &port, sizeof port) == ssize_t{sizeof port});
    while (kind.accepts) ::accept(listener, nullptr, nullptr);
    for (;;) ::pause();
  }

  pid_t pid_ = -1;
};

constexpr Kind kKinds[] = {
    {.address = "127.0.0.1"},
    {.address = "127.0.0.1", .accepts = false},
    {.address = "127.0.0.1", .accepts = false, .defers = true},
    {.address = "127.0.0.1", .isBound = true},
    {.address = "127.0.0.1", .accepts = false, .isBound = true},
    {.address = "127.0.0.1", .listensOnAll = true},
    {.address = "127.0.0.1", .listensOnAll = true, .accepts = false},
    {.address = "::ffff:127.0.0.1", .listensOnAll = true},
    {.address = "127.0.0.7", .listensOnAll = true},
    {.address = "::1"},
    {.address = "::1", .accepts = false},
    {.address = "::1", .listensOnAll = true, .accepts = false, .defers = true},
};

UniqueFd connected(const Kind& kind, uint16_t port) {
  auto socket = connectTcp(kind.address, port);
  if (!socket) testing::fail(__FILE__, __LINE__, socket.error().message);
  return std::move(*socket);
}

/// Whether `what` is true in a process with the restrictions that `prepare` sets up.
bool inChild(const std::function<bool()>& prepare, const std::function<bool()>& what) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) ::_exit(!prepare() ? 2 : what() ? 0 : 1);
  int status = 0;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 2);
  return WEXITSTATUS(status) == 0;
}

bool becomes(uid_t user) { return ::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0; }

/// No netlink sockets, as in some sandboxes.
bool losesNetlink() {
  const sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), const_cast<sock_filter*>(program)};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST("a server of this process's own user may be sent secrets") {
  for (const Kind& kind : kKinds) {
    const Server server(::geteuid(), kind);
    const UniqueFd client = connected(kind, server.port);
    const auto doubt = doubtLoopbackPeer(client.get(), {});
    CHECK(!doubt);
  }
}

TEST("a stranger's server may not, however it takes its connections") {
  if (::geteuid() != 0) return;
  for (const Kind& kind : kKinds) {
    const Server server(kStranger, kind);
    const UniqueFd client = connected(kind, server.port);
    const auto doubt = doubtLoopbackPeer(client.get(), {});
    CHECK(doubt && doubt->isStranger);
    CHECK(doubt->message.find("served by user 4321") != std::string::npos);
    CHECK(doubt->message.find("port " + std::to_string(server.port) + " ") != std::string::npos);
    CHECK(!doubtLoopbackPeer(client.get(), {1, kStranger}));
  }
}

TEST("users other than root trust root's servers and their own, and no others") {
  if (::geteuid() != 0) return;
  for (const Kind& kind : kKinds) {
    for (const uid_t user : {uid_t{0}, kStranger, uid_t{1234}}) {
      const Server server(user, kind);
      CHECK(inChild([] { return becomes(kStranger); },
                    [&] {
                      const UniqueFd client = connected(kind, server.port);
                      const auto doubt = doubtLoopbackPeer(client.get(), {});
                      return user == 1234 ? doubt && doubt->isStranger : !doubt;
                    }));
    }
  }
}

TEST("a stranger who took a worker's port gets no connection, unless the agent named that user") {
  if (::geteuid() != 0) return;
  const Server server(kStranger, {.address = "127.0.0.1"});
  Endpoint endpoint;
  endpoint.tcpHost = "127.0.0.1";
  endpoint.tcpPort = server.port;
  const auto refused = reachWorker(endpoint, 2'000);
  CHECK(!refused && refused.error().message.starts_with("nothing was sent to the worker at 127.0.0.1:"));
  endpoint.users = {kStranger};
  CHECK(bool(reachWorker(endpoint, 2'000)));
}

TEST("a server that has gone is no stranger, and may come back") {
  std::optional<Server> server;
  server.emplace(::geteuid(), Kind{.address = "127.0.0.1", .accepts = false});
  const UniqueFd client = connected({.address = "127.0.0.1"}, server->port);
  server.reset();
  // Both ends are gone: the kernel knows neither, and no process can read from the connection.
  const auto doubt = doubtLoopbackPeer(client.get(), {});
  CHECK(!doubt || !doubt->isStranger);
  CHECK(::send(client.get(), "x", 1, MSG_NOSIGNAL) < 0);
}

TEST("sockets of other kinds are not asked about") {
  int ends[2];
  CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd a(ends[0]), b(ends[1]);
  CHECK(!doubtLoopbackPeer(a.get(), {}));
  const UniqueFd lonely(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(!doubtLoopbackPeer(lonely.get(), {}));
}

TEST("where the kernel tells nothing, servers are trusted as documented") {
  if (::geteuid() != 0) return;
  const Kind kind{.address = "127.0.0.1"};
  const Server server(kStranger, kind);
  const UniqueFd client = connected(kind, server.port);
  CHECK(inChild(losesNetlink, [&] { return !doubtLoopbackPeer(client.get(), {}); }));
}

TEST("a mapping of users hides servers of others, but no stranger among those that it shows") {
  if (::geteuid() != 0) return;
  // In the namespace, root is the stranger, and all other users are hidden.
  const auto enters = [] {
    if (!becomes(kStranger) || ::prctl(PR_SET_DUMPABLE, 1) != 0 || ::unshare(CLONE_NEWUSER) != 0) return false;
    const auto writes = [](const char* path, const char* text) {
      const UniqueFd file(::open(path, O_WRONLY | O_CLOEXEC));
      return file && ::write(file.get(), text, std::strlen(text)) > 0;
    };
    return writes("/proc/self/uid_map", "7 4321 1\n");
  };
  if (!inChild([] { return true; }, [&] { return enters(); })) return;  // this machine forbids such namespaces
  for (const uid_t user : {uid_t{0}, uid_t{1234}, kStranger}) {
    const Kind kind{.address = "127.0.0.1"};
    const Server server(user, kind);
    const UniqueFd client = connected(kind, server.port);
    CHECK(inChild(enters, [&] { return !doubtLoopbackPeer(client.get(), {}); }));
  }
}

}  // namespace
}  // namespace millpond
