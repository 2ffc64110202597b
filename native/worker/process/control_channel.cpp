// SPDX-License-Identifier: Apache-2.0
#include "worker/process/control_channel.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/log.h"
#include "protocol/handshake/handshake.h"
#include "protocol/transport/socket.h"

namespace millpond::worker {
namespace {

constexpr size_t kMaxLine = size_t{64} << 10;
/// An agent identifies itself immediately: among silent connections the oldest are dropped.
constexpr size_t kMaxUnproven = 16;
constexpr size_t kMaxKeyLine = 512;

}  // namespace

Status ControlChannel::listen(const std::string& path, std::string key) {
  auto socket = listenUnix(path, 0600);
  if (!socket) return socket.error();
  listener_ = std::move(*socket);
  key_ = std::move(key);
  return Done{};
}

void ControlChannel::collect(std::vector<int>& sockets) const {
  sockets.push_back(listener_.get());
  if (connection_) sockets.push_back(connection_.get());
  for (const Caller& caller : callers_) sockets.push_back(caller.socket.get());
}

void ControlChannel::become(UniqueFd socket, std::string received) {
  connection_ = std::move(socket);
  inbox_ = std::move(received);
}

ControlChannel::Progress ControlChannel::read(Caller& caller) const {
  char buffer[kMaxKeyLine];
  const ssize_t n = ::recv(caller.socket.get(), buffer, sizeof(buffer), 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? Progress::kMore : Progress::kDrop;
  if (n == 0) return Progress::kDrop;
  caller.received.append(buffer, static_cast<size_t>(n));
  const size_t end = caller.received.find('\n');
  if (end == std::string::npos) return caller.received.size() < kMaxKeyLine ? Progress::kMore : Progress::kDrop;
  auto line = Json::parse(std::string_view(caller.received).substr(0, end));
  const Json* key = line ? line->find("key") : nullptr;
  const std::string* shown = key ? key->string() : nullptr;
  if (!shown || !equalSecrets(*shown, key_)) return Progress::kDrop;
  caller.received.erase(0, end + 1);
  return Progress::kAgent;
}

bool ControlChannel::accept() {
  bool isNew = false;
  for (;;) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) break;
    if (key_.empty()) {
      become(std::move(socket), "");
      isNew = true;
      continue;
    }
    if (callers_.size() == kMaxUnproven) callers_.pop_front();
    callers_.push_back({std::move(socket), ""});
  }
  for (auto caller = callers_.begin(); caller != callers_.end();) {
    const Progress progress = read(*caller);
    if (progress == Progress::kMore) {
      ++caller;
      continue;
    }
    if (progress == Progress::kAgent) {
      become(std::move(caller->socket), std::move(caller->received));
      isNew = true;
    } else {
      log(LogLevel::Warn, "a connection to the control socket did not show the agent's key");
    }
    caller = callers_.erase(caller);
  }
  return isNew;
}

bool ControlChannel::takeLines(std::vector<Json>& messages) {
  size_t end;
  for (; (end = inbox_.find('\n')) != std::string::npos && end <= kMaxLine; inbox_.erase(0, end + 1)) {
    auto message = Json::parse(std::string_view(inbox_).substr(0, end));
    if (!message) {
      log(LogLevel::Warn, "the agent sent malformed JSON (%s); dropping its connection",
          message.error().message.c_str());
      connection_.reset();
      return false;
    }
    messages.push_back(std::move(*message));
  }
  if (inbox_.size() <= kMaxLine) return true;
  log(LogLevel::Warn, "the agent sent a line of over %zu bytes; dropping its connection", kMaxLine);
  connection_.reset();
  return false;
}

std::vector<Json> ControlChannel::receive() {
  std::vector<Json> messages;
  char buffer[4096];
  for (;;) {
    if (!takeLines(messages)) return messages;
    const ssize_t n = ::recv(connection_.get(), buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      connection_.reset();
      break;
    }
    inbox_.append(buffer, static_cast<size_t>(n));
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
