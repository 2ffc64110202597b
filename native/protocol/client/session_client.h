// SPDX-License-Identifier: Apache-2.0
// A client's end of a session: appends commands to the one stream that all its threads share, and waits for replies.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/client/client_lanes.h"
#include "protocol/client/lane_pause.h"
#include "protocol/client/waiters.h"
#include "protocol/handshake/endpoint.h"
#include "protocol/handshake/handshake.h"
#include "protocol/handshake/process_watch.h"
#include "protocol/handshake/snapshot.h"
#include "protocol/rings/ring.h"
#include "protocol/transport/channel.h"
#include "protocol/transport/inbox.h"
#include "protocol/transport/outgoing.h"
#include "protocol/usable_cpus.h"
#include "protocol/wire.h"

namespace millpond {

struct OpenedSession;

/// The result of all calls of a lost session: CUDA_ERROR_DEVICE_UNAVAILABLE.
inline constexpr int32_t kSessionLost = 46;

class Session {
 public:
  /// The calling thread and context: both go into the frame's header.
  struct Caller {
    uint16_t context = 0;
    uint32_t thread = 0;
  };

  using Answer = Waiters::Answer;

  /// Connects, presents the ticket and receives the snapshot. `greet` overrides protocol and API hash in tests.
  static Result<std::unique_ptr<Session>> connect(const Endpoint& endpoint, const Hello* greet = nullptr);
  /// A session on a connection that a worker has already accepted.
  static Result<std::unique_ptr<Session>> of(OpenedSession opened, const Endpoint& endpoint);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Snapshot& snapshot() const { return snapshot_; }
  /// Whether the worker is reached over TCP: then they share no memory.
  bool remote() const { return remote_; }
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  /// Parked: it has no worker until the next command.
  bool isParked() const {
    return remote_ ? isParked_.load(std::memory_order_acquire)
                   : control().submit.consumerState.load(std::memory_order_acquire) == kClosed;
  }
  /// Whether it may be parked at all.
  bool parks() const { return parks_; }
  /// Replaces the journal of a parked session with the result of `revise`, which must not be longer. Returns false if
  /// the session is not parked; then `revise` was not called.
  using Revise = std::function<std::vector<std::byte>(std::span<const std::byte>)>;
  bool reviseJournal(const Revise& revise);
  /// How long this session waits for a lost connection; 0: it does not.
  uint32_t graceSeconds() const { return graceSeconds_; }

  /// Appends a command of `bodyBytes` bytes (a multiple of 8) that `fill` writes, and returns. False: the session is
  /// lost.
  template <typename Fill>
  bool post(uint16_t op, Caller caller, size_t bodyBytes, Fill&& fill) {
    std::lock_guard lock(appendMutex_);
    std::byte* place = begin(op, caller, 0, bodyBytes, 0);
    if (!place) return false;
    fill(place);
    return commit(sizeof(wire::CommandHeader) + bodyBytes);
  }

  /// The owner of a command's data after the call has returned.
  enum class Data {
    kCallers,  ///< the caller
    kLent,     ///< the session, until the end of any later waiting command of the caller's thread
  };
  /// As `post`, with `data` after the body; cheaper than writing large data in `fill`. The whole frame must not exceed
  /// wire::kMaxFrameBytes.
  template <typename Fill>
  bool postWithData(uint16_t op, Caller caller, size_t bodyBytes, Fill&& fill, std::span<const std::byte> data,
                    Data whose = Data::kCallers) {
    std::lock_guard lock(appendMutex_);
    const bool copies = !remote_ || (graceSeconds_ != 0 && whose == Data::kCallers);
    std::byte* place = begin(op, caller, 0, bodyBytes, data.size(), copies);
    if (!place) return false;
    fill(place);
    return copies ? commitCopied(bodyBytes, data) : commitLent(bodyBytes, data);
  }

  /// Appends a command and waits for its result. Returns the driver's code, or kSessionLost.
  template <typename Fill>
  int32_t wait(uint16_t op, Caller caller, size_t bodyBytes, Fill&& fill, Answer& answer) {
    Waiter waiter(answer);
    const uint32_t request = waiters_.enter(waiter);
    {
      std::lock_guard lock(appendMutex_);
      std::byte* place = begin(op, caller, request, bodyBytes, 0);
      if (place) {
        fill(place);
        waiter.end.store(endOfStream() + sizeof(wire::CommandHeader) + bodyBytes, std::memory_order_relaxed);
      }
      if (!place || !commit(sizeof(wire::CommandHeader) + bodyBytes, Flush::kByCaller)) waiter.finish(kSessionLost);
    }
    return await(waiter, request);
  }

  /// Offset in the stream after all appended commands.
  uint64_t appended() {
    std::lock_guard lock(appendMutex_);
    return endOfStream();
  }

  /// An unreported failure of a command for which no thread waited; 0: none. The first of each context is kept.
  int32_t failure() const { return wire::failureCode(control().failures.first()); }
  /// Takes it, so that the next failure of its context can be reported. `context`: receives the number of the context in which it
  /// happened.
  int32_t takeFailure(uint16_t* context = nullptr) {
    const int32_t taken = control().failures.take();
    if (context) *context = wire::failureContext(taken);
    return wire::failureCode(taken);
  }

  /// Call before the commands of a copy of that many bytes: opens the session's lanes if they are worth it. A session without
  /// lanes works the same.
  void expectBulk(size_t bytes) {
    if (bytes >= kBulkBytes && mayOpenLanes_.load(std::memory_order_relaxed)) [[unlikely]]
      openLanes();
  }
  /// Sends buffered commands (TCP); over shared memory they are already published.
  void flush();
  /// Receives the file that the worker attached to the last reply. Same host only.
  Result<UniqueFd> receiveFile();
  /// Sends a file, which the worker assigns to the next command that needs one. Same host only.
  Status sendFile(int file);
  /// The process is about to end: the worker need not wait for it when the connection ends. Commands continue until
  /// then.
  void sayGoodbye();
  /// In a forked child: drops the connection without notifying the worker.
  void abandon();

  /// Called once, with the reason, on the thread that detects the loss.
  void onLost(std::function<void(const std::string&)> callback) { onLost_ = std::move(callback); }
  /// Called with a sentence when the connection has been lost for longer than a moment, and when it is restored after
  /// that.
  void onLink(std::function<void(const std::string&)> callback) { onLink_ = std::move(callback); }
  /// The worker may end an idle session between two commands if it can be restored: the program does not notice, and
  /// the next command goes to another worker. This is called to find that worker, on the thread that needs it, while
  /// commands wait: it returns the worker's endpoint, and may take long. If there is none, it reports whether a later
  /// command may try again: then only this command fails, and the session stays parked. Set it before the first
  /// command, for a session whose endpoint says that it can be parked.
  using Awaken = std::function<Result<Endpoint>(bool& mayAskAgain)>;
  void onParked(Awaken callback) { onParked_ = std::move(callback); }
  /// Called next with a session of the new worker, which must be restored from the journal of the parked session:
  /// commands, as frames. It returns after all of them have completed.
  void onRestore(std::function<Status(Session&, std::span<const std::byte>)> callback) {
    onRestore_ = std::move(callback);
  }
  /// Called when the worker reports the failure of a command for which no thread waited (code, op, position).
  void onFailure(std::function<void(int32_t, uint16_t, uint64_t)> callback) { onFailure_ = std::move(callback); }
  using OnOutput = std::function<void(wire::OutputStream, std::span<const std::byte>)>;
  /// Called with the output of kernels, before the reply of the thread that waited for them, and with the driver's
  /// messages about a failure, before the failure is reported.
  void onOutput(OnOutput callback) { onOutput_ = std::move(callback); }
  /// Whether bytes from the worker may be written to [address, address + bytes) without a waiting thread. Other bytes
  /// are dropped, and all of them without this callback. Called on the reading thread.
  void onLanding(std::function<bool(uint64_t, uint64_t)> mayLand) { mayLand_ = std::move(mayLand); }
  /// Called on threads of the lanes with data of a command, before it is sent. Set it before the first command.
  void onLaneData(std::function<void(std::span<const std::byte>)> look) { lanes_.beforeSending(std::move(look)); }
  /// Returns whether bytes without a waiting thread are in transit: then a thread of the session receives them while
  /// the program does something else. Over shared memory `expectLanding` starts that thread.
  void onLandingsAwaited(std::function<bool()> areAwaited) {
    awaitsLandings_ = std::move(areAwaited);
    asksForLandings_.store(true, std::memory_order_release);
  }
  /// Call before a command that makes bytes land. Returns false if no thread can be started to receive them.
  bool expectLanding();
  /// Called on the reading thread, with its number, when all bytes of a landing have arrived, or none will arrive any
  /// more.
  void onLanded(std::function<void(uint64_t)> callback) { onLanded_ = std::move(callback); }

 private:
  using Waiter = Waiters::Waiter;
  /// Spinning lasts as long as most copies and kernels take if there are spare processors, as in the driver itself:
  /// waking a sleeping core can take as long as a short kernel. Elsewhere it lasts only for immediate replies.
  static constexpr int64_t kLongSpinNs = 5'000'000;
  static constexpr int64_t kShortSpinNs = 50'000;
  /// How often a sleeping thread checks that the worker still exists.
  static constexpr int64_t kLivenessNs = 50'000'000;

  Session() = default;
  static Result<std::unique_ptr<Session>> establish(const Endpoint& endpoint, bool isParked, const Hello* greet);
  /// Identifies the worker, and this session, for a reconnection.
  void remember(const Endpoint& endpoint, const Welcome& welcome);
  void useRings();
  SharedControl& control() const { return memory_.control(); }

  std::byte* begin(uint16_t op, Caller caller, uint32_t request, size_t bodyBytes, size_t dataBytes,
                   bool dataInRing = true);
  /// Offset after all appended data. The caller holds appendMutex_.
  uint64_t endOfStream() const { return submit_.head() + outgoing_.lentBytes(); }
  enum class Flush : bool { kSoon, kByCaller };
  /// Publishes a frame. Over TCP it is sent together with others: when there are many bytes; soon, by the flusher; or,
  /// without a flusher, when the caller calls sendPending.
  bool commit(size_t frameBytes, Flush flush = Flush::kSoon);
  bool commitCopied(size_t bodyBytes, std::span<const std::byte> data);
  /// TCP: directly from the caller's memory to the socket.
  bool commitLent(size_t bodyBytes, std::span<const std::byte> data);
  bool waitForSpace(size_t bytes);

  // Parking (session_parking.cpp)

  /// Replaces the parked session with another one, on devices of the same kind and over the same transport, in which
  /// everything is restored.
  Result<std::unique_ptr<Session>> reopen(std::span<const std::byte> journal, bool& mayAskAgain);
  /// This session has continued as another one: only the thread that takes over its parts still uses it. Returns false
  /// if it has ended in the meantime.
  bool retire();
  /// Shared memory: the commands that the worker did not take.
  std::vector<std::byte> leftJournal() const;
  /// Shared memory: the worker closed the ring before it saw the last published commands. Transfers them to another
  /// session. The caller holds appendMutex_. Returns false if that failed: then the last published commands are taken
  /// back.
  bool goOnWithRing();
  Status replaceRing(Session& fresh);
  /// TCP: the same, before anything is appended. The caller holds appendMutex_. Returns false if that failed.
  bool goOnWithStream();
  bool replaceStream(Session& fresh);
  /// TCP: agrees to be parked, if the worker proposed it and there is nothing to do.
  void considerParking();

  /// Returns when no thread writes into the waiter's reply any more.
  int32_t await(Waiter& waiter, uint32_t request);

  /// Reads received data; with `until`, continues until that waiter is done or the connection has ended. The caller
  /// holds readMutex_, and states whether it also holds sendMutex_.
  enum class Sender : bool { kOther, kThis };
  void pump(const Waiter* until, Sender sender);
  enum class Pumped { kSome, kNothing, kBroken, kCut };
  Pumped pumpRing();
  Pumped pumpSocket(Sender sender);
  /// The frames of the main connection; those behind data that is still coming over lanes stay in the inbox.
  Pumped pumpFrames();
  void sleepForReplies();
  /// Handles the frame at `frame`; false if it is malformed.
  bool accept(const wire::ReplyHeader& header, std::span<const std::byte> body);
  /// Receives the rest of a kData or kLanding frame directly into its destination.
  Pumped receiveData(const wire::ReplyHeader& header);
  Pumped receiveBody(std::span<std::byte> to, size_t frameBytesLeft);
  /// Fills `to` with the next bytes of the socket. False: the connection has ended.
  bool take(std::span<std::byte> to);
  bool acceptLinkWord(std::span<const std::byte> body);

  // Lanes (session_lanes.cpp)

  /// Opens lanes to the present worker, if that has not been tried since the last connection.
  void openLanes();
  /// Bytes of both streams that have arrived, for `lanePause_`.
  uint64_t arrived() const {
    return received_.load(std::memory_order_relaxed) + peerReceived_.load(std::memory_order_relaxed);
  }
  std::vector<std::unique_ptr<Lane>> reachLanes(const Endpoint& endpoint, LaneClaim claim);
  /// A kData or kLanding frame, whose header was taken, with data on a lane.
  Pumped receiveAnnounced(const wire::ReplyHeader& header);
  /// Takes the frames whose data has arrived. Returns whether there were any.
  bool settleLanes();
  /// Ends the lanes; the frames that are still coming will be sent again.
  void dropComing();
  /// The connection has ended within frames, and those behind them must not be taken, except for the worker's last.
  Pumped pumpTorn();

  /// The destination of the bytes of a kData or kChunk frame; empty if the frame is malformed.
  std::span<std::byte> destination(const wire::ReplyHeader& header, size_t bytes);
  bool peerGone() const;
  /// Ends all waits. The caller holds readMutex_: waiting threads may return from now on, so no thread may be writing a
  /// reply.
  void lose(const std::string& reason);
  /// The worker is gone: processes its last messages, such as replies and the reason, and loses the session.
  void readOutAndLose(const std::string& reason);
  /// TCP: sends buffered data, and reads replies meanwhile, so that two full sockets never wait for each other. A lost
  /// connection is restored. False: the session is lost.
  bool sendPending();
  /// Same, for a caller that holds sendMutex_.
  bool transmit();
  bool sendOnce();
  /// Waits until a full socket accepts data, and reads replies meanwhile.
  void waitToSend();
  /// Acknowledges received data if there is much of it, without waiting. The caller holds readMutex_.
  void acknowledge(Sender sender);
  void queueLinkWord(const wire::LinkWord& word);
  void queueReceived(wire::LinkMessage message) {
    queueLinkWord({message, 0, received_.load(std::memory_order_relaxed)});
  }
  static void* flusher(void* self);
  void flushUntilStopped();
  /// Wakes the flusher.
  void wakeFlusher();
  bool awaitsLandings() const { return asksForLandings_.load(std::memory_order_acquire) && awaitsLandings_(); }
  /// Spins for a moment, on the flusher, until there is data to send, if there are spare processors and nothing lands.
  bool spinsForUnsent();
  /// Gives the program a moment, on the flusher, to append more.
  void gather();
  /// Starts a thread of the session, with the program's signals blocked.
  bool startThread(pthread_t& thread, void* (*main)(void*));
  static void* lander(void* self);
  /// Shared memory: receives landings while no thread of the program waits.
  void landUntilStopped();
  /// On the flusher: receives landings until there is data to send, or nothing arrives for a moment. False: nothing
  /// lands.
  bool takeLandings();

  // The connection (session_connection.cpp)

  /// The connection has ended: the next sending thread restores it, unless no thread waits for that. The caller does
  /// not hold readMutex_.
  void cut(const std::string& reason);
  /// Same, for a caller that holds readMutex_.
  void cutWhileReading(const std::string& reason);
  /// Restores the connection. The caller holds sendMutex_. False: the session is lost.
  bool mend();
  bool reconnect();
  /// One attempt; returns the error, and whether another attempt may succeed.
  struct Attempt {
    std::string problem;
    bool final = false;
  };
  std::optional<Attempt> comeBack(int timeoutMs);
  bool takeOver(Channel channel, uint64_t received);
  /// Whether the connection has ended while no thread reads or sends.
  void lookAtConnection();

  Channel channel_;  // its descriptor number survives a reconnection
  bool remote_ = false;
  SessionMemory memory_;  // over TCP private to this side: the submit ring keeps unacknowledged data
  Snapshot snapshot_;

  std::mutex appendMutex_;
  RingProducer submit_;

  std::mutex sendMutex_;
  Outgoing outgoing_;                  // TCP: data to send next, and data that may have to be resent
  std::vector<std::byte> linkOut_;     // link frames, before that data
  std::atomic<uint64_t> sentHead_{0};  // sent position of the submit ring
  std::atomic<uint32_t> unsent_{0};
  std::atomic<bool> stop_{false};
  pthread_t flusherThread_{};
  bool hasFlusher_ = false;
  UniqueFd flusherWakeup_;  // wakes its poll
  /// State of the flusher: an appending thread wakes it only if it does not check by itself.
  enum class FlusherState : uint32_t { kAwake, kSleeps, kPolls };
  std::atomic<FlusherState> flusherState_{FlusherState::kAwake};
  std::mutex landerMutex_;
  pthread_t landerThread_{};  // shared memory; guarded by landerMutex_
  std::atomic<bool> hasLander_{false};
  std::atomic<uint32_t> landing_{0};  // 1: the lander checks for landings

  std::mutex readMutex_;  // its holder reads replies for all threads
  RingConsumer replies_;
  Inbox inbox_;
  std::atomic<uint64_t> received_{0};      // offset after the last complete frame of the worker's stream
  uint64_t acknowledged_ = 0;              // acknowledged part of that
  std::atomic<bool> acknowledges_{false};  // the next sending thread acknowledges it
  std::atomic<uint64_t> peerReceived_{0};  // part of this side's stream that the worker has
  /// Whether threads of the session may spin without taking processor time from the program's.
  const bool hasSpareCpus_ = usableCpus() >= 8;
  AdaptiveSpin spin_{hasSpareCpus_ ? kLongSpinNs : kShortSpinNs};

  Waiters waiters_;

  static constexpr size_t kBulkBytes = size_t{1} << 20;
  ClientLanes lanes_;
  bool isTorn_ = false;                    ///< frames were dropped; guarded by readMutex_
  std::mutex lanesMutex_;                  ///< held while lanes are opened
  std::atomic<bool> mayOpenLanes_{false};  ///< TCP: not tried over the present connection
  LanePause lanePause_;                    ///< guarded by sendMutex_

  Endpoint endpoint_;
  uint32_t graceSeconds_ = 0;
  bool canPark_ = false;  ///< as reported to the worker
  bool parks_ = false;    ///< as answered by the worker
  SessionSecret secret_{};
  ProcessWatch worker_;
  uint32_t attempt_ = 0;                // guarded by sendMutex_
  std::atomic<bool> isLeaving_{false};  // goodbye was sent
  std::atomic<bool> isDown_{false};     // the connection has ended and is not restored yet
  std::mutex downMutex_;
  std::string downReason_;

  std::atomic<bool> isParked_{false};  // TCP; changes under sendMutex_
  std::atomic<bool> isAsked_{false};   // TCP: the worker proposes to park the session
  std::atomic<uint64_t> askedAt_{0};   // the end of this side's stream then
  std::vector<std::byte> journal_;     // TCP: as last sent by the worker; guarded by readMutex_
  uint64_t base_ = 0;  // TCP: the start of this side's stream for this worker; guarded by sendMutex_ and readMutex_

  std::atomic<bool> lost_{false};
  std::string endReason_;
  std::function<void(const std::string&)> onLost_;
  std::function<void(const std::string&)> onLink_;
  Awaken onParked_;
  std::function<Status(Session&, std::span<const std::byte>)> onRestore_;
  std::function<void(int32_t, uint16_t, uint64_t)> onFailure_;
  OnOutput onOutput_;
  std::function<bool(uint64_t, uint64_t)> mayLand_;
  std::function<void(uint64_t)> onLanded_;
  std::function<bool()> awaitsLandings_;
  std::atomic<bool> asksForLandings_{false};  // it is called once set: the flusher runs before that
};

}  // namespace millpond
