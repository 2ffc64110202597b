// SPDX-License-Identifier: Apache-2.0
// A worker for tests of the client library alone: a process of its own that welcomes every client with the
// same two devices and answers every command with success and zeros. It executes nothing.
#pragma once

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "protocol/gen/api_hash.h"
#include "protocol/gen/commands.h"
#include "protocol/handshake/handshake.h"
#include "protocol/handshake/snapshot.h"
#include "protocol/server/server_link.h"
#include "protocol/transport/socket.h"
#include "testing/check.h"

namespace millpond::testing {

class CannedWorker {
 public:
  static constexpr int kDriverVersion = 13010;
  static constexpr uint64_t kMemoryBytes = uint64_t{3} << 30;

  /// Device `i` is called "Canned GPU i of session n", n counting the clients from 1.
  static Snapshot snapshot(int session) {
    Snapshot s;
    s.driverVersion = kDriverVersion;
    for (int i = 0; i < 2; ++i) {
      DeviceSnapshot d;
      d.name = "Canned GPU " + std::to_string(i) + " of session " + std::to_string(session);
      d.uuid = {0xca, 0x11, 0xed, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, static_cast<uint8_t>(i)};
      d.memoryBytes = kMemoryBytes;
      d.attributes.fill(kNoAttribute);
      for (const int id : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 16, 39})
        d.attributes[static_cast<size_t>(id)] = 1024;
      for (size_t id = 17; id < 148; ++id) d.attributes[id] = d.attributes[id] == kNoAttribute ? 1 : d.attributes[id];
      d.attributes[10] = 32;  // warp size
      d.attributes[75] = 9;   // compute capability
      d.attributes[76] = 0;
      d.attributes[50] = 0x10;  // PCI domain, bus and device
      d.attributes[33] = 0xa0 + i;
      d.attributes[34] = 0;
      d.attributes[146] = kNoAttribute;
      d.leastStreamPriority = 0;
      d.greatestStreamPriority = -5;
      s.devices.push_back(d);
    }
    s.errors = {{0, "CUDA_SUCCESS", "no error"},
                {1, "CUDA_ERROR_INVALID_VALUE", "canned invalid argument"},
                {999, "CUDA_ERROR_UNKNOWN", "unknown error"}};
    return s;
  }

  /// Forks, so it is created before the process starts a thread.
  CannedWorker() {
    char directory[] = "/tmp/millpond-canned-XXXXXX";
    CHECK(::mkdtemp(directory) != nullptr);
    directory_ = directory;
    auto listener = listenUnix(path(), 0600);
    CHECK(bool(listener));
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    CHECK(pid_ >= 0);
    if (pid_ == 0) {
      // The parent may have ended before this took effect.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      serve(listener->get());
    }
  }
  ~CannedWorker() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::unlink(path().c_str());
    ::rmdir(directory_.c_str());
  }
  CannedWorker(const CannedWorker&) = delete;
  CannedWorker& operator=(const CannedWorker&) = delete;

  std::string path() const { return directory_ + "/data.sock"; }

 private:
  [[noreturn]] static void serve(int listener) {
    for (int session = 1;; ++session) {
      UniqueFd peer;
      while (!peer) {
        peer.reset(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
        if (peer) break;
        if (errno != EAGAIN && errno != EINTR) ::_exit(1);
        pollfd wait{listener, POLLIN, 0};
        ::poll(&wait, 1, -1);
      }
      std::thread([session](UniqueFd socket) { serveOne(std::move(socket), session); }, std::move(peer)).detach();
    }
  }

  static void serveOne(UniqueFd socket, int session) {
    std::vector<std::byte> hello(kHelloFixedBytes);
    if (!receiveExactly(socket.get(), hello, 10'000)) return;
    auto rest = helloRest(std::span(hello).first<kHelloFixedBytes>());
    CHECK(bool(rest));
    hello.resize(kHelloFixedBytes + *rest);
    CHECK(bool(receiveExactly(socket.get(), std::span(hello).subspan(kHelloFixedBytes), 10'000)));
    CHECK(bool(decodeHello(hello)));
    auto memory = SessionMemory::create();
    CHECK(bool(memory));
    const Welcome welcome{wire::kProtocolVersion, kApiHash, Admission::kWelcome, "", snapshot(session).encode()};
    CHECK(bool(sendAll(socket.get(), encode(welcome))));
    CHECK(bool(sendFile(socket.get(), memory->file())));
    ServerLink link(std::move(socket), std::move(*memory), false);
    const std::array<std::byte, 256> zeros{};
    for (;;) {
      ServerLink::Frame frame;
      const auto next = link.next(frame);
      if (next == ServerLink::Next::kNothing) {
        char byte;
        if (::recv(link.socket(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return;
        link.sleep(20'000'000);
        continue;
      }
      CHECK(next == ServerLink::Next::kFrame);
      if (frame.header.request != 0) {
        // The only answer with a tail that is requested by no call.
        const bool isCallback = frame.header.op == static_cast<uint16_t>(cmd::Op::kCallbackNext);
        link.reply(wire::ReplyKind::kResult, frame.header.op, frame.header.request, 0,
                   std::span(zeros).first(isCallback ? cmd::CallbackNextReply::kFixedBytes : zeros.size()));
      }
      link.release(frame.end);
    }
  }

  std::string directory_;
  pid_t pid_ = -1;
};

}  // namespace millpond::testing
