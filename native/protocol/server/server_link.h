// SPDX-License-Identifier: Apache-2.0
// A worker's end of a session: reads commands from memory that the client may change concurrently, writes replies.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
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
#include "protocol/rings/ring.h"
#include "protocol/server/server_lanes.h"
#include "protocol/transport/channel.h"
#include "protocol/transport/outgoing.h"
#include "protocol/wire.h"

namespace millpond {

class ServerLink {
 public:
  /// Over shared memory the client maps `memory`; over TCP it is private: commands are received into it, and replies
  /// stay in it until the client has acknowledged them. `graceSeconds`: how long the link waits for a client whose TCP
  /// connection was lost; 0: not at all.
  ServerLink(Channel channel, SessionMemory memory, bool remote, uint32_t graceSeconds = 0);

  bool remote() const { return remote_; }
  SessionMemory& memory() { return memory_; }
  int socket() const { return channel_.socket(); }

  /// One command. Its head is a copy from shared memory, so that two reads of it return the same.
  class Frame {
   public:
    wire::CommandHeader header;
    uint64_t begin = 0;  ///< offset of the frame in the ring
    uint64_t end = 0;    ///< offset in the ring after it
    uint64_t start = 0;  ///< offset of the frame in the client's stream, which has no frames of the link
    /// Keeps the memory beside the ring that holds the body; null: the ring holds it.
    std::shared_ptr<const void> keeper;

    /// The copy: at most wire::kHeadBytes of the body, which is all of a short one.
    std::span<const std::byte> head() const { return {head_.data(), std::min(bytes_, head_.size())}; }
    /// The whole body. The part of a long command after its head is in shared memory: copy it before checking.
    std::span<const std::byte> body() const { return bytes_ <= head_.size() ? head() : std::span(memory_, bytes_); }

   private:
    friend class ServerLink;
    void take(const std::byte* memory, size_t bytes) {
      memory_ = memory;
      bytes_ = bytes;
      if (bytes) std::memcpy(head_.data(), memory, std::min(bytes, head_.size()));
    }

    const std::byte* memory_ = nullptr;
    size_t bytes_ = 0;
    std::array<std::byte, wire::kHeadBytes> head_;
  };
  enum class Next { kFrame, kNothing, kGone, kBroken };
  /// Takes the next command if there is one. kBroken: `problem()` has the reason.
  Next next(Frame& frame);
  const std::string& problem() const { return problem_; }
  /// The control words of the replies, which the client writes, are impossible: nothing more can be sent.
  bool isBroken() const { return replies_.isBroken(); }

  /// From now on small replies of one batch of commands are sent together: with the next `next`, `ready` or `sleep`.
  /// Over shared memory each is visible immediately.
  void collectReplies() { collects_ = remote_; }

  /// Releases the space of every command before `offset` to the client.
  void release(uint64_t offset) { commands_.release(offset); }
  uint64_t position() const { return commands_.position(); }
  /// Sleeps until a command may be ready, `wake` was called, or `timeoutNs` have passed.
  void sleep(int64_t timeoutNs);
  /// Ends a `sleep`; may be called on any thread.
  void wake();
  /// Stops waiting for the client, whether it reads no replies or is disconnected; may be called on any thread.
  void giveUp();
  /// Another connection of the client, which has every reply before `received`; may be called on any thread. The client
  /// gets its answer when the link has processed the connection.
  void offer(Channel channel, uint64_t received);
  /// A lane of the client's present connection; may be called on any thread. The client gets its answer when the link has
  /// processed it.
  void offerLane(Channel channel, uint32_t lane, uint32_t count);
  /// `memory`: called for the memory that lanes receive into, of that many bytes; null: there is none, and the client has no
  /// lanes.
  void receiveLanesInto(std::function<std::shared_ptr<std::byte>(size_t)> memory) { laneMemory_ = std::move(memory); }
  /// Ends the lanes, and with them the use of that memory.
  void endLanes() {
    lanes_.reset();
    laneEndedNs_ = 0;
  }
  /// Whether replies may use lanes.
  bool usesLanes() const { return lanes_ && lanes_->areOpen(); }
  /// Whether few blocks of the lanes are left.
  bool areLanesLow() const { return lanes_ && lanes_->areLow(); }
  /// Whether an event that `sleep` waits for has happened.
  bool ready();

  /// Appends a reply frame whose body consists of the given runs, at most wire::kMaxReplyBytes in all. Returns false if
  /// the client is gone, or with a reason in `problem()`.
  template <typename... Runs>
  bool reply(wire::ReplyKind kind, uint16_t op, uint32_t request, int32_t result, Runs... runs) {
    const std::span<const std::byte> parts[] = {runs..., {}};
    return write({0, kind, op, request, result}, parts, {});
  }
  bool reply(wire::ReplyKind kind, uint16_t op, uint32_t request, int32_t result) {
    return write({0, kind, op, request, result}, {}, {});
  }
  /// As `reply` over TCP, with `lent` after the body: it must not change until `acknowledged` has reached the value of
  /// `replied` after this call.
  bool replyLending(wire::ReplyKind kind, uint16_t op, uint32_t request, std::span<const std::byte> body,
                    std::span<const std::byte> lent) {
    const std::span<const std::byte> parts[] = {body};
    return write({0, kind, op, request, 0}, parts, lent);
  }
  /// `mayKeep`: called with the bytes that are to be kept for a client that takes no replies, beyond those that every
  /// link may keep, and with less when it has taken them. If it returns false, nothing more is sent.
  void keepWithin(std::function<bool(size_t)> mayKeep) { mayKeep_ = std::move(mayKeep); }
  uint64_t replied() const { return outgoing_.end(); }
  uint64_t acknowledged() const {
#ifdef __SANITIZE_THREAD__
    // A piece that the client has received was read before; the thread sanitizer does not see that order.
    if (lanes_) lanes_->awaitSent();
#endif
    return outgoing_.acknowledged();
  }
  /// Called with a sentence when the connection is lost and awaited, and when the client has returned.
  void onLink(std::function<void(const std::string&)> callback) { onLink_ = std::move(callback); }
  /// Sends the client the reason of the end, and over TCP waits, briefly, until it has read it. Nothing can be sent
  /// afterwards.
  void end(const std::string& reason);
  /// Parks the session, if all received commands were taken and released, all replies were acknowledged, and nothing
  /// arrives at this moment: over shared memory immediately, over TCP after the client has agreed, for which this is
  /// called again. Only if the client supports it. `journal`: data that the client needs to continue, at most
  /// wire::kMaxJournalBytes. True: no more commands of the client will be taken, and it knows where to continue.
  bool park(std::span<const std::byte> journal = {});
  /// The client has agreed: parking cannot be undone.
  bool isParked() const { return isParked_; }

 private:
  struct Offer {
    Channel channel;
    uint64_t received;
  };
  struct LaneOffer {
    Channel channel;
    uint32_t lane;
    uint32_t count;
  };
  /// The last bytes of the next frame, on a lane.
  struct Tail {
    uint32_t lane;
    size_t bytes;
  };
  /// Requests of other threads to this one.
  struct Door {
    std::mutex mutex;
    std::optional<Offer> offer;
    std::vector<LaneOffer> lanes;
    std::atomic<bool> isOffered{false};  ///< one of these
    std::atomic<bool> hasGivenUp{false};
    std::atomic<bool> isWoken{false};  ///< shared memory: the next sleep returns immediately
  };
  /// End of the complete commands received, and the part of that which belongs to the link.
  struct Received {
    uint64_t end = 0;
    uint64_t linkBytes = 0;
  };

  bool write(wire::ReplyHeader header, std::span<const std::span<const std::byte>> parts,
             std::span<const std::byte> lent);
  bool writeRing(const wire::ReplyHeader& header, std::span<const std::span<const std::byte>> parts);
  bool keep(const wire::ReplyHeader& header, std::span<const std::span<const std::byte>> parts, size_t bytes);
  /// Sends pending data. False: the client is gone.
  bool transmit();
  /// Same, for collected replies.
  bool sendCollected();
  /// Waits until the client has acknowledged enough for more bytes that may have to be resent.
  bool waitForRoom();
  /// Whether replies beyond kManyOwnBytes may be kept.
  bool mayKeepMore();
  void forgetWake();
  Next receive();
  /// The result of one read of the socket.
  Next receiveBytes();
  /// Same, while one of the lanes has ended. A client that leaves says goodbye over the main connection, which may arrive later
  /// than the end of its lanes.
  Next receiveWithoutLane();
  /// The connection has ended. `isClosed`: by the other end, not because it did not respond.
  Next lose(const std::string& why, bool isClosed = false);
  /// Switches to the client's new connection.
  Next resume(Offer offer);
  /// Handles what other threads have offered.
  Next takeOffers();
  void takeLane(LaneOffer offer);
  /// Whether the next frame is there but for data on a lane.
  bool awaitsLane() const { return tail_ && !(lanes_ && tail_->lane < lanes_->size() && lanes_->has(tail_->lane)); }
  /// Takes the frame of `bytes` bytes whose header was read and whose data has arrived on a lane.
  Next takeFromLane(Frame& frame, size_t inRing);
  bool takeLaneWord(const wire::LinkWord& word);
  /// Sends the data of the next frame over a lane, if that is possible.
  void useLane();
  /// Scans frames that were not taken yet for link frames. `stopsAtLanes`: at the first frame with data on a lane.
  Received lookAhead(bool stopsAtLanes);
  static wire::LinkWord wordOf(std::span<const std::byte> body);
  bool takeLinkWord(const wire::LinkWord& word);
  bool acknowledge(uint64_t received);
  void tellReceived();
  /// Over shared memory: writes it where there is no other data while the client waits for nothing.
  void leaveJournal(std::span<const std::byte> journal);
  bool sendJournal(std::span<const std::byte> journal);
  /// Queues a link frame. The previous one must have been sent.
  void say(wire::LinkMessage message, uint64_t received);
  /// The offset in the client's stream after the last command taken.
  uint64_t taken() const { return commands_.position() - linkBytes_ + laneBytes_; }

  Channel channel_;
  UniqueFd wakeup_;  // TCP: makes poll return
  SessionMemory memory_;
  bool remote_;
  RingConsumer commands_;
  RingProducer incoming_;  // TCP
  RingProducer replies_;
  int64_t patienceNs_;
  std::string problem_ = "the client closed the connection";

  Outgoing outgoing_;  // TCP
  bool collects_ = false;
  size_t collectedBytes_ = 0;
  bool isStuck_ = false;  // they could not be sent
  int64_t graceNs_;
  bool isAway_ = false;
  bool isLeaving_ = false;  // the client said goodbye
  bool isBroken_ = false;   // the client reconnected with invalid data
  bool isParked_ = false;
  std::optional<uint64_t> parkAt_;  // TCP: the reported position when the client was asked
  int64_t awaitedNs_ = 0;           ///< while it is away: longest time since then
  int64_t returnBy_ = 0;
  uint64_t linkBytes_ = 0;  // link frames among the commands taken
  uint64_t laneBytes_ = 0;  // parts of the commands taken that came over lanes
  std::unique_ptr<ServerLanes> lanes_;
  std::optional<Tail> tail_;
  int64_t laneEndedNs_ = 0;  ///< when a lane was first seen to have ended; 0: none has
  static constexpr int64_t kLaneLookNs = 10'000'000;
  std::function<std::shared_ptr<std::byte>(size_t)> laneMemory_;
  uint64_t toldReceived_ = 0;
  std::vector<std::byte> word_;  // a link frame being sent
  std::unique_ptr<Door> door_;
  std::function<void(const std::string&)> onLink_;
  std::function<bool(size_t)> mayKeep_;
  size_t beyond_ = 0;  ///< as last passed to it
};

}  // namespace millpond
