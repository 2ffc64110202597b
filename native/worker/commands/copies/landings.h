// SPDX-License-Identifier: Apache-2.0
// Landings: bytes for client memory for which no thread waits. They come from asynchronous copies to memory that is not shared,
// and from launches of graphs. They are collected in memory of this worker and sent, in the order of the work, when the device
// has written them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/range_map.h"
#include "worker/commands/copies/lent_replies.h"
#include "worker/commands/copies/stream_reads.h"
#include "worker/commands/graphs/graph_table.h"
#include "worker/commands/memory/host_buffers.h"
#include "worker/commands/memory/host_copies.h"
#include "worker/commands/memory/mirrored_bytes.h"
#include "worker/core/session_part.h"
#include "worker/memory/address_gate.h"
#include "worker/memory/host_runs.h"

namespace millpond::worker {

class Landings : private SessionPart {
 public:
  Landings(SessionCore& session, AddressGate& addresses, HostBuffers& buffers, HostCopies& hostCopies,
           StreamReads& reads, LentReplies& lent, MirroredBytes& mirrored, const HostRuns& hostRuns)
      : SessionPart(session),
        addresses_(addresses),
        buffers_(buffers),
        hostCopies_(hostCopies),
        reads_(reads),
        lent_(lent),
        mirrored_(mirrored),
        hostRuns_(hostRuns) {}

  CUresult onLandFromDevice(const cmd::Decoded<cmd::LandFromDevice>& command);
  CUresult onLandingAwait(const cmd::Decoded<cmd::LandingAwait>& command);
  CUresult onLandingsOver(const cmd::Decoded<cmd::LandingsOver>& command);
  CUresult onCopyFromLanding(const cmd::Decoded<cmd::CopyFromLanding>& command);

  /// The number of landings in progress.
  bool empty() const { return all_.empty(); }
  size_t size() const { return all_.size(); }
  /// Number of threads of the client that wait for one.
  size_t waiting() const { return waiters_.size(); }
  /// Whether commands may name a landing of that number.
  bool isNamed(uint64_t number) const { return named_.contains(number); }
  /// A launch whose graph copies to client memory; `number`: as given by the client.
  CUresult addLaunch(const Stream& stream, uint64_t number, std::shared_ptr<const ExecContents> contents);
  /// Called when that memory becomes mirrored: bytes of held copies that are written but not sent go to the mirrored pages.
  void placeReached(uint64_t address, uint64_t bytes);
  /// Notes that launches in progress write memory whose contents the client is about to send. Returns false if there are too many.
  bool keepLaunches();
  /// Notes that the client does not wait for a landing with that number.
  void end(uint64_t number);
  /// Notes that the client has received all landings with lower numbers.
  void forget(uint64_t below);
  /// Sends the graph's copies to the client that precede that function; returns the client memory that the graph reads
  /// later.
  std::vector<graph::Source> landBefore(const HostCall* call);
  /// Sends the bytes that are complete. Returns whether there were any.
  bool progress();
  void forgetContext(uint16_t number) {
    for (Landing& each : all_) each.mark.forgetContext(number);
  }

 private:
  /// Bytes of a copy, or of a graph's launch.
  struct Landing {
    uint64_t number = 0;  ///< the client's number; 0: the client does not wait for its end
    CUstream stream = nullptr;
    Mark mark;
    uint64_t order = 0;            ///< order of issue among all landings
    std::vector<uint64_t> behind;  ///< landings of other streams, by order, that these bytes may overwrite
    bool isBehindCopy = false;     ///< one of them, or one that those are behind in turn, is a copy's
    uint64_t hostAddress = 0;
    uint64_t bytes = 0;
    std::shared_ptr<const HostBuffer> staging;  ///< of a copy
    std::shared_ptr<bool> isReached;  ///< of a held copy: its stream has written the bytes to their destination
    std::shared_ptr<const ExecContents> contents;  ///< of a launch
    std::set<const GraphStage*> landed;            ///< of these, before the end
    std::map<const void*, size_t> calls;           ///< host functions that the launch has reached, and how often
  };
  /// A landing that commands may still name.
  struct Named {
    struct Part {
      uint64_t hostAddress;
      uint64_t bytes;
      const std::byte* memory;
    };
    std::vector<Part> parts;
    std::shared_ptr<const void> keeper;  ///< of the memory
  };

  CUresult start(const Stream& stream, const cmd::LandFromDevice& copy);
  /// Whether a launch in progress writes there. Copies that have `landed` do not count: functions may have changed their bytes since.
  bool addWriters(const ExecContents& contents, const std::set<const GraphStage*>& landed);
  /// Adds a landing whose work has been issued, with its mark.
  void add(Landing landing);
  /// Calls `each(address, bytes)` for the client memory that it writes.
  template <typename Each>
  static void eachTarget(const Landing& landing, Each&& each);
  /// Returns null if the landing is over.
  const Landing* underWay(uint64_t order) const;
  /// Puts the bytes of a copy, which are in `staging`, into the pages of mirrored memory.
  void place(uint64_t hostAddress, std::span<const std::byte> staging);
  /// Sends the data of a held copy whose memory has not become mirrored meanwhile.
  void sendUnplaced(const Landing& landing);
  /// Sends the data of a landing, and its end.
  void finish(const Landing& landing, CUresult state);
  /// Sends what a graph has written. `mirrored`: the bytes that the client's mirror brings are not sent. At the end of a launch
  /// these are all bytes of mirrored memory; before a function, only if the mirror is complete; none where a copy lands before.
  enum class Mirrored : uint8_t { kSkipped, kSkippedIfFilled, kSent };
  void land(const GraphStage& stage, Mirrored mirrored);
  bool send(uint64_t hostAddress, std::span<const std::byte> bytes, uint64_t number, bool lends);
  /// The bytes that the copy `to` the device reads behind a function of the client, except those that the graph itself
  /// writes there meanwhile.
  void addSources(const ExecContents& contents, uint64_t call, uint64_t to, std::vector<graph::Source>& sources) const;

  AddressGate& addresses_;
  HostBuffers& buffers_;
  HostCopies& hostCopies_;
  StreamReads& reads_;
  LentReplies& lent_;
  MirroredBytes& mirrored_;
  const HostRuns& hostRuns_;
  std::deque<Landing> all_;
  uint64_t last_ = 0;
  RangeMap ranges_;  ///< memory of the client → order of the landing that writes it last
  std::map<uint64_t, Named> named_;
  std::deque<std::pair<Request, uint64_t>> waiters_;
};

}  // namespace millpond::worker
