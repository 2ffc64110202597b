// SPDX-License-Identifier: Apache-2.0
// A client that names memory of its worker in every command field that holds an address: none of it reaches the driver,
// and the worker's memory is neither read nor changed.
#include <array>
#include <cctype>
#include <cstdio>
#include <random>

#include "base/address_places.h"
#include "cuda/graph_node.h"
#include "protocol/gen/command_layouts.h"
#include "worker/testing/canary.h"
#include "worker/testing/own_session.h"

namespace millpond::worker {
namespace {

/// A session that is restarted when lost, with device memory in it, and the canary.
class Attacker {
 public:
  static constexpr uint64_t kMemory = 65536;

  explicit Attacker(Carrier carrier) : carrier_(carrier) { begin(); }

  OwnSession& session() {
    if (session_->isLost()) begin();
    return *session_;
  }
  uint64_t memory() const { return memory_; }
  const Canary& canary() const { return canary_; }
  /// Checks the outcome of all attempts.
  void check(const std::string& what) {
    if (!session_->isLost()) session_->synchronise();
    for (const std::string& each : DriverGuard::takeViolations()) testing::fail(__FILE__, __LINE__, what + ": " + each);
    if (!canary_.isUnchanged()) testing::fail(__FILE__, __LINE__, what + ": memory of the worker was changed");
    if (session_->isLost()) return;
    if (Canary::isIn(session_->download(memory_, kMemory)))
      testing::fail(__FILE__, __LINE__, what + ": memory of the worker was read");
  }

 private:
  void begin() {
    session_.reset();
    session_ = std::make_unique<OwnSession>(carrier_);
    session_->makeStream(1);
    memory_ = session_->allocate(kMemory);
    cmd::MemsetD8Async clear{};
    clear.dstDevice = memory_;
    clear.N = kMemory;
    session_->run(clear);
    session_->synchronise();
  }

  const Carrier carrier_;
  Canary canary_;
  std::unique_ptr<OwnSession> session_;
  uint64_t memory_ = 0;
};

std::vector<std::byte> recordBytes(const graph::NodeRecord& record, std::span<const std::byte> rest = {}) {
  std::vector<std::byte> out(sizeof(record) + rest.size());
  std::memcpy(out.data(), &record, sizeof(record));
  if (!rest.empty()) std::memcpy(out.data() + sizeof(record), rest.data(), rest.size());
  return out;
}

uint64_t makeGraph(OwnSession& session) {
  cmd::GraphCreateReply made{};
  CHECK_EQ(session.run(made, cmd::GraphCreate{}), 0);
  return made.graph;
}

int32_t addNode(OwnSession& session, uint64_t graph, const std::vector<std::byte>& record, uint64_t& node) {
  cmd::GraphAddNode add{};
  add.graph = graph;
  cmd::GraphAddNodeReply made{};
  const std::span<const std::byte> none;
  const int32_t rc = session.run(made, add, none, none, std::span<const std::byte>(record));
  node = made.node;
  return rc;
}

/// Instantiates a graph and launches it.
uint64_t launch(OwnSession& session, uint64_t graph) {
  cmd::GraphInstantiate instantiate{};
  instantiate.graph = graph;
  cmd::GraphInstantiateReply made{};
  if (session.run(made, instantiate) != 0 || made.status != 0) return 0;
  cmd::GraphLaunch launch{};
  launch.exec = made.exec;
  session.run(launch);
  session.synchronise();
  return made.exec;
}

/// Every kind of node that holds addresses, all set to `address`, with its name.
std::vector<std::pair<std::string, std::vector<std::byte>>> nodesAt(uint64_t address, uint64_t memory) {
  std::vector<std::pair<std::string, std::vector<std::byte>>> nodes;
  const CUmemorytype types[] = {CU_MEMORYTYPE_HOST,    CU_MEMORYTYPE_DEVICE,         CU_MEMORYTYPE_ARRAY,
                                CU_MEMORYTYPE_UNIFIED, static_cast<CUmemorytype>(0), static_cast<CUmemorytype>(77)};
  for (const CUmemorytype src : types)
    for (const CUmemorytype dst : types)
      for (const int which : {1, 2, 3}) {
        CUDA_MEMCPY3D copy{};
        copy.srcMemoryType = src;
        copy.dstMemoryType = dst;
        const uint64_t from = which & 1 ? address : memory;
        const uint64_t to = which & 2 ? address : memory;
        copy.srcDevice = from;
        copy.srcHost = reinterpret_cast<const void*>(from);
        copy.srcArray = reinterpret_cast<CUarray>(from);
        copy.dstDevice = to;
        copy.dstHost = reinterpret_cast<void*>(to);
        copy.dstArray = reinterpret_cast<CUarray>(to);
        copy.reserved0 = reinterpret_cast<void*>(from);
        copy.reserved1 = reinterpret_cast<void*>(to);
        copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 256;
        copy.srcHeight = copy.dstHeight = copy.Height = copy.Depth = 1;
        graph::NodeRecord record{};
        record.type = CU_GRAPH_NODE_TYPE_MEMCPY;
        record.copy = copy;
        nodes.emplace_back("a copy node of types " + std::to_string(src) + " and " + std::to_string(dst),
                           recordBytes(record));
        // The same place, as an offset from memory of the session.
        copy.srcDevice = copy.dstDevice = memory;
        copy.srcXInBytes = copy.dstXInBytes = address - memory;
        record.copy = copy;
        nodes.emplace_back("a copy node with offsets, of types " + std::to_string(src) + " and " + std::to_string(dst),
                           recordBytes(record));
      }
  graph::NodeRecord fill{};
  fill.type = CU_GRAPH_NODE_TYPE_MEMSET;
  fill.fill = CUDA_MEMSET_NODE_PARAMS{address, 256, 0, 4, 16, 1};
  nodes.emplace_back("a fill node", recordBytes(fill));
  fill.fill = CUDA_MEMSET_NODE_PARAMS{memory, address - memory, 0, 4, 16, 2};
  nodes.emplace_back("a fill node with a pitch that leads there", recordBytes(fill));
  graph::NodeRecord free{};
  free.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  free.address = address;
  nodes.emplace_back("a free node", recordBytes(free));
  graph::NodeRecord condition{};
  condition.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  condition.conditional = {address, CU_GRAPH_COND_TYPE_IF, 1};
  nodes.emplace_back("a conditional node", recordBytes(condition));
  for (const auto operation :
       {CU_STREAM_MEM_OP_WRITE_VALUE_32, CU_STREAM_MEM_OP_WRITE_VALUE_64, CU_STREAM_MEM_OP_WAIT_VALUE_32,
        CU_STREAM_MEM_OP_WAIT_VALUE_64, static_cast<CUstreamBatchMemOpType>(9)}) {
    CUstreamBatchMemOpParams word{};
    word.operation = operation;
    word.writeValue.address = address;
    word.writeValue.alias = address;
    graph::NodeRecord batch{};
    batch.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    batch.count = 1;
    nodes.emplace_back("a node of memory operation " + std::to_string(operation),
                       recordBytes(batch, std::as_bytes(std::span(&word, 1))));
  }
  graph::NodeRecord allocation{};
  allocation.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  CUmemPoolProps pool{};
  pool.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  pool.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  pool.win32SecurityAttributes = reinterpret_cast<void*>(address);
  allocation.allocation.pool = pool;
  allocation.allocation.bytes = 4096;
  allocation.allocation.address = address;
  nodes.emplace_back("an allocation node", recordBytes(allocation));
  return nodes;
}

bool isAddress(const cmd::FieldLayout& field) {
  return field.use == cmd::FieldUse::kAddress || field.use == cmd::FieldUse::kPlace;
}

TEST("memory of the worker in every address of every command") {
  size_t sent = 0;
  for (const Carrier carrier : kCarriers) {
    Attacker attacker(carrier);
    std::minstd_rand random(11);
    for (const cmd::CommandLayout& layout : cmd::kCommandLayouts)
      for (const cmd::FieldLayout& field : layout.fields) {
        if (!isAddress(field)) continue;
        for (int variant = 0; variant < 24; ++variant) {
          const uint64_t numbers[] = {0, 1, 2, 8, 64, 256, 4096, 1 + random() % 512};
          std::vector<std::byte> body(layout.fixedBytes);
          for (const cmd::FieldLayout& other : layout.fields) {
            uint64_t value = other.bytes > 8 || other.use == cmd::FieldUse::kTailBytes ? 0 : numbers[random() % 8];
            if (isAddress(other))
              value = random() % 4 ? attacker.memory() + 64 * (random() % 8) : attacker.canary().address();
            if (std::string_view(other.name).find("tream") != std::string_view::npos)
              value = random() % 2 ? OwnSession::stream(1) : 0;
            if (&other == &field) value = attacker.canary().address();
            std::memcpy(body.data() + other.offset, &value, std::min<size_t>(other.bytes, sizeof(value)));
          }
          attacker.session().send(layout.op, body, layout.hasReply);
          ++sent;
        }
        attacker.check(std::string(cmd::opName(layout.op)) + "." + field.name);
      }
  }
  std::printf("  %zu commands\n", sent);
  CHECK(sent > 1000);
}

TEST("memory of the worker in nodes of graphs: added, set, updated, in children and clones") {
  size_t sent = 0;
  Attacker attacker(Carrier::kSharedMemory);
  const auto nodes = nodesAt(attacker.canary().address(), attacker.memory());
  for (const auto& [what, record] : nodes) {
    OwnSession& session = attacker.session();
    const uint64_t graph = makeGraph(session);
    uint64_t node = 0;
    addNode(session, graph, record, node);
    launch(session, graph);
    attacker.check(what + " that is added");
    if (session.isLost()) continue;
    // A valid node of the same kind, which then gets the other parameters.
    const auto harmless = nodesAt(attacker.memory(), attacker.memory());
    uint64_t own = 0;
    const uint64_t second = makeGraph(session);
    for (const auto& [name, other] : harmless) {
      uint32_t kind = 0, wanted = 0;
      std::memcpy(&kind, other.data(), sizeof(kind));
      std::memcpy(&wanted, record.data(), sizeof(wanted));
      if (kind == wanted && addNode(session, second, other, own) == 0) break;
    }
    ++sent;
    if (!own || session.isLost()) continue;
    const uint64_t exec = launch(session, second);
    for (const uint64_t of : {uint64_t{0}, exec}) {
      cmd::GraphSetNode set{};
      set.exec = of;
      set.node = own;
      session.run(set, std::span<const std::byte>(record));
      cmd::GraphUpdateNode update{};
      update.exec = of;
      update.node = own;
      session.run(update, std::span<const std::byte>(record));
      if (session.isLost()) break;
      cmd::GraphLaunch again{};
      again.exec = exec;
      session.run(again);
      attacker.check(what + " that is set");
      if (session.isLost()) break;
      // A clone and a child of the present graph.
      cmd::GraphClone clone{};
      clone.graph = second;
      cmd::GraphCloneReply cloned{};
      if (session.run(cloned, clone) == 0) launch(session, cloned.clone);
      graph::NodeRecord child{};
      child.type = CU_GRAPH_NODE_TYPE_GRAPH;
      child.child = {second, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, 0};
      const uint64_t parent = makeGraph(session);
      uint64_t inside = 0;
      if (addNode(session, parent, recordBytes(child), inside) == 0) launch(session, parent);
      cmd::GraphExecUpdate whole{};
      whole.exec = exec;
      whole.graph = second;
      session.run(whole);
      attacker.check(what + " that is cloned");
    }
  }
  std::printf("  %zu nodes\n", sent);
  CHECK(sent > 100);
}

TEST("a picture of a graph shows no address of the worker, whatever the driver writes") {
  Attacker attacker(Carrier::kSharedMemory);
  OwnSession& session = attacker.session();
  const uint64_t number = makeGraph(session);
  for (const unsigned flags : {0u, unsigned{CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE}, ~0u}) {
    cmd::GraphDot ask{};
    ask.graph = number;
    ask.flags = flags;
    std::vector<std::byte> whole;
    CHECK_EQ(session.send(cmd::Op::kGraphDot, std::as_bytes(std::span(&ask, 1)), true, &whole), 0);
    CHECK(whole.size() > cmd::GraphDotReply::kFixedBytes);
    const std::string text(reinterpret_cast<const char*>(whole.data()) + cmd::GraphDotReply::kFixedBytes,
                           whole.size() - cmd::GraphDotReply::kFixedBytes);
    CHECK(text.find("handle | 0xxxxxxxxxxxxxxxxx | 0Xxxxxxxxx") != std::string::npos);
    CHECK(text.find("| grid 1024 | id 7") != std::string::npos);
    // Nor is the driver asked for handles.
    const auto asked = static_cast<unsigned>(std::stoul(text.substr(text.find("flags_") + 6)));
    CHECK_EQ(asked & (CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE), 0u);
    // No run of hexadecimal digits is as long as an address.
    size_t run = 0;
    for (const char each : text) {
      run = std::isxdigit(static_cast<unsigned char>(each)) ? run + 1 : 0;
      CHECK(run < 12);
    }
  }
}

TEST("memory of the worker in batches, textures, tensor maps and attributes") {
  Attacker attacker(Carrier::kSharedMemory);
  const uint64_t canary = attacker.canary().address();
  for (uint32_t operation = 0; operation < 12; ++operation) {
    CUstreamBatchMemOpParams word{};
    word.operation = static_cast<CUstreamBatchMemOpType>(operation);
    word.writeValue.address = word.writeValue.alias = canary;
    cmd::StreamBatchMemOpV2 batch{};
    batch.stream = OwnSession::stream(1);
    batch.count = 1;
    attacker.session().run(batch, std::as_bytes(std::span(&word, 1)));
    attacker.check("a batch of operation " + std::to_string(operation));
  }
  for (uint32_t type = 0; type < 5; ++type)
    for (const uint32_t isSurface : {0u, 1u}) {
      CUDA_RESOURCE_DESC resource{};
      resource.resType = static_cast<CUresourcetype>(type);
      resource.res.pitch2D = {canary, CU_AD_FORMAT_FLOAT, 1, 16, 4, 64};
      if (type == CU_RESOURCE_TYPE_LINEAR) resource.res.linear = {canary, CU_AD_FORMAT_FLOAT, 1, 256};
      cmd::TextureCreate create{};
      create.handle = canary;
      create.isSurface = isSurface;
      std::memcpy(create.resource, &resource, sizeof(resource));
      cmd::TextureCreateReply made{};
      CHECK(attacker.session().run(made, create) != 0);
      attacker.check("a texture of resource type " + std::to_string(type));
    }
  for (uint32_t form = 0; form < 3; ++form) {
    cmd::TensorMapEncode encode{};
    encode.address = canary;
    encode.form = form;
    encode.rank = 3;
    encode.dataType = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    attacker.session().run(encode);
    attacker.check("a tensor map of form " + std::to_string(form));
  }
  for (uint32_t id = 0; id < 24; ++id) {
    CUlaunchAttributeValue value{};
    value.accessPolicyWindow = {reinterpret_cast<void*>(canary), 4096, 1.0F, CU_ACCESS_PROPERTY_PERSISTING,
                                CU_ACCESS_PROPERTY_STREAMING};
    cmd::StreamSetAttribute set{};
    set.stream = OwnSession::stream(1);
    set.attribute = id;
    std::memcpy(set.value, &value, sizeof(value));
    attacker.session().run(set);
    attacker.check("stream attribute " + std::to_string(id));
  }
}

TEST("a held landing is put only into pages that the session has then") {
  Attacker attacker(Carrier::kTcp);
  std::minstd_rand random(11);
  constexpr size_t kBytes = 65536;
  // Addresses at which sanitizers map nothing either.
  constexpr uint64_t address = kPinnedPlaces.first;
  const auto land = [&](uint64_t hostAddress, uint64_t bytes) {
    cmd::LandFromDevice copy{};
    copy.address = attacker.memory();
    copy.bytes = bytes;
    copy.stream = OwnSession::stream(1);
    copy.hostAddress = hostAddress;
    copy.isHeld = 1;
    attacker.session().run(copy);
  };
  const auto tell = [&](uint32_t state) {
    cmd::HostMirror mirror{};
    mirror.address = address;
    mirror.bytes = kBytes;
    mirror.state = state;
    attacker.session().run(mirror);
  };
  for (int round = 0; round < 40; ++round) {
    cmd::HostAlloc allocate{};
    allocate.bytes = kBytes;
    allocate.address = address;
    allocate.isPrivate = 1;
    CHECK_EQ(attacker.session().run(allocate), 0);
    tell(1);
    land(address + random() % kBytes, 1 + random() % 4096);  // possibly beyond its end
    land(attacker.canary().address(), 64);
    if (random() % 2 == 0) tell(2);
    land(address + random() % kBytes, 1 + random() % 4096);
    cmd::HostFree free{};
    free.address = address;
    attacker.session().run(free);
    // The addresses are still declared as mirrored. Declaring now that they are not ends the session.
    land(address + random() % kBytes, 1 + random() % 4096);
    if (random() % 2 == 0) tell(0);
    attacker.check("a held landing");
  }
}

TEST("what is captured never comes to memory of the worker later") {
  Attacker attacker(Carrier::kTcp);
  std::minstd_rand random(5);
  for (int round = 0; round < 40; ++round) {
    OwnSession& session = attacker.session();
    cmd::CaptureBegin begin{};
    begin.stream = OwnSession::stream(1);
    const std::span<const std::byte> none;
    session.run(begin, none, none);
    const std::vector<std::byte> data(1 + random() % 40'000, std::byte{3});
    cmd::CopyToDevice up{};
    up.address = attacker.memory();
    up.stream = begin.stream;
    up.total = data.size();
    session.run(up, std::span<const std::byte>(data));
    cmd::LandFromDevice land{};
    land.address = attacker.memory();
    land.bytes = 1 + random() % 60'000;
    land.stream = begin.stream;
    land.hostAddress = 4096;
    session.run(land);
    cmd::CopyFromDevice down{};
    down.address = attacker.memory();
    down.bytes = 256;
    down.stream = begin.stream;
    session.run(down);
    for (const uint64_t address : {attacker.canary().address(), attacker.memory()}) {
      cmd::CaptureCopy copy{};
      copy.stream = begin.stream;
      copy.deviceAddress = address;
      copy.hostAddress = attacker.canary().address();
      copy.bytes = 64;
      copy.direction = 1;
      session.run(copy);
      cmd::MemsetD8Async fill{};
      fill.dstDevice = address;
      fill.N = 64;
      fill.hStream = begin.stream;
      session.run(fill);
    }
    cmd::CaptureEnd end{};
    end.stream = begin.stream;
    cmd::CaptureEndReply graph{};
    if (session.run(graph, end) == 0 && graph.graph) launch(session, graph.graph);
    attacker.check("a capture");
  }
}

TEST("pinned memory that a graph was given stays mapped until there is no graph") {
  Attacker attacker(Carrier::kSharedMemory);
  OwnSession& session = attacker.session();
  constexpr size_t kBytes = 65536;
  // Addresses at which sanitizers map nothing either.
  constexpr uint64_t address = kPinnedPlaces.first;
  void* const place = reinterpret_cast<void*>(address);
  const auto isMapped = [place] {
    void* const there = ::mmap(place, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (there != MAP_FAILED) ::munmap(there, kBytes);
    return there != place;
  };
  cmd::HostAlloc allocate{};
  allocate.bytes = kBytes;
  allocate.address = address;
  allocate.isPrivate = 1;
  CHECK_EQ(session.run(allocate), 0);
  for (const bool isFirst : {true, false}) {
    // The second time the run belongs to no graph.
    const uint64_t graph = makeGraph(session);
    graph::NodeRecord record{};
    record.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = attacker.memory();
    copy.dstMemoryType = isFirst ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = isFirst ? address : attacker.memory() + 4096;
    copy.WidthInBytes = 256;
    copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1;
    copy.srcPitch = copy.dstPitch = 256;
    record.copy = copy;
    uint64_t node = 0;
    CHECK_EQ(addNode(session, graph, recordBytes(record), node), 0);
    const uint64_t exec = launch(session, graph);
    CHECK(exec != 0);
    cmd::GraphDestroy destroy{};
    destroy.graph = graph;
    session.run(destroy);
    cmd::HostFree free{};
    free.address = address;
    CHECK_EQ(session.run(free), 0);
    session.synchronise();
    CHECK_EQ(isMapped(), isFirst);
    cmd::GraphLaunch again{};
    again.exec = exec;
    session.run(again);
    attacker.check("a graph whose pinned memory was freed");
    cmd::GraphExecDestroy end{};
    end.exec = exec;
    session.run(end);
    session.synchronise();
    CHECK(!isMapped());
    // Freed memory no longer belongs to the session.
    CHECK_EQ(session.run(allocate), 0);
  }
}

}  // namespace
}  // namespace millpond::worker
