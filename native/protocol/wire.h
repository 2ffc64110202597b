// SPDX-License-Identifier: Apache-2.0
// The wire protocol between a client and its worker: two byte streams of frames, one in each direction.
//
// A frame is a header and a body, a multiple of 8 bytes long. The position of a frame is the offset of its first byte
// in its stream. Offsets only grow, so they number the frames, and say how much was received and what to resend. Over
// shared memory a stream is a ring; over TCP each side keeps the same ring and the socket carries its bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millpond::wire {

/// The version of framing and handshake. The commands have their own hash (gen/api_hash.h).
inline constexpr uint32_t kProtocolVersion = 6;

/// Client → worker. The body is one of gen/commands.h.
struct CommandHeader {
  uint32_t bytes;    ///< whole frame, header included, a multiple of 8
  uint16_t op;       ///< cmd::Op
  uint16_t context;  ///< number of the current context: 1 + ordinal for the devices' primary ones; 0 = none
  uint32_t request;  ///< echoed in the reply; 0: no thread waits
  uint32_t thread;   ///< number of the calling thread in the client process, for the log
};
static_assert(sizeof(CommandHeader) == 16);

enum class ReplyKind : uint16_t {
  kResult = 1,   ///< the end of a waiting command: result and body
  kData = 2,     ///< bytes for a waiting command that is not finished; padded to 8, `op` counts the padding
  kChunk = 3,    ///< as kData, but the bytes are in a staging chunk: body is ChunkReady
  kFailure = 4,  ///< a command without a waiting thread failed: body is FailureReport
  kEnd = 5,      ///< the worker ends the session: body is the reason as text
  kLanding = 6,  ///< bytes for client memory named by an earlier asynchronous copy: body is Landing, then the bytes
  kOutput = 7,   ///< text for the stream in `result` (OutputStream); padded to 8, `op` counts the padding
  kLink = 8,     ///< of the link: body is LinkWord
  kJournal =
      9,  ///< TCP: a piece of the journal of a session that may be parked next; padded to 8, `op` counts the padding,
          ///< `request` is 0 for the first piece
};

/// Destination of text in the program.
enum class OutputStream : int32_t { kOutput = 0, kError = 1 };

/// Worker → client.
struct ReplyHeader {
  uint32_t bytes;  ///< whole frame, header included, a multiple of 8
  ReplyKind kind;
  uint16_t op;       ///< of the command; padding bytes for kData
  uint32_t request;  ///< 0 if no thread waits
  int32_t result;    ///< CUresult; OutputStream for kOutput
};
static_assert(sizeof(ReplyHeader) == 16);

struct ChunkReady {
  uint32_t chunk;  ///< index into the staging area; the client releases it after copying
  uint32_t bytes;
};

struct FailureReport {
  uint64_t position;  ///< number of the command in the session, from 1
  uint32_t context;
  uint32_t reserved;
};

/// A latched failure in one word: code in the low 12 bits, its context above; 0: none.
constexpr int32_t packFailure(int32_t code, uint16_t context) { return (code & 0xfff) | (context << 12); }
constexpr int32_t failureCode(int32_t packed) { return packed & 0xfff; }
constexpr uint16_t failureContext(int32_t packed) { return static_cast<uint16_t>(packed >> 12); }

struct Landing {
  uint64_t hostAddress;  ///< as given by the client
  uint64_t bytes;
  uint64_t number;  ///< of the landing that ends with these bytes, which may be none; 0 if more follow
  uint64_t reserved;
};

/// Over TCP each side regularly acknowledges received data, so that the other need not keep it for resending. These
/// link frames do not belong to the stream: offsets do not count them, and they are never resent.
inline constexpr uint16_t kLinkOp = 0xffff;  ///< CommandHeader::op of a frame of the link: body is LinkWord
enum class LinkMessage : uint32_t {
  kReceived = 1,
  kGoodbye = 2,  ///< client → worker: the client will not reconnect when this connection ends
  kPark = 3,     ///< worker → client: it has taken everything before `received`, and proposes to park the session
  kParked = 4,   ///< client → worker: agreed; nothing follows, and it has everything before `received`
  kOnLane = 5,   ///< the last `received` bytes of the next frame, without its padding, come over lane `lane`
  kLanes = 6,    ///< client → worker: it has opened all its lanes; replies may use them
};
struct LinkWord {
  LinkMessage message;
  uint32_t lane;
  uint64_t received;  ///< offset in the other side's stream after the last frame taken
};
/// Most lanes of a session.
inline constexpr uint32_t kMaxLanes = 8;
/// Smallest data that is worth a lane.
inline constexpr size_t kLaneBytes = size_t{64} << 10;
/// Number of received bytes after which they are acknowledged.
inline constexpr size_t kAcknowledgeBytes = size_t{1} << 20;

/// `n` bytes rounded up so that the next frame or tail starts aligned.
constexpr size_t padded(size_t n) { return (n + 7) & ~size_t{7}; }

/// Copies are split into pieces of this size: small enough for a core's cache, large enough to amortise a frame.
inline constexpr size_t kChunkBytes = size_t{256} << 10;
inline constexpr uint32_t kStagingChunks = 16;
inline constexpr size_t kSubmitBytes = size_t{4} << 20;
inline constexpr size_t kReplyBytes = size_t{1} << 20;
/// The journal of a parked session: commands, as frames, that restore its objects. Over shared memory it is in the
/// staging chunks, after its length.
inline constexpr size_t kMaxJournalBytes = kChunkBytes * kStagingChunks - sizeof(uint64_t);
/// Numbers of contexts are below this.
inline constexpr uint16_t kContextLimit = 4096;
/// Maximum length of a command, including pieces of module images.
inline constexpr size_t kMaxFrameBytes = size_t{1} << 20;
static_assert(kMaxFrameBytes <= kSubmitBytes);
/// The head of a command's body: the fixed part of each command, and all of most commands.
inline constexpr size_t kHeadBytes = 512;
/// Maximum length of a reply, header included, over any carrier: a ring holds it. Longer results are requested page by
/// page.
inline constexpr size_t kMaxReplyBytes = kReplyBytes;

}  // namespace millpond::wire
