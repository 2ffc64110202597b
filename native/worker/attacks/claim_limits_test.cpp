// SPDX-License-Identifier: Apache-2.0
// A client that drives each kind of object to the limit of its claim: further ones are refused, and the worker
// continues.
#include <cstdio>
#include <string>

#include "cuda/graph_node.h"
#include "worker/testing/own_session.h"

namespace millpond::worker {
namespace {

constexpr int32_t kNoRoom = CUDA_ERROR_OUT_OF_MEMORY;

uint64_t emptyGraph(OwnSession& session) {
  cmd::GraphCreateReply made{};
  CHECK_EQ(session.run(made, cmd::GraphCreate{}), 0);
  return made.graph;
}

int32_t addNode(OwnSession& session, uint64_t graph, uint64_t child) {
  graph::NodeRecord record{};
  record.type = child ? CU_GRAPH_NODE_TYPE_GRAPH : CU_GRAPH_NODE_TYPE_EMPTY;
  record.child.graph = child;
  cmd::GraphAddNode add{};
  add.graph = graph;
  cmd::GraphAddNodeReply node{};
  const std::span<const std::byte> none;
  return session.run(node, add, none, none, std::as_bytes(std::span(&record, 1)));
}

TEST("child graphs that double with every level end at the claim's nodes, not at the node's memory") {
  OwnSession session(Carrier::kSharedMemory);
  uint64_t inner = emptyGraph(session);
  for (int i = 0; i < 64; ++i) CHECK_EQ(addNode(session, inner, 0), 0);
  int levels = 0;
  int32_t rc = 0;
  // Without a limit level 30 has 2^36 nodes.
  for (; levels < 30 && rc == 0; ++levels) {
    const uint64_t outer = emptyGraph(session);
    rc = addNode(session, outer, inner);
    if (!rc) rc = addNode(session, outer, inner);
    inner = outer;
  }
  CHECK_EQ(rc, kNoRoom);
  CHECK(levels <= 17);
  std::printf("  refused at level %d\n", levels);
  // Returned memory can be allocated again.
  cmd::GraphDestroy destroy{};
  destroy.graph = inner;
  CHECK_EQ(session.run(destroy), 0);
  CHECK(session.finish().ok);
}

TEST("images of which only the first bytes come do not take the host's memory") {
  OwnSession session(Carrier::kSharedMemory);
  const std::string begin(100, '/');
  for (uint32_t n = 0; n < 8; ++n) {
    cmd::ImagePart part{};
    part.handle = handle::make(HandleKind::kModule, 100 + n, 1);
    part.total = uint64_t{1} << 30;
    session.run(part, std::as_bytes(std::span(begin)));
  }
  session.settle();
  CHECK(!session.isLost());
  // The ninth does not fit either, and fails when it is loaded.
  cmd::ImagePart whole{};
  whole.handle = handle::make(HandleKind::kModule, 200, 1);
  whole.total = begin.size();
  session.run(whole, std::as_bytes(std::span(begin)));
  cmd::ModuleLoad load{};
  load.handle = whole.handle;
  cmd::ModuleLoadReply reply{};
  CHECK_EQ(session.run(reply, load, std::span<const std::byte>{}, std::span<const std::byte>{}), kNoRoom);
  CHECK(session.finish().ok);
}

TEST("nodes of graphs, their parameters and links end at the claim's host memory") {
  ClaimPlace place;
  place.limits.most[static_cast<size_t>(Thing::kHostByte)] = uint64_t{24} << 20;
  OwnSession session(Carrier::kSharedMemory, place);
  const uint64_t inner = emptyGraph(session);
  const uint64_t outer = emptyGraph(session);
  int32_t rc = 0;
  uint64_t nodes = 0;
  for (; nodes < 64 && rc == 0; ++nodes) rc = addNode(session, inner, 0);
  CHECK_EQ(rc, 0);
  // Each has 64 nodes: the limit on nodes is far away.
  for (; nodes < 1'000'000 && rc == 0; nodes += 64) rc = addNode(session, outer, inner);
  CHECK_EQ(rc, kNoRoom);
  CHECK(nodes > 4000);
  CHECK(nodes < (24 << 20) / 2048 + 64);
  std::printf("  refused after %llu nodes\n", static_cast<unsigned long long>(nodes));
  const std::string begin(100, '/');
  const auto send = [&](uint32_t n, uint64_t total) {
    cmd::ImagePart part{};
    part.handle = handle::make(HandleKind::kModule, 400 + n, 1);
    part.total = total;
    session.run(part, std::as_bytes(std::span(begin)));
    cmd::ModuleLoad load{};
    load.handle = part.handle;
    cmd::ModuleLoadReply reply{};
    return session.run(reply, load, std::span<const std::byte>{}, std::span<const std::byte>{});
  };
  CHECK_EQ(send(1, begin.size() + (uint64_t{4} << 20)), kNoRoom);
  cmd::GraphDestroy destroy{};
  destroy.graph = outer;
  CHECK_EQ(session.run(destroy), 0);
  CHECK_EQ(addNode(session, emptyGraph(session), inner), 0);
  CHECK(session.finish().ok);
}

TEST("a module declares more variables than the claim has memory") {
  OwnSession session(Carrier::kSharedMemory);
  for (const std::string size : {"1099511627776", "0x7fffffffffffffff", "18446744073709551615"}) {
    const std::string text = ".version 7.0\n.target sm_70\n.address_size 64\n.global .b8 g[" + size + "];\n";
    cmd::ImagePart part{};
    part.handle = handle::make(HandleKind::kModule, 300, 1);
    part.total = text.size();
    session.run(part, std::as_bytes(std::span(text)));
    cmd::ModuleLoad load{};
    load.handle = part.handle;
    cmd::ModuleLoadReply reply{};
    CHECK_EQ(session.run(reply, load, std::span<const std::byte>{}, std::span<const std::byte>{}), kNoRoom);
  }
  CHECK(session.finish().ok);
}

TEST("more streams than a claim may have are not made, and those that are go on") {
  constexpr uint32_t most = 40;
  ClaimPlace few;
  few.limits.most[static_cast<size_t>(Thing::kStream)] = most;
  OwnSession session(Carrier::kSharedMemory, few);
  for (uint32_t n = 1; n <= most; ++n) session.makeStream(n);
  session.run(cmd::ContextSync{});
  CHECK_EQ(session.session().takeFailure(), 0);
  session.makeStream(most + 1);
  session.run(cmd::ContextSync{});
  CHECK_EQ(session.session().takeFailure(), kNoRoom);
  cmd::StreamSync sync{};
  sync.stream = OwnSession::stream(most);
  CHECK_EQ(session.run(sync), 0);
  CHECK(session.finish().ok);
}

TEST("streams whose work does not end count after the program has destroyed them") {
  constexpr uint32_t most = 40;
  ClaimPlace few;
  few.limits.most[static_cast<size_t>(Thing::kStream)] = most;
  OwnSession session(Carrier::kSharedMemory, few);
  const CUdeviceptr word = session.allocate(256);
  constexpr uint32_t kSet = 7777;
  session.makeStream(most);
  for (uint32_t n = 1; n < most; ++n) {
    session.makeStream(n);
    cmd::StreamWaitValue32V2 wait{};
    wait.stream = OwnSession::stream(n);
    wait.addr = word;
    wait.value = kSet;
    wait.flags = CU_STREAM_WAIT_VALUE_EQ;
    session.run(wait);
    cmd::StreamDestroyV2 destroy{};
    destroy.hStream = OwnSession::stream(n);
    session.run(destroy);
  }
  session.run(cmd::Marker{});
  CHECK_EQ(session.session().takeFailure(), 0);
  session.makeStream(most + 1);
  session.run(cmd::Marker{});
  CHECK_EQ(session.session().takeFailure(), kNoRoom);
  cmd::StreamWriteValue32V2 write{};
  write.stream = OwnSession::stream(most);
  write.addr = word;
  write.value = kSet;
  session.run(write);
  session.run(cmd::ContextSync{});
  session.makeStream(most + 2);
  session.run(cmd::Marker{});
  CHECK_EQ(session.session().takeFailure(), 0);
  CHECK(session.finish().ok);
}

}  // namespace
}  // namespace millpond::worker
