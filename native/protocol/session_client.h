// SPDX-License-Identifier: Apache-2.0
// A client's end of a session: appends commands to the one stream that all its threads share, and waits for answers.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/endpoint.h"
#include "protocol/handshake.h"
#include "protocol/inbox.h"
#include "protocol/ring.h"
#include "protocol/snapshot.h"
#include "protocol/wire.h"

namespace millpond {

/// What a lost session answers to everything: CUDA_ERROR_DEVICE_UNAVAILABLE.
inline constexpr int32_t kSessionLost = 46;

class Session {
 public:
  /// Who calls: both go into the frame's header.
  struct Caller {
    uint16_t context = 0;
    uint32_t thread = 0;
  };

  /// Where the answer of a waiting command goes.
  struct Answer {
    std::span<std::byte> body;           ///< in: room; the reply's body is copied there as far as it fits
    size_t bodyBytes = 0;                ///< out: length of the reply's body
    std::vector<std::byte>* whole = nullptr;  ///< if given, receives the whole body
    std::span<std::byte> data;           ///< destination of the bytes that a copy from the device sends
    size_t dataBytes = 0;                ///< out: how many of them came
  };

  /// Connects, presents the ticket and receives the snapshot. `greet` overrides protocol and API hash in tests.
  static Result<std::unique_ptr<Session>> connect(const Endpoint& endpoint, const Hello* greet = nullptr);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Snapshot& snapshot() const { return snapshot_; }
  /// The worker is reached over TCP: memory cannot be shared with it.
  bool remote() const { return remote_; }
  bool lost() const { return lost_.load(std::memory_order_acquire); }

  /// Appends a command of `bodyBytes` bytes (a multiple of 8) that `fill` writes, and returns. False: session lost.
  template <typename Fill>
  bool post(uint16_t op, Caller caller, size_t bodyBytes, Fill&& fill) {
    std::lock_guard lock(appendMutex_);
    std::byte* place = begin(op, caller, 0, bodyBytes, 0);
    if (!place) return false;
    fill(place);
    commit(sizeof(wire::CommandHeader) + bodyBytes);
    return true;
  }

  /// As `post`, with `data` behind the body; cheaper than writing it in `fill` where it is large. `data` may be reused
  /// when this returns. The whole frame must not exceed wire::kMaxFrameBytes.
  template <typename Fill>
  bool postWithData(uint16_t op, Caller caller, size_t bodyBytes, Fill&& fill, std::span<const std::byte> data) {
    std::lock_guard lock(appendMutex_);
    std::byte* place = begin(op, caller, 0, bodyBytes, data.size());
    if (!place) return false;
    fill(place);
    return commitWithData(bodyBytes, data);
  }

  /// Appends a command and waits for its result. Returns the driver's code, or kSessionLost.
  template <typename Fill>
  int32_t wait(uint16_t op, Caller caller, size_t bodyBytes, Fill&& fill, Answer& answer) {
    Waiter waiter(answer);
    const uint32_t request = enter(waiter);
    {
      std::lock_guard lock(appendMutex_);
      std::byte* place = begin(op, caller, request, bodyBytes, 0);
      if (place) {
        fill(place);
        commit(sizeof(wire::CommandHeader) + bodyBytes, Flush::kByCaller);
      } else {
        waiter.finish(kSessionLost);
      }
    }
    return await(waiter, request);
  }

  /// The first failure of a command that nobody waited for and that nobody was told yet; 0 = none.
  int32_t failure() const { return wire::failureCode(control().failure.load(std::memory_order_relaxed)); }
  /// Takes it, so that the next one can be told. `context`: receives the number of the context that it happened in.
  int32_t takeFailure(uint16_t* context = nullptr) {
    const int32_t taken = control().failure.exchange(0);
    if (context) *context = wire::failureContext(taken);
    return wire::failureCode(taken);
  }

  /// Hands over what is buffered (TCP); over shared memory everything is handed over already.
  void flush();
  /// Receives the file that the worker attached to the answer just received. Same host only.
  Result<UniqueFd> receiveFile();
  /// In a forked child: forgets the connection without a word to the worker.
  void abandon();

  /// Called on the thread that finds it out, once, with the reason.
  void onLost(std::function<void(const std::string&)> callback) { onLost_ = std::move(callback); }
  /// Called when the worker reports the failure of a command that nobody waited for (code, op, position).
  void onFailure(std::function<void(int32_t, uint16_t, uint64_t)> callback) { onFailure_ = std::move(callback); }
  /// Called with what kernels have printed, before the answer of whoever waited for them.
  void onOutput(std::function<void(std::span<const std::byte>)> callback) { onOutput_ = std::move(callback); }
  /// Whether bytes from the worker may be written to [address, address + bytes) without anybody waiting for them. What
  /// may not is dropped, as is everything while no one is set to be asked. Called on the thread that reads.
  void onLanding(std::function<bool(uint64_t, uint64_t)> mayLand) { mayLand_ = std::move(mayLand); }

 private:
  struct Waiter {
    explicit Waiter(Answer& a) : answer(a) {}
    void finish(int32_t code) {
      result = code;
      state.store(kDone, std::memory_order_release);
    }
    static constexpr uint32_t kWaiting = 0, kDone = 1, kLead = 2;
    Answer& answer;
    uint32_t request = 0;
    int32_t result = 0;
    std::atomic<uint32_t> state{kWaiting};
    bool asleep = false;  // guarded by waitersMutex_
  };
  static constexpr uint32_t kMaxWaiters = 4096;
  static int64_t spinNs();

  Session() = default;
  Result<Welcome> greet(const Hello& hello);
  SharedControl& control() const { return memory_.control(); }

  std::byte* begin(uint16_t op, Caller caller, uint32_t request, size_t bodyBytes, size_t dataBytes);
  enum class Flush : bool { kSoon, kByCaller };
  /// Hands a frame over. Over TCP it goes with others: when there are many bytes, soon by itself, or, where that is in
  /// vain, when the caller calls sendPending.
  void commit(size_t frameBytes, Flush flush = Flush::kSoon);
  bool commitWithData(size_t bodyBytes, std::span<const std::byte> data);
  bool waitForSpace(size_t bytes);

  uint32_t enter(Waiter& waiter);
  /// Returns when nobody writes into the waiter's answer any more.
  int32_t await(Waiter& waiter, uint32_t request);
  void leave(uint32_t request);
  void promoteOne();

  /// Reads what has come; with `until`, goes on until that waiter is done. The caller holds readMutex_.
  void pump(const Waiter* until);
  enum class Pumped { kSome, kNothing, kBroken };
  Pumped pumpRing();
  Pumped pumpSocket();
  void sleepForReplies();
  /// Handles the frame at `frame`; false when it makes no sense.
  bool accept(const wire::ReplyHeader& header, std::span<const std::byte> body);
  /// Takes the rest of a kData or kLanding frame straight to where it belongs; false when it makes no sense.
  bool receiveData(const wire::ReplyHeader& header);
  /// Fills `to` with what comes next on the socket.
  bool take(std::span<std::byte> to);
  /// Where the bytes of a kData or kChunk frame go; empty when the frame makes no sense.
  std::span<std::byte> destination(const wire::ReplyHeader& header, size_t bytes);
  /// The one who still waits for that answer, nullptr for nobody. Valid while the caller holds readMutex_.
  Waiter* find(uint32_t request);
  void finish(uint32_t request, int32_t result);
  bool peerGone() const;
  /// Ends all waiting. The caller holds readMutex_: who waits may leave from here on, so nobody may be in the midst of
  /// writing an answer.
  void lose(const std::string& reason);
  /// The worker is gone: takes in what it said last, answers and the reason perhaps, and loses the session.
  void readOutAndLose(const std::string& reason);
  /// TCP: sends what is buffered, and behind it `data` with that many zeros; meanwhile takes replies in, so that two
  /// full sockets never wait for each other. False: session lost.
  bool sendPending(std::span<const std::byte> data = {}, size_t padding = 0);
  static void* flusher(void* self);

  UniqueFd socket_;
  bool remote_ = false;
  SessionMemory memory_;  // over TCP private to this side: the submit ring buffers what is not sent
  Snapshot snapshot_;

  std::mutex appendMutex_;
  RingProducer submit_;

  std::mutex sendMutex_;
  RingConsumer outgoing_;  // TCP: what of the submit ring goes to the socket next
  std::atomic<uint32_t> unsent_{0};
  std::atomic<bool> stop_{false};
  pthread_t flusherThread_{};
  bool hasFlusher_ = false;

  std::mutex readMutex_;  // whoever holds it reads replies for everybody
  RingConsumer replies_;
  Inbox inbox_;
  AdaptiveSpin spin_{spinNs()};

  std::mutex waitersMutex_;
  std::vector<Waiter*> waiters_;
  std::vector<uint32_t> freeRequests_;
  uint32_t asleep_ = 0;  // how many waiters are

  std::atomic<bool> lost_{false};
  std::string endReason_;
  std::function<void(const std::string&)> onLost_;
  std::function<void(int32_t, uint16_t, uint64_t)> onFailure_;
  std::function<void(std::span<const std::byte>)> onOutput_;
  std::function<bool(uint64_t, uint64_t)> mayLand_;
};

}  // namespace millpond
