// SPDX-License-Identifier: Apache-2.0
#include "protocol/transport/loopback_peer.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/unique_fd.h"

namespace millpond {
namespace {

/// The user id that stands for all users hidden by a user namespace.
constexpr uid_t kHidden = 65534;
/// The loopback interface, the first one of every network namespace. Sockets that are bound to it are found only if it
/// is specified.
constexpr uint32_t kLoopbackInterface = 1;
/// The kernel answers within the system call, after loading a module the first time.
constexpr int kAnswerMs = 2'000;
/// If a server accepts connections between two queries, the second answer is the current one.
constexpr int kMaxQuestions = 8;

/// Address and port as in the kernel's answers: IPv4 in the first word.
struct End {
  uint32_t words[4] = {};
  uint16_t port = 0;  ///< in network byte order
};

struct Ends {
  uint8_t family = AF_INET;
  End local, peer;
};

std::optional<End> endOf(const sockaddr_storage& from, uint8_t& family) {
  End end;
  if (from.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &from, sizeof v4);
    end.words[0] = v4.sin_addr.s_addr;
    end.port = v4.sin_port;
    family = AF_INET;
    return end;
  }
  if (from.ss_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6{};
  std::memcpy(&v6, &from, sizeof v6);
  end.port = v6.sin6_port;
  family = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) ? AF_INET : AF_INET6;
  if (family == AF_INET)
    std::memcpy(end.words, v6.sin6_addr.s6_addr + 12, 4);
  else
    std::memcpy(end.words, &v6.sin6_addr, sizeof end.words);
  return end;
}

std::optional<Ends> endsOf(int socket) {
  sockaddr_storage here{}, there{};
  socklen_t hereBytes = sizeof here, thereBytes = sizeof there;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &hereBytes) != 0 ||
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&there), &thereBytes) != 0)
    return std::nullopt;
  uint8_t localFamily = 0;
  Ends ends;
  const auto local = endOf(here, localFamily), peer = endOf(there, ends.family);
  if (!local || !peer || localFamily != ends.family) return std::nullopt;
  ends.local = *local;
  ends.peer = *peer;
  return ends;
}

bool isLoopback(const Ends& ends) {
  const uint32_t* words = ends.peer.words;
  if (ends.family == AF_INET) return (ntohl(words[0]) >> 24) == 127;
  return !words[0] && !words[1] && !words[2] && ntohl(words[3]) == 1;
}

/// The kernel's data about a socket.
struct Found {
  enum class How { kUnknown, kNone, kSocket } how = How::kUnknown;
  bool isHeld = false;  ///< a process has it; connections not accepted yet have none, and show no user
  uid_t user = 0;
};

/// Queries the sockets of this process's network namespace (sock_diag(7)).
class SocketTable {
 public:
  explicit SocketTable(uint8_t family)
      : family_(family), netlink_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {}

  /// The socket with these ends; if there is none, or `to` is absent, the one that listens at `from`.
  Found find(const End& from, const End& to) {
    if (!netlink_) return {};
    struct {
      nlmsghdr header;
      inet_diag_req_v2 body;
    } request{};
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    request.header.nlmsg_seq = ++sequence_;
    request.body.sdiag_family = family_;
    request.body.sdiag_protocol = IPPROTO_TCP;
    request.body.id.idiag_sport = from.port;
    request.body.id.idiag_dport = to.port;
    std::memcpy(request.body.id.idiag_src, from.words, sizeof from.words);
    std::memcpy(request.body.id.idiag_dst, to.words, sizeof to.words);
    request.body.id.idiag_if = kLoopbackInterface;
    request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    ssize_t sent;
    do
      sent = ::sendto(netlink_.get(), &request, sizeof request, 0, reinterpret_cast<sockaddr*>(&kernel), sizeof kernel);
    while (sent < 0 && errno == EINTR);
    return sent == sizeof request ? answer() : Found{};
  }

 private:
  Found answer() {
    alignas(nlmsghdr) char room[8192];
    for (;;) {
      pollfd wait{netlink_.get(), POLLIN, 0};
      const int ready = ::poll(&wait, 1, kAnswerMs);
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return {};
      sockaddr_nl from{};
      socklen_t fromBytes = sizeof from;
      const ssize_t n =
          ::recvfrom(netlink_.get(), room, sizeof room, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &fromBytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < static_cast<ssize_t>(NLMSG_HDRLEN)) return {};
      nlmsghdr header;
      std::memcpy(&header, room, sizeof header);
      if (from.nl_pid != 0 || header.nlmsg_seq != sequence_) continue;
      const size_t bytes = std::min<size_t>(header.nlmsg_len, static_cast<size_t>(n)) - NLMSG_HDRLEN;
      if (header.nlmsg_type == NLMSG_ERROR && bytes >= sizeof(nlmsgerr)) {
        nlmsgerr failure;
        std::memcpy(&failure, room + NLMSG_HDRLEN, sizeof failure);
        return {failure.error == -ENOENT ? Found::How::kNone : Found::How::kUnknown};
      }
      if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || bytes < sizeof(inet_diag_msg)) return {};
      inet_diag_msg message;
      std::memcpy(&message, room + NLMSG_HDRLEN, sizeof message);
      return {Found::How::kSocket, message.idiag_inode != 0, message.idiag_uid};
    }
  }

  uint8_t family_;
  UniqueFd netlink_;
  uint32_t sequence_ = 0;
};

/// The user of the process that has the other end of a connection, or will have it.
Found serverOf(const Ends& ends) {
  SocketTable table(ends.family);
  for (int asked = 0; asked < kMaxQuestions; ++asked) {
    const Found server = table.find(ends.peer, ends.local);
    // If the kernel does not even know our own end, it gives no information about TCP.
    if (server.how == Found::How::kNone && table.find(ends.local, ends.peer).how != Found::How::kSocket) return {};
    if (server.how != Found::How::kSocket || server.isHeld) return server;
    const Found listener = table.find(ends.peer, {});
    // A listening socket handles this connection only if the connection still waits to be accepted: otherwise a
    // stranger may have accepted it and left the port to a service.
    const Found again = table.find(ends.peer, ends.local);
    if (again.how == Found::How::kSocket && !again.isHeld)
      return listener.how == Found::How::kSocket && listener.isHeld ? listener : Found{Found::How::kNone};
  }
  return {Found::How::kNone};
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

std::optional<uid_t> numberAt(std::string_view digits) {
  uid_t user = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), user);
  return error == std::errc() && end != digits.data() ? std::optional(user) : std::nullopt;
}

/// The user of installed services. Looked up without the C library, which would load more libraries into a foreign
/// process.
std::optional<uid_t> serviceUser() {
  const File file(std::fopen("/etc/passwd", "re"), &std::fclose);
  char line[1024];
  while (file && std::fgets(line, sizeof line, file.get())) {
    std::string_view rest = line;
    constexpr std::string_view kName = "millpond:";
    if (!rest.starts_with(kName)) continue;
    const size_t colon = rest.find(':', kName.size());
    return colon == std::string_view::npos ? std::nullopt : numberAt(rest.substr(colon + 1));
  }
  return std::nullopt;
}

/// Whether this process is in a user namespace that hides most users of the machine, as in a container.
bool hidesUsers() {
  const File file(std::fopen("/proc/self/uid_map", "re"), &std::fclose);
  char line[128];
  if (!file || !std::fgets(line, sizeof line, file.get())) return false;
  std::string_view rest = line;
  for (const uid_t whole : {uid_t{0}, uid_t{0}, ~uid_t{0}}) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (numberAt(rest) != whole) return true;
    rest.remove_prefix(std::min(rest.find_first_of(" \n"), rest.size()));
  }
  return false;
}

bool isTrusted(uid_t user, const TrustedUsers& more) {
  return user == 0 || user == ::geteuid() || std::find(more.begin(), more.end(), user) != more.end() ||
         serviceUser() == user || (user == kHidden && hidesUsers());
}

}  // namespace

std::optional<PeerDoubt> doubtLoopbackPeer(int socket, const TrustedUsers& more) {
  const auto ends = endsOf(socket);
  if (!ends || !isLoopback(*ends)) return std::nullopt;
  const Found server = serverOf(*ends);
  const std::string port = "port " + std::to_string(ntohs(ends->peer.port)) + " of this machine";
  if (server.how == Found::How::kNone) return PeerDoubt{"no process of this machine serves the connection to " + port};
  if (server.how == Found::How::kUnknown || isTrusted(server.user, more)) return std::nullopt;
  return PeerDoubt{port + " is served by user " + std::to_string(server.user) +
                       ", which is not root, millpond or the user of this program",
                   true};
}

}  // namespace millpond
