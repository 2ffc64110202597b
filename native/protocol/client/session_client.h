// SPDX-License-Identifier: Apache-2.0
// A client's end of a session: appends commands to the one stream that all its threads share, and waits for answers.
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

/// What a lost session answers to everything: CUDA_ERROR_DEVICE_UNAVAILABLE.
inline constexpr int32_t kSessionLost = 46;

class Session {
 public:
  /// Who calls: both go into the frame's header.
  struct Caller {
    uint16_t context = 0;
    uint32_t thread = 0;
  };

  using Answer = Waiters::Answer;

  /// Connects, presents the ticket and receives the snapshot. `greet` overrides protocol and API hash in tests.
  static Result<std::unique_ptr<Session>> connect(const Endpoint& endpoint, const Hello* greet = nullptr);
  /// A session on a connection that a worker has welcomed already.
  static Result<std::unique_ptr<Session>> of(OpenedSession opened, const Endpoint& endpoint);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Snapshot& snapshot() const { return snapshot_; }
  /// The worker is reached over TCP: memory cannot be shared with it.
  bool remote() const { return remote_; }
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  /// It has no worker until the next command.
  bool isParked() const {
    return remote_ ? isParked_.load(std::memory_order_acquire)
                   : control().submit.consumerState.load(std::memory_order_acquire) == kClosed;
  }
  /// Whether it may be parked at all.
  bool parks() const { return parks_; }
  /// Of a session that is parked: puts what `revise` makes of its journal, which is no longer, in its place. False: it is
  /// not parked, and `revise` was not called.
  using Revise = std::function<std::vector<std::byte>(std::span<const std::byte>)>;
  bool reviseJournal(const Revise& revise);
  /// For how long this session waits for a lost connection to come back; 0: not at all.
  uint32_t graceSeconds() const { return graceSeconds_; }

  /// Appends a command of `bodyBytes` bytes (a multiple of 8) that `fill` writes, and returns. False: session lost.
  template <typename Fill>
  bool post(uint16_t op, Caller caller, size_t bodyBytes, Fill&& fill) {
    std::lock_guard lock(appendMutex_);
    std::byte* place = begin(op, caller, 0, bodyBytes, 0);
    if (!place) return false;
    fill(place);
    return commit(sizeof(wire::CommandHeader) + bodyBytes);
  }

  /// Whose the data of a command is when the call has returned.
  enum class Data {
    kCallers,  ///< the caller's again
    kLent,     ///< the session's, until any later command of the caller's thread has been waited for
  };
  /// As `post`, with `data` behind the body; cheaper than writing it in `fill` where it is large. The whole frame must not
  /// exceed wire::kMaxFrameBytes.
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

  /// Offset in the stream behind all commands that were appended.
  uint64_t appended() {
    std::lock_guard lock(appendMutex_);
    return endOfStream();
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
  /// Sends a file, which the worker takes with the next command that wants one. Same host only.
  Status sendFile(int file);
  /// The process is about to end: the worker need not wait for it when the connection ends. Commands go on until then.
  void sayGoodbye();
  /// In a forked child: forgets the connection without a word to the worker.
  void abandon();

  /// Called on the thread that finds it out, once, with the reason.
  void onLost(std::function<void(const std::string&)> callback) { onLost_ = std::move(callback); }
  /// Called when the connection was lost for longer than a moment, and when it is back then, with a sentence.
  void onLink(std::function<void(const std::string&)> callback) { onLink_ = std::move(callback); }
  /// The worker may end the session between two commands, when it has been idle and can be made again: the program does not
  /// notice, and the next command goes to another worker. This is called for that, on the thread that needs it, with commands
  /// waiting: it returns where that worker is, and may take its time. Where there is none it says whether a later command may
  /// ask again: then only this one fails, and the session stays parked. Set before the first command; for a session whose
  /// endpoint says that it can be parked.
  using Awaken = std::function<Result<Endpoint>(bool& mayAskAgain)>;
  void onParked(Awaken callback) { onParked_ = std::move(callback); }
  /// Called next with a session of that worker's, which has to become like the parked one by the journal that the worker of
  /// that one left: commands, as frames. All that it does is done when it returns.
  void onRestore(std::function<Status(Session&, std::span<const std::byte>)> callback) {
    onRestore_ = std::move(callback);
  }
  /// Called when the worker reports the failure of a command that nobody waited for (code, op, position).
  void onFailure(std::function<void(int32_t, uint16_t, uint64_t)> callback) { onFailure_ = std::move(callback); }
  using OnOutput = std::function<void(wire::OutputStream, std::span<const std::byte>)>;
  /// Called with what kernels have printed, before the answer of whoever waited for them, and with what the driver has said
  /// about a failure, before that is told.
  void onOutput(OnOutput callback) { onOutput_ = std::move(callback); }
  /// Whether bytes from the worker may be written to [address, address + bytes) without anybody waiting for them. What
  /// may not is dropped, as is everything while no one is set to be asked. Called on the thread that reads.
  void onLanding(std::function<bool(uint64_t, uint64_t)> mayLand) { mayLand_ = std::move(mayLand); }
  /// Says whether bytes are on their way that nobody need wait for: then a thread of the session's takes them as they come
  /// while the program does something else. Over shared memory it is started by `expectLanding`.
  void onLandingsAwaited(std::function<bool()> areAwaited) {
    awaitsLandings_ = std::move(areAwaited);
    asksForLandings_.store(true, std::memory_order_release);
  }
  /// Before a command that makes bytes land. False: there can be no thread that takes them.
  bool expectLanding();
  /// Called when all bytes of a landing are there, or none will come any more, with its number. On the thread that reads.
  void onLanded(std::function<void(uint64_t)> callback) { onLanded_ = std::move(callback); }

 private:
  using Waiter = Waiters::Waiter;
  /// As long as most copies and kernels take where processors are to spare, as the driver itself does: waking a core that
  /// sleeps can take as long as a short kernel. Elsewhere only for what comes at once.
  static constexpr int64_t kLongSpinNs = 5'000'000;
  static constexpr int64_t kShortSpinNs = 50'000;
  /// How long a sleeper goes without looking whether the worker is still there.
  static constexpr int64_t kLivenessNs = 50'000'000;

  Session() = default;
  static Result<std::unique_ptr<Session>> establish(const Endpoint& endpoint, bool isParked, const Hello* greet);
  /// Finds its way to that worker again, and to this session.
  void remember(const Endpoint& endpoint, const Welcome& welcome);
  void useRings();
  SharedControl& control() const { return memory_.control(); }

  std::byte* begin(uint16_t op, Caller caller, uint32_t request, size_t bodyBytes, size_t dataBytes,
                   bool dataInRing = true);
  /// Offset behind all that was appended. The caller holds appendMutex_.
  uint64_t endOfStream() const { return submit_.head() + outgoing_.lentBytes(); }
  enum class Flush : bool { kSoon, kByCaller };
  /// Hands a frame over. Over TCP it goes with others: when there are many bytes, soon by itself, or, where that is in
  /// vain, when the caller calls sendPending.
  bool commit(size_t frameBytes, Flush flush = Flush::kSoon);
  bool commitCopied(size_t bodyBytes, std::span<const std::byte> data);
  /// TCP: straight from the caller's memory to the socket.
  bool commitLent(size_t bodyBytes, std::span<const std::byte> data);
  bool waitForSpace(size_t bytes);

  // Parking (session_parking.cpp)

  /// Another session in place of the one that was parked, on devices of the same kind and over the same transport, in which
  /// everything is as it was.
  Result<std::unique_ptr<Session>> reopen(std::span<const std::byte> journal, bool& mayAskAgain);
  /// Of a session that goes on as another one: nobody uses it any more but who takes its parts. False: it ended meanwhile.
  bool retire();
  /// Shared memory: what the worker left.
  std::vector<std::byte> leftJournal() const;
  /// Shared memory: the worker closed the ring before it saw what was published last. Takes that to another session. The
  /// caller holds appendMutex_. False: it could not, and what was published last is taken back.
  bool goOnWithRing();
  Status replaceRing(Session& fresh);
  /// TCP: the same, before anything is appended. The caller holds appendMutex_. False: it could not.
  bool goOnWithStream();
  bool replaceStream(Session& fresh);
  /// TCP: agrees to be parked, if it was proposed and there is nothing to be done.
  void considerParking();

  /// Returns when nobody writes into the waiter's answer any more.
  int32_t await(Waiter& waiter, uint32_t request);

  /// Reads what has come; with `until`, goes on until that waiter is done or the connection has ended. The caller holds
  /// readMutex_, and says whether it holds sendMutex_, too.
  enum class Sender : bool { kOther, kThis };
  void pump(const Waiter* until, Sender sender);
  enum class Pumped { kSome, kNothing, kBroken, kCut };
  Pumped pumpRing();
  Pumped pumpSocket();
  void sleepForReplies();
  /// Handles the frame at `frame`; false when it makes no sense.
  bool accept(const wire::ReplyHeader& header, std::span<const std::byte> body);
  /// Takes the rest of a kData or kLanding frame straight to where it belongs.
  Pumped receiveData(const wire::ReplyHeader& header);
  Pumped receiveBody(std::span<std::byte> to, size_t frameBytesLeft);
  /// Fills `to` with what comes next on the socket. False: the connection has ended.
  bool take(std::span<std::byte> to);
  bool acceptLinkWord(std::span<const std::byte> body);
  /// Where the bytes of a kData or kChunk frame go; empty when the frame makes no sense.
  std::span<std::byte> destination(const wire::ReplyHeader& header, size_t bytes);
  bool peerGone() const;
  /// Ends all waiting. The caller holds readMutex_: who waits may leave from here on, so nobody may be in the midst of
  /// writing an answer.
  void lose(const std::string& reason);
  /// The worker is gone: takes in what it said last, answers and the reason perhaps, and loses the session.
  void readOutAndLose(const std::string& reason);
  /// TCP: sends what is buffered; meanwhile takes replies in, so that two full sockets never wait for each other. A
  /// connection that has ended is made again. False: session lost.
  bool sendPending();
  /// As that, for who holds sendMutex_.
  bool transmit();
  bool sendOnce();
  /// Waits until a full socket takes something, and reads what comes meanwhile.
  void waitToSend();
  /// Tells the worker what has come when that is much, without waiting. The caller holds readMutex_.
  void acknowledge(Sender sender);
  void queueLinkWord(wire::LinkMessage message);
  static void* flusher(void* self);
  void flushUntilStopped();
  /// There is something for the flusher.
  void wakeFlusher();
  bool awaitsLandings() const { return asksForLandings_.load(std::memory_order_acquire) && awaitsLandings_(); }
  /// Spins for a moment, on the flusher, until there is something to send, where there are processors to spare and nothing
  /// lands.
  bool spinsForUnsent();
  /// Leaves the program, on the flusher, a moment to append more.
  void gather();
  /// Starts a thread of the session's, with the program's signals blocked.
  bool startThread(pthread_t& thread, void* (*main)(void*));
  static void* lander(void* self);
  /// Shared memory: takes landings while no thread of the program waits.
  void landUntilStopped();
  /// Of the flusher: takes what lands, until there is something to send, or nothing comes for a moment. False: nothing
  /// lands.
  bool takeLandings();

  // The connection (session_connection.cpp)

  /// The connection has ended: it is made again by whoever sends next, unless nobody waits for that. The caller does not
  /// hold readMutex_.
  void cut(const std::string& reason);
  /// As that, for who holds readMutex_.
  void cutWhileReading(const std::string& reason);
  /// Makes the connection again. The caller holds sendMutex_. False: session lost.
  bool mend();
  bool reconnect();
  /// One attempt; what is wrong, and whether another one may do better.
  struct Attempt {
    std::string problem;
    bool final = false;
  };
  std::optional<Attempt> comeBack(int timeoutMs);
  bool takeOver(Channel channel, uint64_t received);
  /// Whether the connection has ended while nobody reads or sends.
  void lookAtConnection();

  Channel channel_;  // its number stays the same when the connection is made again
  bool remote_ = false;
  SessionMemory memory_;  // over TCP private to this side: the submit ring keeps what the worker does not have
  Snapshot snapshot_;

  std::mutex appendMutex_;
  RingProducer submit_;

  std::mutex sendMutex_;
  Outgoing outgoing_;                  // TCP: what goes to the socket next, and what may have to go again
  std::vector<std::byte> linkOut_;     // frames of the link, before that
  std::atomic<uint64_t> sentHead_{0};  // how far the submit ring was sent
  std::atomic<uint32_t> unsent_{0};
  std::atomic<bool> stop_{false};
  pthread_t flusherThread_{};
  bool hasFlusher_ = false;
  UniqueFd flusherWakeup_;  // makes its poll return
  /// Where the flusher is: a thread that appends wakes it only if it does not look by itself.
  enum class FlusherState : uint32_t { kAwake, kSleeps, kPolls };
  std::atomic<FlusherState> flusherState_{FlusherState::kAwake};
  std::mutex landerMutex_;
  pthread_t landerThread_{};  // shared memory; guarded by landerMutex_
  std::atomic<bool> hasLander_{false};
  std::atomic<uint32_t> landing_{0};  // 1: the lander looks for what lands

  std::mutex readMutex_;  // whoever holds it reads replies for everybody
  RingConsumer replies_;
  Inbox inbox_;
  std::atomic<uint64_t> received_{0};      // offset behind the last whole frame of the worker's stream
  uint64_t acknowledged_ = 0;              // how much of that was acknowledged
  std::atomic<bool> acknowledges_{false};  // whoever sends next tells it
  std::atomic<uint64_t> peerReceived_{0};  // how much of this side's stream the worker has
  /// Threads of the session's may spin without taking time from the program's.
  const bool hasSpareCpus_ = usableCpus() >= 8;
  AdaptiveSpin spin_{hasSpareCpus_ ? kLongSpinNs : kShortSpinNs};

  Waiters waiters_;

  Endpoint endpoint_;
  uint32_t graceSeconds_ = 0;
  bool canPark_ = false;  ///< as the worker was told
  bool parks_ = false;    ///< as it answered
  SessionSecret secret_{};
  ProcessWatch worker_;
  uint32_t attempt_ = 0;                // guarded by sendMutex_
  std::atomic<bool> isLeaving_{false};  // goodbye was said
  std::atomic<bool> isDown_{false};     // the connection has ended and was not made again yet
  std::mutex downMutex_;
  std::string downReason_;

  std::atomic<bool> isParked_{false};  // TCP; changes under sendMutex_
  std::atomic<bool> isAsked_{false};   // TCP: the worker would park the session
  std::atomic<uint64_t> askedAt_{0};   // where this side's stream ended then
  std::vector<std::byte> journal_;     // TCP: as the worker sent it last; guarded by readMutex_
  uint64_t base_ = 0;  // TCP: where this side's stream began for this worker; guarded by sendMutex_ and readMutex_

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
  std::atomic<bool> asksForLandings_{false};  // it is set: the flusher runs before that
};

}  // namespace millpond
