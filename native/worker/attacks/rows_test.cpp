// SPDX-License-Identifier: Apache-2.0
// A client whose copies have rows that lead beyond its memory: by the numbers that it leaves to the driver, and by the base of
// their offsets.
#include "cuda/graph_node.h"
#include "worker/testing/own_session.h"

namespace millpond::worker {
namespace {

/// Adds a copy to a graph of its own, and launches it if the worker accepts it.
void copyInGraph(OwnSession& session, const CUDA_MEMCPY3D& copy) {
  cmd::GraphCreateReply graph{};
  CHECK_EQ(session.run(graph, cmd::GraphCreate{}), 0);
  graph::NodeRecord record{};
  record.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  record.copy = copy;
  cmd::GraphAddNode add{};
  add.graph = graph.graph;
  cmd::GraphAddNodeReply node{};
  const std::span<const std::byte> none;
  if (session.run(node, add, none, none, std::as_bytes(std::span(&record, 1))) != 0) return;
  cmd::GraphInstantiate instantiate{};
  instantiate.graph = graph.graph;
  cmd::GraphInstantiateReply made{};
  if (session.run(made, instantiate) != 0 || made.status != 0) return;
  cmd::GraphLaunch launch{};
  launch.exec = made.exec;
  session.run(launch);
}

TEST("rows without a pitch, and offsets from a base elsewhere, do not lead beyond the session's memory") {
  constexpr uint64_t kPinned = uint64_t{7} << 28, kBytes = 8192;
  for (const bool inGraph : {false, true})
    for (const bool hasSlices : {false, true})
      for (const uint64_t pitch : {uint64_t{0}, uint64_t{1}, uint64_t{64}}) {
        OwnSession session(Carrier::kSharedMemory);
        const uint64_t memory = session.allocate(uint64_t{1} << 20);
        cmd::HostAlloc pinned{};
        pinned.bytes = kBytes;
        pinned.address = kPinned;
        pinned.isPrivate = 1;
        CHECK_EQ(session.run(pinned), 0);
        // By the driver's rules 64 KiB, of which the last are not pinned.
        if (inGraph) {
          CUDA_MEMCPY3D copy{};
          copy.srcMemoryType = CU_MEMORYTYPE_HOST;
          copy.srcHost = reinterpret_cast<const void*>(kPinned + kBytes - 64);
          copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
          copy.dstDevice = memory;
          copy.srcPitch = pitch;
          copy.dstPitch = copy.WidthInBytes = 64;
          copy.dstHeight = copy.Height = hasSlices ? 1 : 1024;
          copy.Depth = hasSlices ? 1024 : 1;
          copyInGraph(session, copy);
          // The base of the offsets is not memory of the session. The bytes are.
          copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
          copy.srcDevice = memory - (uint64_t{1} << 40);
          copy.srcXInBytes = uint64_t{1} << 40;
          copy.Height = copy.Depth = 1;
          copyInGraph(session, copy);
        } else {
          cmd::CopyBox box{};
          box.srcAddress = kPinned + kBytes - 64;
          box.dstAddress = memory;
          box.srcPitch = pitch;
          box.dstPitch = box.width = 64;
          box.dstRows = box.height = hasSlices ? 1 : 1024;
          box.depth = hasSlices ? 1024 : 1;
          session.run(box);
        }
        session.synchronise();
        for (const std::string& each : DriverGuard::takeViolations()) testing::fail(__FILE__, __LINE__, each);
        session.finish();
      }
}

}  // namespace
}  // namespace millpond::worker
