// SPDX-License-Identifier: Apache-2.0
#include "worker/control_channel.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/log.h"
#include "protocol/socket.h"

namespace millpond::worker {
namespace {

constexpr size_t kMaxLine = size_t{64} << 10;

}  // namespace

Status ControlChannel::listen(const std::string& path) {
  auto socket = listenUnix(path, 0600);
  if (!socket) return socket.error();
  listener_ = std::move(*socket);
  return Done{};
}

bool ControlChannel::accept() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return false;
  connection_ = std::move(socket);
  inbox_.clear();
  return true;
}

std::vector<Json> ControlChannel::receive() {
  std::vector<Json> messages;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::recv(connection_.get(), buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      connection_.reset();
      break;
    }
    inbox_.append(buffer, static_cast<size_t>(n));
    size_t end;
    for (; (end = inbox_.find('\n')) != std::string::npos && end <= kMaxLine; inbox_.erase(0, end + 1)) {
      auto message = Json::parse(std::string_view(inbox_).substr(0, end));
      if (!message) {
        log(LogLevel::Warn, "the agent sent what is no JSON (%s); dropping its connection",
            message.error().message.c_str());
        connection_.reset();
        return messages;
      }
      messages.push_back(std::move(*message));
    }
    if (inbox_.size() > kMaxLine) {
      log(LogLevel::Warn, "the agent sent a line of over %zu bytes; dropping its connection", kMaxLine);
      connection_.reset();
      return messages;
    }
  }
  return messages;
}

void ControlChannel::send(const Json& message) {
  if (!connection_) return;
  const std::string line = message.dump() + "\n";
  if (::send(connection_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(line.size()))
    connection_.reset();
}

}  // namespace millpond::worker
