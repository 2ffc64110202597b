// SPDX-License-Identifier: Apache-2.0
#include "protocol/transport/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "protocol/above_standard.h"
#include "protocol/futex.h"

namespace millpond {
namespace {

/// Connections that the kernel keeps until they are accepted.
constexpr int kBacklog = 128;

Result<sockaddr_un> unixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return Error{"socket path is empty or longer than 107 bytes: " + path};
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first) ::freeaddrinfo(first);
  }
};

Status lookUp(const std::string& host, uint16_t port, AddressList& list) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const int rc = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list.first);
  if (rc != 0) return Error{"cannot resolve " + host + ": " + ::gai_strerror(rc)};
  return Done{};
}

/// False after the timeout.
bool waitFor(int socket, short events, int timeoutMs) {
  pollfd wait{socket, events, 0};
  return ::poll(&wait, 1, timeoutMs) != 0;
}

bool isLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof(v4));
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof(v6));
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
  }
  return false;
}

}  // namespace

Error systemError(const std::string& what) { return {what + ": " + std::strerror(errno)}; }

int64_t millisecondsNow() { return monotonicNs() / 1'000'000; }

bool isLoopbackPeer(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
         isLoopback(reinterpret_cast<const sockaddr*>(&peer));
}

bool isLoopbackHost(const std::string& host) {
  AddressList list;
  if (!lookUp(host, 0, list)) return false;
  for (const addrinfo* a = list.first; a; a = a->ai_next)
    if (!isLoopback(a->ai_addr)) return false;
  return true;
}

Result<UniqueFd> connectUnix(const std::string& path) {
  auto address = unixAddress(path);
  if (!address) return address.error();
  UniqueFd socket = aboveStandard(UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  if (!socket) return systemError("cannot make a socket");
  int rc;
  do rc = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address));
  while (rc != 0 && errno == EINTR);
  if (rc != 0) return systemError("cannot connect to " + path);
  return socket;
}

void tuneTcp(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // Buffer sizes are left to the system: a fixed size would disable automatic tuning, and most hosts limit it to 208
  // KiB. Keep-alive detects a peer whose machine vanished although nothing is sent.
  const int idle = 10, interval = 5, count = 3;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
  // Sent bytes are not retransmitted indefinitely either.
  const int unacknowledgedMs = 30'000;
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledgedMs, sizeof(unacknowledgedMs));
}

Result<UniqueFd> connectTcp(const std::string& host, uint16_t port, int timeoutMs) {
  AddressList list;
  if (auto found = lookUp(host, port, list); !found) return found.error();
  std::string last = "no address";
  for (const addrinfo* a = list.first; a; a = a->ai_next) {
    UniqueFd socket = aboveStandard(UniqueFd(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    if (!socket) continue;
    tuneTcp(socket.get());
    int rc = ::connect(socket.get(), a->ai_addr, a->ai_addrlen);
    if (rc != 0 && errno == EINPROGRESS) {
      pollfd wait{socket.get(), POLLOUT, 0};
      do rc = ::poll(&wait, 1, timeoutMs);
      while (rc < 0 && errno == EINTR);
      int failure = rc == 0 ? ETIMEDOUT : 0;
      socklen_t size = sizeof(failure);
      if (rc == 1) ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
      errno = failure;
      rc = failure ? -1 : 0;
    }
    if (rc != 0) {
      last = std::strerror(errno);
      continue;
    }
    ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
    return socket;
  }
  return Error{"cannot connect to " + host + ":" + std::to_string(port) + ": " + last};
}

Result<UniqueFd> listenUnix(const std::string& path, unsigned mode) {
  auto address = unixAddress(path);
  if (!address) return address.error();
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return systemError("cannot make a socket");
  ::unlink(path.c_str());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0)
    return systemError("cannot bind " + path);
  if (::chmod(path.c_str(), static_cast<mode_t>(mode)) != 0) return systemError("cannot set the mode of " + path);
  if (::listen(socket.get(), kBacklog) != 0) return systemError("cannot listen on " + path);
  return socket;
}

Result<UniqueFd> listenTcp(const std::string& host, uint16_t& port) {
  AddressList list;
  if (auto found = lookUp(host, port, list); !found) return found.error();
  UniqueFd socket(::socket(list.first->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return systemError("cannot make a socket");
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.get(), list.first->ai_addr, list.first->ai_addrlen) != 0)
    return systemError("cannot bind " + host + ":" + std::to_string(port));
  if (::listen(socket.get(), kBacklog) != 0) return systemError("cannot listen on " + host);
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  // sin_port and sin6_port lie at the same place.
  sockaddr_in v4{};
  std::memcpy(&v4, &bound, sizeof(v4));
  port = ntohs(v4.sin_port);
  return socket;
}

Status sendAll(int socket, std::span<const std::byte> bytes, int patienceMs) {
  return sendAllBy(
      bytes, patienceMs,
      [&](std::span<const std::byte> some) {
        return ::send(socket, some.data(), some.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      },
      [&](int timeoutMs) { return waitFor(socket, POLLOUT, timeoutMs); });
}

Status receiveExactly(int socket, std::span<std::byte> bytes, int timeoutMs) {
  return receiveExactlyBy(
      bytes, timeoutMs,
      [&](std::span<std::byte> some) { return ::recv(socket, some.data(), some.size(), MSG_DONTWAIT); },
      [&](int leftMs) { return waitFor(socket, POLLIN, leftMs); });
}

Status sendFile(int socket, int file, int patienceMs) {
  char byte = 'F';
  iovec data{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof(room);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &file, sizeof(int));
  while (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!waitFor(socket, POLLOUT, patienceMs))
        return Error{"the other side took nothing for " + std::to_string(patienceMs) + " ms"};
    } else if (errno != EINTR) {
      return systemError("cannot pass a file descriptor");
    }
  }
  return Done{};
}

Result<UniqueFd> receiveFile(int socket, int timeoutMs) {
  pollfd wait{socket, POLLIN, 0};
  int ready;
  do ready = ::poll(&wait, 1, timeoutMs);
  while (ready < 0 && errno == EINTR);
  if (ready <= 0) return Error{"no file descriptor came within " + std::to_string(timeoutMs) + " ms"};
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof(room);
  ssize_t n;
  do n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  // Alignment leaves room for two descriptors, and all received ones must be closed here.
  std::vector<UniqueFd> files;
  const cmsghdr* header = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(header) + at, sizeof(int));
      files.emplace_back(file);
    }
  }
  if (files.size() != 1) return Error{"the other side sent something other than a file descriptor"};
  return aboveStandard(std::move(files.front()));
}

int32_t peerPid(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return 0;
  return peer.pid;
}

}  // namespace millpond
