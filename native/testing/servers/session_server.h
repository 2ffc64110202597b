// SPDX-License-Identifier: Apache-2.0
// A worker's end for tests: one thread that admits one client, over either transport, and then serves it as told.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/client/session_client.h"
#include "protocol/gen/api_hash.h"
#include "protocol/handshake/endpoint.h"
#include "protocol/handshake/handshake.h"
#include "protocol/handshake/snapshot.h"
#include "protocol/server/server_link.h"
#include "protocol/transport/socket.h"
#include "testing/check.h"

namespace millpond {

inline const char* name(Carrier carrier) { return carrier == Carrier::kTcp ? "TCP" : "shared memory"; }
inline constexpr Carrier kCarriers[] = {Carrier::kSharedMemory, Carrier::kTcp};

/// The byte that test `seed` puts at `offset` of its data.
inline std::byte testByte(uint64_t seed, uint64_t offset) {
  return static_cast<std::byte>(((offset + seed * 0x10001) * 0x9E3779B97F4A7C15ULL) >> 56);
}

class SessionTestServer {
 public:
  using Serve = std::function<void(ServerLink&)>;
  using Judge = std::function<Welcome(const Hello&)>;

  static Welcome welcome() {
    Snapshot snapshot;
    snapshot.driverVersion = 13000;
    snapshot.devices.resize(1);
    snapshot.devices[0].name = "Test GPU";
    return {wire::kProtocolVersion, kApiHash, Admission::kWelcome, "", snapshot.encode()};
  }

  SessionTestServer(
      Carrier carrier, Serve serve, Judge judge = [](const Hello&) { return welcome(); }, uint32_t graceSeconds = 0)
      : carrier_(carrier), serve_(std::move(serve)), judge_(std::move(judge)), graceSeconds_(graceSeconds) {
    if (carrier_ == Carrier::kTcp) {
      auto socket = listenTcp("127.0.0.1", port_);
      CHECK(bool(socket));
      listener_ = std::move(*socket);
    } else {
      CHECK(::mkdtemp(folder_.data()) != nullptr);
      auto socket = listenUnix(folder_ + "/data.sock", 0600);
      CHECK(bool(socket));
      listener_ = std::move(*socket);
    }
    thread_ = std::thread([this] { run(); });
  }
  ~SessionTestServer() {
    thread_.join();
    if (carrier_ == Carrier::kSharedMemory) {
      ::unlink((folder_ + "/data.sock").c_str());
      ::rmdir(folder_.c_str());
    }
  }
  SessionTestServer(const SessionTestServer&) = delete;
  SessionTestServer& operator=(const SessionTestServer&) = delete;

  Endpoint endpoint() const {
    Endpoint e;
    if (carrier_ == Carrier::kTcp) {
      e.tcpHost = "127.0.0.1";
      e.tcpPort = port_;
    } else {
      e.unixPath = folder_ + "/data.sock";
    }
    e.ticket = "ticket";
    e.program = "session_test";
    return e;
  }
  std::unique_ptr<Session> connect() const {
    auto session = Session::connect(endpoint());
    if (!session) testing::fail(__FILE__, __LINE__, session.error().message);
    return std::move(*session);
  }

  /// Takes commands until the client has disconnected, and releases their space immediately. `idle` runs when there is
  /// no command; true: there may be more to do immediately.
  template <typename Handle, typename Idle>
  static void loop(ServerLink& link, Handle&& handle, Idle&& idle) {
    ServerLink::Frame frame;
    for (;;) {
      switch (link.next(frame)) {
        case ServerLink::Next::kFrame:
          if (!handle(frame)) return;
          link.release(link.position());
          break;
        case ServerLink::Next::kNothing: {
          if (idle()) break;
          if (!link.ready()) link.sleep(1'000'000);
          char c;
          const ssize_t n = link.remote() ? 1 : ::recv(link.socket(), &c, 1, MSG_DONTWAIT | MSG_PEEK);
          if (n == 0 && !link.ready()) return;  // over shared memory only the socket shows a disconnection
          break;
        }
        case ServerLink::Next::kGone: return;
        case ServerLink::Next::kBroken: testing::fail(__FILE__, __LINE__, link.problem());
      }
    }
  }
  template <typename Handle>
  static void loop(ServerLink& link, Handle&& handle) {
    loop(link, std::forward<Handle>(handle), [] { return false; });
  }

 private:
  UniqueFd accept() {
    for (;;) {
      UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket) return socket;
      CHECK(errno == EAGAIN || errno == EINTR);
      std::this_thread::yield();
    }
  }

  void run() {
    UniqueFd socket = accept();
    if (carrier_ == Carrier::kTcp) tuneTcp(socket.get());
    std::vector<std::byte> bytes(kHelloFixedBytes);
    CHECK(bool(receiveExactly(socket.get(), bytes, 10'000)));
    auto rest = helloRest(std::span(bytes).first<kHelloFixedBytes>());
    CHECK(bool(rest));
    bytes.resize(kHelloFixedBytes + *rest);
    CHECK(bool(receiveExactly(socket.get(), std::span(bytes).subspan(kHelloFixedBytes), 10'000)));
    auto hello = decodeHello(bytes);
    CHECK(bool(hello));
    CHECK(hello->carrier == carrier_);
    const Welcome verdict = judge_(*hello);
    CHECK(bool(sendAll(socket.get(), encode(verdict))));
    if (verdict.admission != Admission::kWelcome) return;
    auto memory = SessionMemory::create();
    CHECK(bool(memory));
    // A client that rejects the answer has disconnected by now.
    if (carrier_ == Carrier::kSharedMemory && !sendFile(socket.get(), memory->file())) return;
    ServerLink link(std::move(socket), std::move(*memory), carrier_ == Carrier::kTcp, graceSeconds_);
    if (serve_) serve_(link);
  }

  const Carrier carrier_;
  const Serve serve_;
  const Judge judge_;
  const uint32_t graceSeconds_;
  std::string folder_ = "/tmp/millpond-session-XXXXXX";
  uint16_t port_ = 0;
  UniqueFd listener_;
  std::thread thread_;
};

}  // namespace millpond
