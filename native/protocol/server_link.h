// SPDX-License-Identifier: Apache-2.0
// A worker's end of a session: reads commands out of memory that the client may change under it, writes replies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/ring.h"
#include "protocol/wire.h"

namespace millpond {

class ServerLink {
 public:
  /// Over shared memory `memory` is what the client maps; over TCP it is private and commands are received into it.
  ServerLink(UniqueFd socket, SessionMemory memory, bool remote);

  bool remote() const { return remote_; }
  SessionMemory& memory() { return memory_; }
  int socket() const { return socket_.get(); }

  /// One command. `body` lies in shared memory: copy before checking.
  struct Frame {
    wire::CommandHeader header;
    std::span<const std::byte> body;
    uint64_t end = 0;  ///< stream offset behind the frame
  };
  enum class Next { kFrame, kNothing, kGone, kBroken };
  /// Takes the next command if one is there. kBroken: `problem()` says why.
  Next next(Frame& frame);
  const std::string& problem() const { return problem_; }

  /// Gives the client the room of every command before `offset` back.
  void release(uint64_t offset) { commands_.release(offset); }
  uint64_t position() const { return commands_.position(); }
  /// Sleeps until a command may be there, `wake` was called, or `timeoutNs` passed.
  void sleep(int64_t timeoutNs);
  /// Ends a `sleep`, from any thread.
  void wake();
  /// Whether something that `sleep` waits for has come.
  bool ready();

  /// Appends a reply frame whose body is the given runs one behind the other. False: the client is gone.
  template <typename... Runs>
  bool reply(wire::ReplyKind kind, uint16_t op, uint32_t request, int32_t result, Runs... runs) {
    const std::span<const std::byte> parts[] = {runs..., {}};
    return write({0, kind, op, request, result}, parts);
  }
  bool reply(wire::ReplyKind kind, uint16_t op, uint32_t request, int32_t result) {
    return write({0, kind, op, request, result}, {});
  }
  /// Tells the client why this is the end, and over TCP waits, not for long, until it has taken that. Nothing can be
  /// sent afterwards.
  void end(const std::string& reason);

 private:
  bool write(wire::ReplyHeader header, std::span<const std::span<const std::byte>> parts);
  bool writeRing(const wire::ReplyHeader& header, std::span<const std::span<const std::byte>> parts);
  bool writeSocket(const wire::ReplyHeader& header, std::span<const std::span<const std::byte>> parts, size_t body);
  Next receive();

  UniqueFd socket_;
  UniqueFd wakeup_;  // TCP: makes poll return
  SessionMemory memory_;
  bool remote_;
  RingConsumer commands_;
  RingProducer incoming_;  // TCP
  RingProducer replies_;   // shared memory
  int64_t patienceNs_;
  std::string problem_;
};

}  // namespace millpond
