// SPDX-License-Identifier: Apache-2.0
// A worker's end of a session: reads commands out of memory that the client may change under it, writes replies.
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
#include "protocol/transport/channel.h"
#include "protocol/transport/outgoing.h"
#include "protocol/wire.h"

namespace millpond {

class ServerLink {
 public:
  /// Over shared memory the client maps `memory`; over TCP it is private: commands are received into it, and replies stay in it
  /// until the client has them. `graceSeconds`: how long the link waits for a client whose TCP connection was lost; 0: not at
  /// all.
  ServerLink(Channel channel, SessionMemory memory, bool remote, uint32_t graceSeconds = 0);

  bool remote() const { return remote_; }
  SessionMemory& memory() { return memory_; }
  int socket() const { return channel_.socket(); }

  /// One command. Its beginning was copied out of shared memory, so that two reads of it see the same.
  class Frame {
   public:
    wire::CommandHeader header;
    uint64_t end = 0;  ///< stream offset behind the frame

    /// The copy: at most wire::kHeadBytes of the body, all of a short one.
    std::span<const std::byte> head() const { return {head_.data(), std::min(bytes_, head_.size())}; }
    /// All of it. What a long one has behind its head lies in shared memory: copy before checking.
    std::span<const std::byte> body() const { return bytes_ <= head_.size() ? head() : std::span(ring_, bytes_); }

   private:
    friend class ServerLink;
    void take(const std::byte* ring, size_t bytes) {
      ring_ = ring;
      bytes_ = bytes;
      if (bytes) std::memcpy(head_.data(), ring, std::min(bytes, head_.size()));
    }

    const std::byte* ring_ = nullptr;
    size_t bytes_ = 0;
    std::array<std::byte, wire::kHeadBytes> head_;
  };
  enum class Next { kFrame, kNothing, kGone, kBroken };
  /// Takes the next command if one is there. kBroken: `problem()` says why.
  Next next(Frame& frame);
  const std::string& problem() const { return problem_; }
  /// What the client wrote into the control words of its replies cannot be: nothing more can be sent.
  bool isBroken() const { return replies_.isBroken(); }

  /// From here on small replies of one look at the commands go to the socket together: with the next `next`, `ready` or
  /// `sleep`. Over shared memory each is there at once.
  void collectReplies() { collects_ = remote_; }

  /// Gives the client the room of every command before `offset` back.
  void release(uint64_t offset) { commands_.release(offset); }
  uint64_t position() const { return commands_.position(); }
  /// Sleeps until a command may be there, `wake` was called, or `timeoutNs` passed.
  void sleep(int64_t timeoutNs);
  /// Ends a `sleep`, from any thread.
  void wake();
  /// Stops waiting for the client, whether it does not take its replies or is away. From any thread.
  void giveUp();
  /// Another connection of the client, which has every reply before `received`, from any thread. The client is answered
  /// when the link has got to it.
  void offer(Channel channel, uint64_t received);
  /// Whether something that `sleep` waits for has come.
  bool ready();

  /// Appends a reply frame whose body is the given runs one behind the other, at most wire::kMaxReplyBytes in all. False:
  /// the client is gone, or `problem()` says why it could not be written.
  template <typename... Runs>
  bool reply(wire::ReplyKind kind, uint16_t op, uint32_t request, int32_t result, Runs... runs) {
    const std::span<const std::byte> parts[] = {runs..., {}};
    return write({0, kind, op, request, result}, parts, {});
  }
  bool reply(wire::ReplyKind kind, uint16_t op, uint32_t request, int32_t result) {
    return write({0, kind, op, request, result}, {}, {});
  }
  /// As `reply` over TCP, with `lent` behind the body: it must stay as it is until `acknowledged` has reached what
  /// `replied` is afterwards.
  bool replyLending(wire::ReplyKind kind, uint16_t op, uint32_t request, std::span<const std::byte> body,
                    std::span<const std::byte> lent) {
    const std::span<const std::byte> parts[] = {body};
    return write({0, kind, op, request, 0}, parts, lent);
  }
  uint64_t replied() const { return outgoing_.end(); }
  uint64_t acknowledged() const { return outgoing_.acknowledged(); }
  /// Called when the connection was lost and is waited for, and when the client is back, with a sentence.
  void onLink(std::function<void(const std::string&)> callback) { onLink_ = std::move(callback); }
  /// Tells the client why this is the end, and over TCP waits, not for long, until it has taken that. Nothing can be
  /// sent afterwards.
  void end(const std::string& reason);
  /// Parks the session, if all that came was taken and released, all that was said has arrived, and nothing comes at this
  /// moment: over shared memory at once, over TCP when the client has agreed, for which this is called again. Only where
  /// the client said that it can. `journal`: what the client has to know to go on, at most wire::kMaxJournalBytes. True:
  /// nothing of the client will be taken any more, and it knows where it has to go on.
  bool park(std::span<const std::byte> journal = {});
  /// The client has agreed: there is no way back.
  bool isParked() const { return isParked_; }

 private:
  struct Offer {
    Channel channel;
    uint64_t received;
  };
  /// Where other threads put what they have for this one.
  struct Door {
    std::mutex mutex;
    std::optional<Offer> offer;
    std::atomic<bool> isOffered{false};
    std::atomic<bool> hasGivenUp{false};
    std::atomic<bool> isWoken{false};  ///< shared memory: the next sleep is none
  };
  /// How far the commands go that came whole, and how much of that belongs to the link.
  struct Received {
    uint64_t end = 0;
    uint64_t linkBytes = 0;
  };

  bool write(wire::ReplyHeader header, std::span<const std::span<const std::byte>> parts,
             std::span<const std::byte> lent);
  bool writeRing(const wire::ReplyHeader& header, std::span<const std::span<const std::byte>> parts);
  void keep(const wire::ReplyHeader& header, std::span<const std::span<const std::byte>> parts, size_t bytes);
  /// Sends what is there. False: the client is gone.
  bool transmit();
  /// As that, for replies that were collected.
  bool sendCollected();
  /// Waits until the client has acknowledged enough that there is room for more bytes that may have to be sent again.
  bool waitForRoom();
  void forgetWake();
  Next receive();
  /// What came of one look at the socket.
  Next receiveBytes();
  /// The connection has ended.
  Next lose(const std::string& why);
  /// Takes over the client's other connection.
  Next resume(Offer offer);
  std::optional<Offer> takeOffer();
  /// Looks through the frames that were not taken yet, for those that concern the link.
  Received lookAhead();
  bool takeLinkFrame(std::span<const std::byte> body);
  bool acknowledge(uint64_t received);
  void tellReceived();
  /// Over shared memory: leaves it where nothing else lies while the client waits for nothing.
  void leaveJournal(std::span<const std::byte> journal);
  bool sendJournal(std::span<const std::byte> journal);
  /// Puts a frame of the link on its way. The one before must have gone.
  void say(wire::LinkMessage message, uint64_t received);
  /// The offset in the stream of the client behind the last command taken.
  uint64_t taken() const { return commands_.position() - linkBytes_; }

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
  bool isBroken_ = false;   // the client came back with nonsense
  bool isParked_ = false;
  std::optional<uint64_t> parkAt_;  // TCP: what the client was told to have taken when it was asked
  int64_t returnBy_ = 0;
  uint64_t linkBytes_ = 0;  // of the commands taken, those of the link
  uint64_t toldReceived_ = 0;
  std::vector<std::byte> word_;  // a frame of the link on its way
  std::unique_ptr<Door> door_;
  std::function<void(const std::string&)> onLink_;
};

}  // namespace millpond
