// SPDX-License-Identifier: Apache-2.0
// A session whose worker's end runs in a thread of the test, on the software GPU of this process, behind a guard.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "protocol/gen/commands.h"
#include "testing/check.h"
#include "testing/servers/session_server.h"
#include "worker/session/executor.h"
#include "worker/testing/driver_guard.h"
#include "worker/testing/own_driver.h"

namespace millpond::worker {

class OwnSession {
 public:
  /// Where a session is: its claim, its part of the devices, and their gates.
  struct Place {
    ClaimPlace claim{};
    std::vector<DeviceShare> shares = OwnDriver::shares(guarded());
    std::string gates{};  ///< folder; empty: shares are not enforced
  };

  explicit OwnSession(Carrier carrier, ClaimPlace claim = {}) : OwnSession(carrier, Place{.claim = std::move(claim)}) {}
  OwnSession(Carrier carrier, Place place) : devices_(guarded()) {
    CHECK(bool(devices_.assign(place.shares, [&]() -> Status {
      accounts_ = std::make_unique<ClaimAccounts>(std::move(place.claim), devices_.accounts());
      return accounts_->enter();
    })));
    server_ = std::make_unique<SessionTestServer>(carrier, [this, gates = std::move(place.gates)](ServerLink& link) {
      linkRuns_ = {link.memory().submitRun().data(), link.memory().stagingRun().data()};
      auto seen = SessionMemory::map(UniqueFd(::fcntl(link.memory().file(), F_DUPFD_CLOEXEC, 0)));
      CHECK(bool(seen));
      seen_ = std::move(*seen);
      Executor executor(guarded(), devices_, *accounts_, std::move(link), nullptr, nullptr, gates);
      executor_.store(&executor);
      Executor::End end = executor.run();
      OwnDriver::instance().cancel();
      OwnDriver::instance().quieten();
      std::lock_guard lock(mutex_);
      executor_.store(nullptr);
      end_ = std::move(end);
      isOver_.store(true);
    });
    session_ = server_->connect();
    while (!executor_.load() && !isOver_.load()) std::this_thread::yield();
  }
  ~OwnSession() { finish(); }

  /// The software GPU's driver behind the guard.
  static const Driver& guarded() {
    static const Driver table = [] {
      Driver made = DriverGuard::before(OwnDriver::instance().table());
      made.cuGraphDebugDotPrint = printGraph;
      return made;
    }();
    return table;
  }
  /// Prints a graph like a driver that shows its handles, whatever the flags: the software GPU prints none.
  static CUresult printGraph(CUgraph graph, const char* path, unsigned flags) {
    std::FILE* file = std::fopen(path, "w");
    if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
    const auto handle = reinterpret_cast<uintptr_t>(graph);
    std::fprintf(file,
                 "digraph g { flags_%u [label=\"handle | 0x%016lX | 0X%lx | %012lx | %lx%lx | grid 1024 | id 7\"]; }\n",
                 flags, handle, handle, handle, handle, handle);
    return std::fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
  }

  Session& session() { return *session_; }
  bool isLost() { return session_->lost(); }
  /// The rings, as seen by both sides, over shared memory.
  SharedControl& control() { return seen_.control(); }
  std::byte* submitBytes() { return seen_.submit(); }
  /// Ends it, and returns how it ended.
  Executor::End finish() {
    if (!server_) return end_;
    session_.reset();
    {
      std::lock_guard lock(mutex_);
      if (Executor* executor = executor_.load()) executor->stop("the client is gone", true);
    }
    OwnDriver::instance().cancel();
    server_.reset();
    OwnDriver::instance().reset(linkRuns_);
    return end_;
  }

  /// Sends a command unchanged; returns the reply, or 0 for a command without one.
  int32_t send(cmd::Op op, std::span<const std::byte> body, bool waits, std::vector<std::byte>* whole = nullptr) {
    const auto fill = [&](std::byte* place) {
      if (!body.empty()) std::memcpy(place, body.data(), body.size());
    };
    if (!waits) return session_->post(static_cast<uint16_t>(op), {1, 1}, body.size(), fill) ? 0 : kSessionLost;
    Session::Answer answer;
    answer.whole = whole;
    answer.data = room_;
    return session_->wait(static_cast<uint16_t>(op), {1, 1}, body.size(), fill, answer);
  }
  /// A command; waits if there is a reply.
  template <typename C, typename... Tails>
  int32_t run(const C& fixed, const Tails&... tails) {
    return runWith(nullptr, fixed, tails...);
  }
  template <typename C, typename... Tails>
  int32_t run(typename C::Reply& reply, const C& fixed, const Tails&... tails) {
    std::vector<std::byte> whole;
    const int32_t rc = runWith(&whole, fixed, tails...);
    if (whole.size() >= sizeof(reply)) std::memcpy(&reply, whole.data(), sizeof(reply));
    return rc;
  }
  template <typename C, typename... Tails>
  int32_t runWith(std::vector<std::byte>* whole, const C& fixed, const Tails&... tails) {
    std::vector<std::byte> body(cmd::encodedSize<C>(tails...));
    cmd::encode(body.data(), fixed, tails...);
    return send(C::kOp, body, C::kHasReply, whole);
  }
  /// Returns when everything before has been issued. Failures are ignored.
  void settle() {
    run(cmd::Marker{});
    session_->takeFailure();
  }
  /// As `settle`, and when the device is done, too.
  void synchronise() {
    run(cmd::ContextSync{});
    settle();
  }

  CUdeviceptr allocate(uint64_t bytes) {
    cmd::MemAlloc command{};
    command.bytes = bytes;
    cmd::MemAllocReply reply{};
    CHECK_EQ(run(reply, command), 0);
    return reply.address;
  }
  std::vector<std::byte> download(CUdeviceptr from, size_t bytes) {
    std::vector<std::byte> to(bytes);
    cmd::CopyFromDevice command{};
    command.address = from;
    command.bytes = bytes;
    std::vector<std::byte> body(cmd::encodedSize<cmd::CopyFromDevice>());
    cmd::encode(body.data(), command);
    Session::Answer answer;
    answer.data = to;
    const int32_t rc = session_->wait(
        static_cast<uint16_t>(command.kOp), {1, 1}, body.size(),
        [&](std::byte* place) { std::memcpy(place, body.data(), body.size()); }, answer);
    CHECK_EQ(rc, 0);
    return to;
  }
  static uint64_t stream(uint32_t n) { return handle::make(HandleKind::kStream, n, 1); }
  void makeStream(uint32_t n) {
    cmd::StreamCreate command{};
    command.phStream = stream(n);
    run(command);
  }

 private:
  SessionDevices devices_;
  std::unique_ptr<ClaimAccounts> accounts_;
  std::vector<const void*> linkRuns_;
  SessionMemory seen_;
  std::mutex mutex_;
  std::atomic<Executor*> executor_{nullptr};
  std::atomic<bool> isOver_{false};
  Executor::End end_{"", true};
  std::vector<std::byte> room_ = std::vector<std::byte>(size_t{1} << 20);
  std::unique_ptr<SessionTestServer> server_;
  std::unique_ptr<Session> session_;
};

}  // namespace millpond::worker
