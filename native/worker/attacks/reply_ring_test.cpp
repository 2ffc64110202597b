// SPDX-License-Identifier: Apache-2.0
// A client that changes the control words of the shared rings during the longest replies: its session ends with a
// reason or continues, and nothing is written outside the rings.
#include <atomic>
#include <cstdio>
#include <random>
#include <thread>

#include "cuda/graph_node.h"
#include "worker/testing/own_session.h"

namespace millpond::worker {
namespace {

/// Copies from memory of the client: each is a record in the reply to the graph's instantiation.
constexpr uint32_t kCopies = graph::kSourcePage + 200;

uint64_t graphOfCopies(OwnSession& session, uint64_t memory, uint32_t copies) {
  cmd::GraphCreateReply made{};
  CHECK_EQ(session.run(made, cmd::GraphCreate{}), 0);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = reinterpret_cast<const void*>(uint64_t{4096});
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory;
  copy.WidthInBytes = 8;
  copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
  copy.srcPitch = copy.dstPitch = 8;
  graph::NodeRecord record{};
  record.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  record.copy = copy;
  cmd::GraphAddNode add{};
  add.graph = made.graph;
  const std::span<const std::byte> none;
  for (uint32_t i = 0; i < copies; ++i) {
    cmd::GraphAddNodeReply node{};
    CHECK_EQ(session.run(node, add, none, none, std::as_bytes(std::span(&record, 1))), 0);
  }
  return made.graph;
}

TEST("what a graph's launches read of the client comes page by page, and all of it") {
  for (const Carrier carrier : kCarriers) {
    OwnSession session(carrier);
    const uint64_t graph = graphOfCopies(session, session.allocate(4096), kCopies);
    cmd::GraphInstantiate instantiate{};
    instantiate.graph = graph;
    cmd::GraphInstantiateReply made{};
    std::vector<std::byte> whole;
    CHECK_EQ(session.runWith(&whole, instantiate), 0);
    CHECK(whole.size() >= sizeof(made));
    std::memcpy(&made, whole.data(), sizeof(made));
    CHECK_EQ(made.sourceCount, kCopies);
    CHECK_EQ(whole.size(), sizeof(made) + graph::kSourcePage * sizeof(graph::Source));
    cmd::GraphSources page{};
    page.exec = made.exec;
    page.first = graph::kSourcePage;
    CHECK_EQ(session.runWith(&whole, page), 0);
    CHECK_EQ(whole.size(), cmd::GraphSourcesReply::kFixedBytes + (kCopies - page.first) * sizeof(graph::Source));
    page.first = kCopies;
    CHECK_EQ(session.runWith(&whole, page), 0);
    CHECK_EQ(whole.size(), size_t{cmd::GraphSourcesReply::kFixedBytes});
    CHECK(DriverGuard::takeViolations().empty());
  }
}

TEST("control words that a thread changes while the longest answers are asked for") {
  size_t ended = 0, rounds = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    OwnSession session(Carrier::kSharedMemory);
    const uint64_t graph = graphOfCopies(session, session.allocate(4096), graph::kSourcePage);
    SharedControl& control = session.control();
    std::atomic<bool> isOver{false};
    std::thread liar([&] {
      std::minstd_rand random(seed);
      while (!isOver.load()) {
        const uint64_t head = control.reply.head.load();
        const uint64_t lies[] = {head + 8,
                                 head + wire::kReplyBytes,
                                 head - wire::kReplyBytes - 8,
                                 ~uint64_t{0},
                                 uint64_t{random()} << 32 | random(),
                                 head};
        control.reply.tail.store(lies[random() % (seed % 6 + 1)]);
        std::this_thread::yield();
      }
    });
    cmd::GraphInstantiate instantiate{};
    instantiate.graph = graph;
    for (int i = 0; i < 150 && !session.isLost(); ++i) {
      cmd::GraphInstantiateReply made{};
      session.run(made, instantiate);
      cmd::GraphList list{};
      list.object = graph;
      std::vector<std::byte> whole;
      session.runWith(&whole, list);
      ++rounds;
    }
    isOver.store(true);
    liar.join();
    const Executor::End end = session.finish();
    if (end.ok) continue;
    ++ended;
    CHECK_EQ(end.reason, "protocol violation: the reply ring's tail is not between where it was and the ring's head");
  }
  std::printf("  %zu rounds, %zu sessions of 12 were ended\n", rounds, ended);
  CHECK(DriverGuard::takeViolations().empty());
}

}  // namespace
}  // namespace millpond::worker
