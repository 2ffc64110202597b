// SPDX-License-Identifier: Apache-2.0
// Copies to client memory for which a thread waits. The device writes into staging chunks, or pinned buffers; nothing here waits
// for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "worker/commands/copies/landings.h"
#include "worker/commands/copies/lent_replies.h"
#include "worker/commands/memory/host_buffers.h"
#include "worker/commands/memory/host_copies.h"
#include "worker/core/session_part.h"
#include "worker/memory/address_gate.h"

namespace millpond::worker {

class Downloads : private SessionPart {
 public:
  Downloads(SessionCore& session, AddressGate& addresses, HostBuffers& buffers, HostCopies& hostCopies,
            Landings& landings, LentReplies& lent)
      : SessionPart(session),
        addresses_(addresses),
        buffers_(buffers),
        hostCopies_(hostCopies),
        landings_(landings),
        lent_(lent) {}

  CUresult onCopyFromDevice(const cmd::Decoded<cmd::CopyFromDevice>& command);

  /// Issues a piece of a copy. Returns the driver's result, or nothing if the piece must be tried again later.
  using Issue = std::function<std::optional<CUresult>(const Stream& stream, uint64_t bytes,
                                                      const std::function<CUresult()>& execute)>;
  void issueThrough(Issue issue) { issue_ = std::move(issue); }

  bool empty() const { return all_.empty(); }
  size_t size() const { return all_.size(); }
  /// Releases a stream that is about to end.
  void detach(CUstream stream);
  bool progress();
  void forgetContext(uint16_t number);

 private:
  /// Where the device writes a piece: a staging chunk, or a buffer.
  struct Place {
    uint32_t chunk = 0;
    std::shared_ptr<const HostBuffer> buffer;
  };
  /// A copy in progress, a piece at a time.
  struct Download {
    Request request;
    Stream stream;
    StreamWorks works;  ///< of the stream, including this copy; zero if the copy continues in another stream
    SessionRange from;
    uint64_t left = 0, done = 0;
    uint64_t sent = 0;
    struct Piece {
      Place place;
      uint32_t bytes;
      Mark mark;
    };
    std::deque<Piece> pieces;
    CUresult failure = CUDA_SUCCESS;
  };

  /// Issues pieces as long as chunks are free, and sends those that are complete. Returns whether anything happened.
  bool advance(Download& download);
  /// A staging chunk that this download may use now.
  std::optional<uint32_t> freeChunk(const Download& download);
  /// A chunk; if the client has lanes, which bring more than the chunks hold before it has acknowledged them, also a buffer.
  std::optional<Place> freePlace(const Download& download);
  std::byte* memoryOf(const Place& place) const {
    return place.buffer ? place.buffer->memory : link_.memory().chunk(place.chunk);
  }
  void release(const Place& place);
  bool send(const Download& download, const Download::Piece& piece);

  AddressGate& addresses_;
  HostBuffers& buffers_;
  HostCopies& hostCopies_;
  Landings& landings_;
  LentReplies& lent_;
  Issue issue_ = [](const Stream&, uint64_t, const std::function<CUresult()>& execute) { return execute(); };
  std::deque<Download> all_;
  uint32_t nextChunk_ = 0;
};

}  // namespace millpond::worker
