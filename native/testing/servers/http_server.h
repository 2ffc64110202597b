// SPDX-License-Identifier: Apache-2.0
// An HTTP server for tests: one thread on loopback, one request a connection, any bytes as an answer.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "protocol/transport/socket.h"
#include "testing/check.h"

namespace millpond::testing {

class HttpTestServer {
 public:
  struct Request {
    std::string path;
    std::string head;
    std::string body;
  };
  /// The raw bytes of the answer; empty: close without one; silence(): keep the connection open without an answer.
  using Handler = std::function<std::string(const Request&)>;

  explicit HttpTestServer(Handler handler) : handler_(std::move(handler)) {
    auto socket = listenTcp("127.0.0.1", port_);
    CHECK(bool(socket));
    listener_ = std::move(*socket);
    CHECK(::pipe(stop_) == 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpTestServer() {
    CHECK(::write(stop_[1], "x", 1) == 1);
    thread_.join();
    ::close(stop_[0]);
    ::close(stop_[1]);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  uint16_t port() const { return port_; }
  std::vector<Request> requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
  }

  static std::string json(int status, const std::string& body) {
    return "HTTP/1.1 " + std::to_string(status) +
           " X\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  static std::string silence() { return std::string("\0", 1); }

 private:
  void serve() {
    std::vector<UniqueFd> silent;
    for (;;) {
      pollfd waits[2] = {{listener_.get(), POLLIN, 0}, {stop_[0], POLLIN, 0}};
      if (::poll(waits, 2, -1) < 0) continue;
      if (waits[1].revents) return;
      UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer) continue;
      Request request;
      if (!receive(peer.get(), request)) continue;
      {
        std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const std::string answer = handler_(request);
      if (answer == silence()) {
        silent.push_back(std::move(peer));
        continue;
      }
      size_t sent = 0;
      while (sent < answer.size()) {
        const ssize_t n = ::send(peer.get(), answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) break;
        sent += static_cast<size_t>(n);
      }
    }
  }

  static bool receive(int peer, Request& request) {
    std::string bytes;
    size_t end = std::string::npos;
    size_t length = 0;
    while (end == std::string::npos || bytes.size() < end + 4 + length) {
      char chunk[4096];
      const ssize_t n = ::recv(peer, chunk, sizeof chunk, 0);
      if (n <= 0) return false;
      bytes.append(chunk, static_cast<size_t>(n));
      end = bytes.find("\r\n\r\n");
      const size_t at = bytes.find("Content-Length: ");
      if (at != std::string::npos && at < end) length = std::stoul(bytes.substr(at + 16));
    }
    request.head = bytes.substr(0, end);
    request.body = bytes.substr(end + 4);
    const size_t start = bytes.find(' ') + 1;
    request.path = bytes.substr(start, bytes.find(' ', start) - start);
    return true;
  }

  Handler handler_;
  UniqueFd listener_;
  uint16_t port_ = 0;
  int stop_[2] = {-1, -1};
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  std::thread thread_;
};

}  // namespace millpond::testing
