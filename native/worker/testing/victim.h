// SPDX-License-Identifier: Apache-2.0
// Sessions whose client sends random data, and how they end.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "testing/check.h"
#include "worker/testing/executor_fixture.h"

namespace millpond::worker {

/// A session that contains one object of every kind.
class Victim {
 public:
  explicit Victim(Carrier carrier) : fixture_(carrier), room_(size_t{1} << 20) {
    fixture_.makeStream(1);
    fixture_.makeStream(2, 2);
    fixture_.makeEvent(1);
    memory_ = fixture_.allocate(100'000);
    cmd::ImagePart part{};
    part.handle = module(1);
    part.total = 4;
    const std::string text = "text";
    CHECK(fixture_.post(part, 1, std::as_bytes(std::span(text))));
    cmd::ModuleLoad load{};
    load.handle = module(1);
    CHECK_EQ(fixture_.wait(load, 1, std::span<const std::byte>{}, std::span<const std::byte>{}), 0);
    cmd::GetFunction get{};
    get.owner = module(1);
    get.handle = function(1);
    const std::string name = "f8";
    CHECK_EQ(fixture_.wait(get, 1, std::as_bytes(std::span(name))), 0);
  }
  uint64_t memory() const { return memory_; }
  bool alive() { return !fixture_.session().lost(); }

  /// Sends a command unchanged. Returns false if the session is lost.
  bool send(uint16_t op, uint16_t context, std::span<const std::byte> body, bool waits) {
    Session& session = fixture_.session();
    const auto fill = [&](std::byte* place) {
      if (!body.empty()) std::memcpy(place, body.data(), body.size());
    };
    if (!waits) return session.post(op, {context, 1}, body.size(), fill);
    std::array<std::byte, 64> small;
    std::vector<std::byte> whole;
    Session::Answer answer;
    answer.body = small;
    answer.whole = &whole;
    answer.data = room_;
    session.wait(op, {context, 1}, body.size(), fill, answer);
    return alive();
  }
  /// As `send`; returns the result. 0: success. The end of the session counts as a failure.
  int32_t outcome(uint16_t op, uint16_t context, std::span<const std::byte> body, bool waits) {
    Session& session = fixture_.session();
    Session::Answer answer;
    int32_t result = 0;
    const auto fill = [&](std::byte* place) {
      if (!body.empty()) std::memcpy(place, body.data(), body.size());
    };
    if (waits)
      result = session.wait(op, {context, 1}, body.size(), fill, answer);
    else
      session.post(op, {context, 1}, body.size(), fill);
    if (result != 0) return result;
    // Latched failures are reported with the next reply.
    if (fixture_.wait(cmd::Marker{}) != 0) return kSessionLost;
    return session.takeFailure();
  }
  /// Whether the session still answers; it must have ended properly if not.
  bool check() {
    Session::Answer answer;
    const int32_t result = fixture_.wait(cmd::Marker{}, 1, answer);
    fixture_.session().takeFailure();
    if (result == 0 || alive()) return true;
    return false;
  }
  Executor::End ended() { return fixture_.ended(); }
  const std::string& lostReason() const { return fixture_.lostReason(); }

 private:
  ExecutorFixture fixture_;
  std::vector<std::byte> room_;
  CUdeviceptr memory_ = 0;
};

#ifdef __SANITIZE_THREAD__
inline constexpr bool kForThreads = true;
#else
inline constexpr bool kForThreads = false;
#endif

/// Replaces the victim by a new one when it is lost, and checks how it was lost.
class Attack {
 public:
  explicit Attack(Carrier carrier) : carrier_(carrier) { renew(); }
  Victim& victim() { return *victim_; }
  void send(uint16_t op, uint16_t context, std::span<const std::byte> body, bool waits) {
    ++sent_;
    // Answered when there is a callback to run, which this test never requests.
    if (op == static_cast<uint16_t>(cmd::Op::kCallbackNext)) waits = false;
    if (victim_->send(op, context, body, waits) && victim_->check()) return;
    ++lost_;
    const std::string told = victim_->lostReason();
    const Executor::End end = victim_->ended();
    // Either the worker ended it with a reason, or the client received more than it had requested and left.
    if (!end.ok) {
      CHECK(end.reason.starts_with("protocol violation in command "));
      CHECK_EQ(told, end.reason);
    } else {
      CHECK_EQ(told, "the connection to the worker broke");
    }
    renew();
  }
  uint64_t sent() const { return sent_; }
  uint64_t lost() const { return lost_; }

 private:
  void renew() {
    victim_.reset();
    victim_ = std::make_unique<Victim>(carrier_);
  }
  Carrier carrier_;
  std::unique_ptr<Victim> victim_;
  uint64_t sent_ = 0;
  uint64_t lost_ = 0;
};

}  // namespace millpond::worker
