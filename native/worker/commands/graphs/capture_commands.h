// SPDX-License-Identifier: Apache-2.0
// Stream capture. The driver keeps the captures; all of them begin and end here, in relaxed mode: the client decides
// which calls the program's threads may make meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/commands/graphs/graph_calls.h"
#include "worker/commands/graphs/graph_memory.h"
#include "worker/commands/graphs/graph_node_count.h"
#include "worker/commands/graphs/graph_node_reader.h"
#include "worker/commands/graphs/graph_stages.h"
#include "worker/commands/graphs/graph_table.h"
#include "worker/core/session_part.h"
#include "worker/memory/address_gate.h"

namespace millpond::worker {

class CaptureCommands : private SessionPart {
 public:
  CaptureCommands(SessionCore& session, AddressGate& addresses, GraphTable& graphs, GraphNodeCount& nodeCount,
                  GraphMemory& graphMemory, GraphCalls& calls, GraphStages& stages, GraphNodeReader& reader)
      : SessionPart(session),
        addresses_(addresses),
        graphs_(graphs),
        nodeCount_(nodeCount),
        graphMemory_(graphMemory),
        calls_(calls),
        stages_(stages),
        reader_(reader) {}

  CUresult onCaptureBegin(const cmd::Decoded<cmd::CaptureBegin>& command);
  CUresult onCaptureCopy(const cmd::Decoded<cmd::CaptureCopy>& command);
  CUresult onCaptureDepend(const cmd::Decoded<cmd::CaptureDepend>& command);
  CUresult onCaptureEnd(const cmd::Decoded<cmd::CaptureEnd>& command);
  CUresult onCaptureInfo(const cmd::Decoded<cmd::CaptureInfo>& command);
  CUresult onCaptureInvalidate(const cmd::Decoded<cmd::CaptureInvalidate>& command);

  // Commands in a stream that is being captured become nodes of its graph.

  CUresult addHostFunction(const Stream& stream, const Callback& callback);
  /// Replies to the current command with the address. `ordinal`: of the device.
  CUresult addAllocation(const Stream& stream, size_t ordinal, uint64_t bytes);
  CUresult addFree(const Stream& stream, CUdeviceptr address);
  /// That stream is about to end: the driver drops a capture that began on it, and its graph.
  void endStream(uint64_t wire);

 private:
  /// The last node of a captured stream; 0 when it is unknown.
  uint64_t lastCaptured(const Stream& stream);
  /// Adds a node to the stream's capture, as the next of the stream.
  CUresult addNode(const Stream& stream, CUgraphNodeParams& params, uint64_t& node);

  AddressGate& addresses_;
  GraphTable& graphs_;
  GraphNodeCount& nodeCount_;
  GraphMemory& graphMemory_;
  GraphCalls& calls_;
  GraphStages& stages_;
  GraphNodeReader& reader_;
};

}  // namespace millpond::worker
