// SPDX-License-Identifier: Apache-2.0
// A session whose worker's end runs in a thread of the test, on the fake driver.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/gen/commands.h"
#include "testing/servers/session_server.h"
#include "worker/session/executor.h"
#include "worker/testing/fake_driver.h"

namespace millpond::worker {

inline void waitUntil(const char* what, const std::function<bool()>& ready) {
  const int64_t deadline = monotonicNs() + 20'000'000'000;
  while (!ready()) {
    if (monotonicNs() > deadline) testing::fail(__FILE__, __LINE__, std::string("waited in vain until ") + what);
    std::this_thread::yield();
  }
}

class ExecutorFixture {
 public:
  static constexpr uint64_t kLimit = uint64_t{64} << 20;

  /// `gates`: directory of the devices' gates; the session has half of each device. `checks`: programs are checked.
  /// `sharing`: with other sessions. `parking`: whether it is parked, or was.
  explicit ExecutorFixture(Carrier carrier, unsigned devices = 2, std::string gates = "",
                           const SanitizerTable* checks = nullptr, Sharing* sharing = nullptr, Parking parking = {},
                           ClaimPlace claim = {}, bool countsDriverMemory = false)
      : fake_(devices), driver_(fake_.table()), devices_(driver_) {
    if (checks) fake_.check(*checks);
    if (countsDriverMemory) devices_.countDriverMemory();
    std::vector<DeviceShare> shares;
    for (unsigned i = 0; i < devices; ++i) shares.push_back({FakeDriver::uuid(i), kLimit, 50});
    CHECK(bool(devices_.assign(shares)));
    accounts_ = std::make_unique<ClaimAccounts>(std::move(claim), devices_.accounts());
    CHECK(bool(accounts_->enter()));
    server_ = std::make_unique<SessionTestServer>(
        carrier, [this, sharing, parking, gates = std::move(gates)](ServerLink& link) {
          Executor executor(driver_, devices_, *accounts_, std::move(link), nullptr, nullptr, gates, sharing, parking);
          executor_.store(&executor);
          Executor::End end = executor.run();
          std::lock_guard lock(mutex_);
          executor_.store(nullptr);
          end_ = std::move(end);
          over_.store(true);
        });
    session_ = server_->connect();
    session_->onLost([this](const std::string& reason) {
      lostReason_ = reason;
      isTold_.store(true);
    });
    session_->onFailure([this](int32_t code, uint16_t op, uint64_t) { failures_.emplace_back(code, op); });
    while (!executor_.load() && !over_.load()) std::this_thread::yield();
  }
  ~ExecutorFixture() { finish(); }

  FakeDriver& fake() { return fake_; }
  Session& session() { return *session_; }
  /// Asks the executor to end, as the supervisor does.
  void stop(const std::string& reason, bool ok = true) {
    std::lock_guard lock(mutex_);
    if (Executor* executor = executor_.load()) executor->stop(reason, ok);
  }
  /// Tells the executor that its client is gone, as the supervisor does.
  void clientGone() {
    std::lock_guard lock(mutex_);
    if (Executor* executor = executor_.load()) executor->clientGone();
  }
  /// Other memory limits, as the supervisor sets them.
  Status setMemoryLimits(const std::vector<uint64_t>& bytes, uint64_t revision = 1) {
    return accounts_ ? accounts_->setLimits(bytes, revision) : Status(Error{"the session is over"});
  }
  /// Other shares, as the supervisor sets them.
  void setShares(std::vector<Share> shares) {
    std::lock_guard lock(mutex_);
    if (Executor* executor = executor_.load()) executor->setShares(std::move(shares));
  }
  /// Number of commands that the worker has reached.
  uint64_t commands() {
    std::lock_guard lock(mutex_);
    const Executor* executor = executor_.load();
    return executor ? executor->counters().commands.load() : 0;
  }
  /// Ends the session, if necessary by disconnecting the client, and returns how it ended.
  Executor::End finish() {
    if (server_) {
      session_.reset();
      stop("the client is gone");
      server_.reset();
    }
    accounts_.reset();
    return end_;
  }
  /// Waits until the worker has ended the session by itself.
  Executor::End ended() {
    server_.reset();
    accounts_.reset();
    return end_;
  }
  /// The reason why the session was lost, if it was. Over TCP another thread may still be about to report it.
  const std::string& lostReason() const {
    while (session_ && session_->lost() && !isTold_.load()) std::this_thread::yield();
    return lostReason_;
  }
  const std::vector<std::pair<int32_t, uint16_t>>& failures() const { return failures_; }

  template <typename C, typename... Tails>
  bool post(const C& fixed, uint16_t context, const Tails&... tails) {
    return session_->post(static_cast<uint16_t>(C::kOp), {context, 1}, cmd::encodedSize<C>(tails...),
                          [&](std::byte* place) { cmd::encode(place, fixed, tails...); });
  }
  template <typename C, typename... Tails>
  int32_t wait(const C& fixed, uint16_t context, Session::Answer& answer, const Tails&... tails) {
    return session_->wait(
        static_cast<uint16_t>(C::kOp), {context, 1}, cmd::encodedSize<C>(tails...),
        [&](std::byte* place) { cmd::encode(place, fixed, tails...); }, answer);
  }
  template <typename C, typename... Tails>
  int32_t wait(const C& fixed, uint16_t context = 1, const Tails&... tails) {
    Session::Answer answer;
    return wait(fixed, context, answer, tails...);
  }

  // Operations of programs

  int32_t allocate(uint64_t bytes, CUdeviceptr& address, uint16_t context = 1) {
    cmd::MemAlloc command{};
    command.bytes = bytes;
    cmd::MemAllocReply reply{};
    Session::Answer answer;
    answer.body = std::as_writable_bytes(std::span(&reply, 1));
    const int32_t result = wait(command, context, answer);
    address = reply.address;
    return result;
  }
  CUdeviceptr allocate(uint64_t bytes, uint16_t context = 1) {
    CUdeviceptr address = 0;
    CHECK_EQ(allocate(bytes, address, context), 0);
    return address;
  }
  bool free(CUdeviceptr address, uint16_t context = 1) {
    cmd::MemFree command{};
    command.address = address;
    return post(command, context);
  }
  /// The n-th stream of the test, from 1.
  static uint64_t stream(uint32_t n) { return n ? handle::make(HandleKind::kStream, n, 1) : 0; }
  static uint64_t event(uint32_t n) { return handle::make(HandleKind::kEvent, 1000 + n, 1); }
  void makeStream(uint32_t n, uint16_t context = 1) {
    cmd::StreamCreate command{};
    command.phStream = stream(n);
    CHECK(post(command, context));
  }
  void makeEvent(uint32_t n, uint16_t context = 1) {
    cmd::EventCreate command{};
    command.phEvent = event(n);
    CHECK(post(command, context));
  }
  bool upload(CUdeviceptr to, std::span<const std::byte> data, uint64_t onStream = 0, uint16_t context = 1) {
    cmd::CopyToDevice command{};
    command.address = to;
    command.stream = onStream;
    command.total = data.size();
    for (size_t at = 0; at < data.size(); at += wire::kChunkBytes) {
      const auto piece = data.subspan(at, std::min(wire::kChunkBytes, data.size() - at));
      command.offset = at;
      command.dataBytes = static_cast<uint32_t>(piece.size());
      if (!session_->postWithData(
              static_cast<uint16_t>(command.kOp), {context, 1}, sizeof(command),
              [&](std::byte* place) { std::memcpy(place, &command, sizeof(command)); }, piece))
        return false;
    }
    return true;
  }
  int32_t download(std::span<std::byte> to, CUdeviceptr from, uint64_t onStream = 0, uint16_t context = 1) {
    cmd::CopyFromDevice command{};
    command.address = from;
    command.bytes = to.size();
    command.stream = onStream;
    cmd::CopyFromDeviceReply reply{};
    Session::Answer answer;
    answer.body = std::as_writable_bytes(std::span(&reply, 1));
    answer.data = to;
    const int32_t result = wait(command, context, answer);
    if (result == 0) CHECK_EQ(answer.dataBytes, to.size());
    return result;
  }
  bool fill(CUdeviceptr to, uint8_t value, uint64_t bytes, uint64_t onStream = 0, uint16_t context = 1) {
    cmd::MemsetD8Async command{};
    command.dstDevice = to;
    command.uc = value;
    command.N = bytes;
    command.hStream = onStream;
    return post(command, context);
  }
  int32_t syncStream(uint64_t onStream, uint16_t context = 1) {
    cmd::StreamSync command{};
    command.stream = onStream;
    return wait(command, context);
  }
  /// Returns when everything before has been issued.
  void marker() { CHECK_EQ(wait(cmd::Marker{}), 0); }
  int32_t memoryInfo(uint64_t& available, uint64_t& total, uint16_t context = 1) {
    cmd::MemGetInfoReply reply{};
    Session::Answer answer;
    answer.body = std::as_writable_bytes(std::span(&reply, 1));
    const int32_t result = wait(cmd::MemGetInfo{}, context, answer);
    available = reply.freeBytes;
    total = reply.totalBytes;
    return result;
  }

 private:
  FakeDriver fake_;
  Driver driver_;
  SessionDevices devices_;
  std::unique_ptr<ClaimAccounts> accounts_;
  std::mutex mutex_;
  std::atomic<Executor*> executor_{nullptr};
  std::atomic<bool> over_{false};
  Executor::End end_{"", true};
  std::string lostReason_;
  std::atomic<bool> isTold_{false};
  std::vector<std::pair<int32_t, uint16_t>> failures_;
  std::unique_ptr<SessionTestServer> server_;
  std::unique_ptr<Session> session_;
};

/// The session's names for its n-th module and the n-th function.
inline uint64_t module(uint32_t n) { return handle::make(HandleKind::kModule, 2000 + n, 1); }
inline uint64_t function(uint32_t n) { return handle::make(HandleKind::kFunction, 3000 + n, 1); }

/// Bytes that identify their position.
inline std::vector<std::byte> pattern(uint64_t seed, size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = testByte(seed, i);
  return out;
}

}  // namespace millpond::worker
