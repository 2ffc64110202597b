// SPDX-License-Identifier: Apache-2.0
// What the session counts for its claim beside device memory: handles, contexts, nodes of graphs, pinned host memory.
#include <algorithm>

#include "base/log.h"
#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

/// Owners of nodes that are no graph's yet: of what the driver is about to make, and of captures that are open.
constexpr uint64_t kNodesInTheMaking = 0;
constexpr uint64_t kNodesCaptured = 1;

const char* nameOf(Thing thing) {
  switch (thing) {
    case Thing::kContext: return "contexts";
    case Thing::kStream: return "streams";
    case Thing::kEvent: return "events";
    case Thing::kGraphNode: return "nodes of graphs";
    case Thing::kHostByte: return "bytes of pinned host memory";
    case Thing::kImageByte: return "bytes of images under way";
  }
  return "things";
}

/// Whether a command becomes a node where its stream is captured.
bool becomesNode(cmd::Op op) {
  if (op >= cmd::Op::kMemcpyDtoDAsyncV2 && op <= cmd::Op::kMemsetD8V2) return true;
  switch (op) {
    case cmd::Op::kCaptureCopy:
    case cmd::Op::kContextRecordEvent:
    case cmd::Op::kCopyBox:
    case cmd::Op::kCopyFromDevice:
    case cmd::Op::kCopyFromLanding:
    case cmd::Op::kCopyHostShared:
    case cmd::Op::kCopyToDevice:
    case cmd::Op::kEventRecord:
    case cmd::Op::kEventRecordWithFlags:
    case cmd::Op::kGraphLaunch:
    case cmd::Op::kHostFunction:
    case cmd::Op::kLandFromDevice:
    case cmd::Op::kLaunch:
    case cmd::Op::kPoolAlloc:
    case cmd::Op::kPoolFree:
    case cmd::Op::kMemFree:
    case cmd::Op::kStreamBatchMemOpV2:
    case cmd::Op::kStreamWaitEvent:
    case cmd::Op::kStreamWaitValue32V2:
    case cmd::Op::kStreamWaitValue64V2:
    case cmd::Op::kStreamWriteValue32V2:
    case cmd::Op::kStreamWriteValue64V2:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool Executor::hold(Thing thing, uint64_t amount) {
  if (things_.hold(thing, amount)) return true;
  const auto bit = static_cast<uint8_t>(1u << static_cast<unsigned>(thing));
  if (!(told_ & bit))
    log(LogLevel::Warn, "the claim's sessions may have %llu %s together; this one has %llu and wanted %llu: refused",
        static_cast<unsigned long long>(things_.limits().of(thing)), nameOf(thing),
        static_cast<unsigned long long>(things_.held(thing)), static_cast<unsigned long long>(amount));
  told_ |= bit;
  return false;
}

CUresult Executor::admit(HandleKind kind) {
  if (kind != HandleKind::kStream && kind != HandleKind::kEvent) return CUDA_SUCCESS;
  const Thing thing = kind == HandleKind::kStream ? Thing::kStream : Thing::kEvent;
  if (!hold(thing, handles_.countOf(kind) + 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  return kind == HandleKind::kStream ? chargeStream() : CUDA_SUCCESS;
}

void Executor::count(HandleKind kind) {
  if (kind == HandleKind::kStream) hold(Thing::kStream, handles_.countOf(kind));
  if (kind == HandleKind::kEvent) hold(Thing::kEvent, handles_.countOf(kind));
}

// Contexts

CUresult Executor::admitOneContext() {
  return hold(Thing::kContext, things_.held(Thing::kContext) + 1) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void Executor::countContexts() {
  const auto own = std::span(contexts_).subspan(devices_.all().size());
  hold(Thing::kContext, static_cast<uint64_t>(std::count_if(own.begin(), own.end(), [](const Context& context) {
         return context.handle != nullptr;
       })));
}

// Host memory

bool Executor::takeHost(uint64_t bytes) {
  const uint64_t had = things_.held(Thing::kHostByte);
  return bytes <= UINT64_MAX - had && hold(Thing::kHostByte, had + bytes);
}

bool Executor::takeHostOrTrim(uint64_t bytes) {
  if (takeHost(bytes)) return true;
  if (callbacksExpected_ != 0) return false;
  trimSpareHostBuffers(0);
  endClientPages();
  return takeHost(bytes);
}

void Executor::giveHost(uint64_t bytes) { hold(Thing::kHostByte, things_.held(Thing::kHostByte) - bytes); }

// Nodes of graphs

uint64_t Executor::nodesOf(uint64_t graph) {
  const GraphTable::Graph* known = graphs_.graph(graph);
  const auto found = graphNodes_.find(known ? known->root : graph);
  return found == graphNodes_.end() ? 0 : found->second;
}

bool Executor::takeNodes(uint64_t nodes) {
  const uint64_t had = things_.held(Thing::kGraphNode);
  if (nodes > UINT64_MAX - had || !hold(Thing::kGraphNode, had + nodes)) return false;
  graphNodes_[kNodesInTheMaking] += nodes;
  return true;
}

void Executor::keepNodes(uint64_t owner) {
  if (const auto made = graphNodes_.extract(kNodesInTheMaking)) graphNodes_[owner] += made.mapped();
}

void Executor::giveNodes(uint64_t owner) {
  if (const auto gone = graphNodes_.extract(owner))
    hold(Thing::kGraphNode, things_.held(Thing::kGraphNode) - gone.mapped());
}

void Executor::dropNodes() { giveNodes(kNodesInTheMaking); }

bool Executor::admitCaptured(cmd::Op op, std::span<const std::byte> body) {
  if (!becomesNode(op)) return true;
  uint64_t nodes = 1;
  // A graph that is launched becomes a child, with all that is in it.
  if (op == cmd::Op::kGraphLaunch && body.size() >= sizeof(cmd::GraphLaunch)) {
    cmd::GraphLaunch launch{};
    std::memcpy(&launch, body.data(), sizeof launch);
    nodes += nodesOf(launch.exec);
  }
  if (!takeNodes(nodes)) return false;
  keepNodes(kNodesCaptured);
  return true;
}

void Executor::beginCaptured() {
  // What is left of captures that ended with their streams.
  if (captures_.empty()) giveNodes(kNodesCaptured);
}

void Executor::keepCaptured(uint64_t graph) {
  const GraphTable::Graph* known = graphs_.graph(graph);
  if (const auto made = graphNodes_.extract(kNodesCaptured)) graphNodes_[known ? known->root : graph] += made.mapped();
}

}  // namespace millpond::worker
