// SPDX-License-Identifier: Apache-2.0
// Graphs as a whole: their making, the order in them, and their launches.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>

#include "base/log.h"
#include "base/unique_fd.h"
#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

constexpr size_t kMaxGraphCalls = size_t{1} << 20;
/// What an executable graph may take of a device beside what its nodes take.
constexpr uint64_t kLeastExec = uint64_t{4} << 20;

/// Not told of a graph: handles and functions, which are addresses of this process, and all that the verbose flag adds.
constexpr unsigned kHiddenDotFlags = CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE | CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES |
                                     CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS;

/// Hexadecimal digits that could be an address become `x`, whichever driver wrote them.
void maskAddresses(std::string& text) {
  const auto isDigit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  for (auto at = text.begin(); at != text.end();) {
    const auto end = std::find_if_not(at, text.end(), isDigit);
    const auto before = at - text.begin();
    const bool isPrefixed = before >= 2 && at[-2] == '0' && (at[-1] == 'x' || at[-1] == 'X');
    const bool isWord = before >= 1 && (std::isalnum(static_cast<unsigned char>(at[-1])) || at[-1] == '_');
    // Shorter ones are numbers, and no address of a process.
    if (end - at >= (isPrefixed ? 8 : 12) && (isPrefixed || !isWord)) std::fill(at, end, 'x');
    at = end == at ? at + 1 : end;
  }
}

std::span<const std::byte> bytesOf(const std::vector<uint64_t>& numbers) { return std::as_bytes(std::span(numbers)); }

}  // namespace

// Memory of the client

CUresult Executor::makeStage(const Box& box, bool toDevice, const CUDA_MEMCPY3D& original,
                             std::shared_ptr<GraphStage>& out) {
  const auto extent = box.extent();
  auto stage = std::make_unique<GraphStage>();
  const uint64_t base = AddressGate::echo(box.address);
  if (!extent || __builtin_add_overflow(base, extent->offset, &stage->address) ||
      stage->address > UINT64_MAX - extent->bytes)
    return CUDA_ERROR_INVALID_VALUE;
  stage->toDevice = toDevice;
  stage->width = box.width;
  stage->height = box.height;
  stage->depth = box.depth;
  stage->rowStride = extent->rowStride;
  stage->sliceStride = extent->sliceStride;
  stage->bytes = extent->bytes;
  stage->original = original;
  const uint64_t size = ClientPages::sizeOf(stage->address, stage->bytes);
  if (!takeHostOrTrim(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto view = clientPages_.view(stage->address, stage->bytes);
  if (!view) {
    giveHost(size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (CUresult rc = pin(view->memory, view->bytes, CU_MEMHOSTREGISTER_PORTABLE)) {
    clientPages_.end(*view);
    giveHost(size);
    return rc;
  }
  stage->memory = view->at(stage->address);
  stage->number = graphs_.next(graph::Tag::kGraph);
  std::erase_if(stages_, [](const auto& each) { return each.second.expired(); });
  out = std::shared_ptr<GraphStage>(stage.release(), [this, view = *view](GraphStage* gone) {
    const std::unique_ptr<GraphStage> end(gone);
    endedPages_.push_back(view);
  });
  stages_[out->number] = out;
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphSource(const cmd::Decoded<cmd::GraphSource>& command) {
  const auto found = stages_.find(command.fixed.source);
  const auto stage = found == stages_.end() ? nullptr : found->second.lock();
  const auto data = command.tail[0];
  if (!stage) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t offset = command.fixed.address - stage->address;
  if (!stage->toDevice || offset > stage->bytes || data.size() > stage->bytes - offset)
    return violation("bytes beyond what a graph reads");
  if (!data.empty()) std::memcpy(stage->memory + offset, data.data(), data.size());
  return CUDA_SUCCESS;
}

void Executor::land(const GraphStage& stage) {
  const std::span<const std::byte> all(stage.memory, stage.bytes);
  // Rows one behind the other go as one.
  if (!stage.hasGaps()) return void(sendLanding(stage.address, all, 0, false));
  for (uint64_t slice = 0; slice < stage.depth; ++slice)
    for (uint64_t row = 0; row < stage.height; ++row) {
      const uint64_t offset = slice * stage.sliceStride + row * stage.rowStride;
      sendLanding(stage.address + offset, all.subspan(offset, stage.width), 0, false);
    }
}

const HostCall* Executor::graphCall(const Callback& callback) {
  const std::array<uint64_t, 3> key{callback.function, callback.data, callback.context};
  const auto known = graphCalls_.find(key);
  if (known != graphCalls_.end()) return known->second.get();
  if (graphCalls_.size() >= kMaxGraphCalls) return nullptr;
  return graphCalls_.emplace(key, std::make_unique<HostCall>(HostCall{callbacks_, callback})).first->second.get();
}

// What launches need beside the driver

void Executor::addUnder(uint64_t number, Before& before) {
  const GraphTable::Graph* graph = graphs_.graph(number);
  if (!graph) return;
  for (const uint64_t each : graph->special) {
    const GraphTable::Node& node = *graphs_.node(each);
    if (node.stage && !node.stage->toDevice) before.landings.push_back(each);
    if (node.call) before.calls.push_back(each);
    for (const uint64_t child : node.children) addUnder(child, before);
  }
}

void Executor::collect(uint64_t number, const Before& outside, ExecContents& contents) {
  const GraphTable::Graph* graph = graphs_.graph(number);
  if (!graph || graph->special.empty()) return;
  const std::vector<uint64_t> special(graph->special.begin(), graph->special.end());
  std::map<uint64_t, std::vector<uint64_t>> after;  // node → those that it waits for
  const bool asks = std::any_of(special.begin(), special.end(), [&](uint64_t each) {
    return graphs_.node(each)->call || !graphs_.node(each)->children.empty();
  });
  size_t count = 0;
  if (asks && driver_.cuGraphGetEdges_v2(graph->handle, nullptr, nullptr, nullptr, &count) == CUDA_SUCCESS && count) {
    std::vector<CUgraphNode> from(count), to(count);
    std::vector<CUgraphEdgeData> data(count);
    if (driver_.cuGraphGetEdges_v2(graph->handle, from.data(), to.data(), data.data(), &count) == CUDA_SUCCESS)
      for (size_t i = 0; i < count; ++i)
        after[graphs_.adopt(number, to[i])].push_back(graphs_.adopt(number, from[i]));
  }
  const auto beforeOf = [&](uint64_t node) {
    Before before = outside;
    std::set<uint64_t> seen;
    std::vector<uint64_t> open = after[node];
    while (!open.empty()) {
      const uint64_t each = open.back();
      open.pop_back();
      if (!seen.insert(each).second) continue;
      const GraphTable::Node& entry = *graphs_.node(each);
      if (entry.stage && !entry.stage->toDevice) before.landings.push_back(each);
      if (entry.call) before.calls.push_back(each);
      for (const uint64_t child : entry.children) addUnder(child, before);
      const auto& next = after[each];
      open.insert(open.end(), next.begin(), next.end());
    }
    return before;
  };
  for (const uint64_t each : special) {
    const GraphTable::Node& node = *graphs_.node(each);
    if (node.stage) contents.stages[each] = node.stage;
    if (node.allocation) contents.allocations.push_back(node.allocation);
    if (node.call) {
      contents.calls[each] = node.call;
      contents.before[each] = beforeOf(each).landings;
      contents.after[each];
    }
    if (node.stage && node.stage->toDevice) {
      Before before = beforeOf(each);
      contents.before[each] = std::move(before.landings);
      for (const uint64_t call : before.calls) contents.after[call].push_back(each);
    }
    if (!node.children.empty()) {
      const Before before = beforeOf(each);
      const std::vector<uint64_t> children = node.children;
      for (const uint64_t child : children) collect(child, before, contents);
    }
  }
}

std::shared_ptr<const ExecContents> Executor::contentsOf(uint64_t number) {
  auto contents = std::make_shared<ExecContents>();
  collect(number, {}, *contents);
  return contents;
}

std::vector<graph::Source> Executor::sourcesOf(const ExecContents& contents, uint32_t first, uint32_t& count) {
  std::vector<graph::Source> page;
  count = 0;
  for (const auto& [node, stage] : contents.stages) {
    if (count >= first && page.size() < graph::kSourcePage)
      page.push_back({stage->toDevice ? stage->number : 0, stage->address, stage->bytes, stage->hasGaps() ? 1u : 0u, 0});
    ++count;
  }
  return page;
}

// Graphs

CUresult Executor::onGraphCreate(const cmd::Decoded<cmd::GraphCreate>& command) {
  if (!driver_.cuGraphCreate || !driver_.cuGraphAddNode_v2) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraph graph = nullptr;
  if (CUresult rc = driver_.cuGraphCreate(&graph, command.fixed.flags)) return rc;
  reply(cmd::GraphCreateReply{graphs_.adopt(graph)});
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphDestroy(const cmd::Decoded<cmd::GraphDestroy>& command) {
  const GraphTable::Graph* graph = graphs_.graph(command.fixed.graph);
  if (!graph || graph->root != command.fixed.graph) return CUDA_ERROR_INVALID_VALUE;
  const CUgraph handle = graph->handle;
  graphs_.dropGraph(command.fixed.graph);
  giveNodes(command.fixed.graph);
  std::erase_if(conditions_, [this](const auto& each) { return !graphs_.graph(each.second); });
  const CUresult rc = driver_.cuGraphDestroy(handle);
  releaseForgottenRuns();
  return rc;
}

void Executor::copySpecials(uint64_t from, uint64_t to) {
  const GraphTable::Graph* source = graphs_.graph(from);
  const GraphTable::Graph* target = graphs_.graph(to);
  if (!source || !target) return;
  const std::vector<uint64_t> special(source->special.begin(), source->special.end());
  const CUgraph handle = target->handle;
  for (const uint64_t each : special) {
    CUgraphNode twin = nullptr;
    if (driver_.cuGraphNodeFindInClone(&twin, graphs_.node(each)->handle, handle)) continue;
    const uint64_t number = graphs_.adopt(to, twin);
    const GraphTable::Node original = *graphs_.node(each);
    GraphTable::Node& copy = *graphs_.node(number);
    copy.stage = original.stage;
    copy.call = original.call;
    copy.allocation = original.allocation;
    graphs_.markSpecial(number);
    CUgraph child = nullptr;
    if (original.children.size() == 1 && driver_.cuGraphChildGraphNodeGetGraph(twin, &child) == CUDA_SUCCESS) {
      adoptChild(number, child);
      copySpecials(original.children[0], graphs_.numberOf(child));
    }
  }
}

void Executor::adoptChild(uint64_t node, CUgraph child) {
  const uint64_t owner = graphs_.node(node)->graph;
  const uint64_t number = graphs_.adopt(child, graphs_.graph(owner)->root);
  graphs_.graph(number)->root = graphs_.graph(owner)->root;
  auto& children = graphs_.node(node)->children;
  if (std::find(children.begin(), children.end(), number) == children.end()) children.push_back(number);
  graphs_.markSpecial(node);
}

CUresult Executor::onGraphClone(const cmd::Decoded<cmd::GraphClone>& command) {
  const GraphTable::Graph* graph = graphs_.graph(command.fixed.graph);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (!takeNodes(nodesOf(command.fixed.graph))) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraph clone = nullptr;
  if (CUresult rc = driver_.cuGraphClone(&clone, graph->handle)) {
    dropNodes();
    return rc;
  }
  const uint64_t number = graphs_.adopt(clone);
  keepNodes(number);
  copySpecials(command.fixed.graph, number);
  reply(cmd::GraphCloneReply{number});
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphFindInClone(const cmd::Decoded<cmd::GraphFindInClone>& command) {
  const GraphTable::Node* node = graphs_.node(command.fixed.node);
  const GraphTable::Graph* clone = graphs_.graph(command.fixed.clone);
  if (!node || !clone) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode found = nullptr;
  if (CUresult rc = driver_.cuGraphNodeFindInClone(&found, node->handle, clone->handle)) return rc;
  reply(cmd::GraphFindInCloneReply{graphs_.adopt(command.fixed.clone, found)});
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphList(const cmd::Decoded<cmd::GraphList>& command) {
  const auto& in = command.fixed;
  const bool ofNode = in.what >= 3;
  uint64_t owner = in.object;
  CUgraphNode node = nullptr;
  if (ofNode) {
    const GraphTable::Node* entry = graphs_.node(in.object);
    if (!entry) return CUDA_ERROR_INVALID_VALUE;
    node = entry->handle;
    owner = entry->graph;
  }
  const GraphTable::Graph* graph = graphs_.graph(owner);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> nodes, others;
  std::vector<CUgraphEdgeData> edges;
  size_t count = 0;
  const auto ask = [&](bool fill) -> CUresult {
    CUgraphNode* first = fill ? nodes.data() : nullptr;
    CUgraphNode* second = fill ? others.data() : nullptr;
    CUgraphEdgeData* data = fill ? edges.data() : nullptr;
    switch (in.what) {
      case 0:
        return driver_.cuGraphGetNodes(graph->handle, first, &count);
      case 1:
        return driver_.cuGraphGetRootNodes(graph->handle, first, &count);
      case 2:
        return driver_.cuGraphGetEdges_v2(graph->handle, first, second, data, &count);
      case 3:
        return driver_.cuGraphNodeGetDependencies_v2(node, first, data, &count);
      case 4:
        return driver_.cuGraphNodeGetDependentNodes_v2(node, first, data, &count);
      default:
        return violation("a list of nothing");
    }
  };
  if (CUresult rc = ask(false)) return rc;
  nodes.resize(count);
  others.resize(in.what == 2 ? count : 0);
  edges.resize(in.what >= 2 ? count : 0);
  if (count)
    if (CUresult rc = ask(true)) return rc;
  const size_t begin = std::min<size_t>(in.first, count);
  const size_t end = std::min<size_t>(begin + graph::kListPage, count);
  std::vector<uint64_t> page, otherPage;
  for (size_t i = begin; i < end; ++i) {
    page.push_back(graphs_.adopt(owner, nodes[i]));
    if (!others.empty()) otherPage.push_back(graphs_.adopt(owner, others[i]));
  }
  const std::span<const CUgraphEdgeData> edgePage =
      edges.empty() ? std::span<const CUgraphEdgeData>{} : std::span<const CUgraphEdgeData>(edges).subspan(begin, end - begin);
  reply(cmd::GraphListReply{.total = static_cast<uint32_t>(count)}, bytesOf(page), bytesOf(otherPage),
        std::as_bytes(edgePage));
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphDepend(const cmd::Decoded<cmd::GraphDepend>& command) {
  const auto& in = command.fixed;
  const GraphTable::Graph* graph = graphs_.graph(in.graph);
  std::vector<CUgraphNode> from, to;
  std::vector<CUgraphEdgeData> edges, none;
  if (!graph || !dependencies(in.graph, command.tail[0], command.tail[2], in.hasEdges, from, edges) ||
      !dependencies(in.graph, command.tail[1], {}, false, to, none) || from.size() != to.size())
    return CUDA_ERROR_INVALID_VALUE;
  const CUgraphEdgeData* data = edges.empty() ? nullptr : edges.data();
  return in.remove ? driver_.cuGraphRemoveDependencies_v2(graph->handle, from.data(), to.data(), data, from.size())
                   : driver_.cuGraphAddDependencies_v2(graph->handle, from.data(), to.data(), data, from.size());
}

// Executable graphs

CUresult Executor::onGraphInstantiate(const cmd::Decoded<cmd::GraphInstantiate>& command) {
  const auto& in = command.fixed;
  const GraphTable::Graph* graph = graphs_.graph(in.graph);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (!driver_.cuGraphInstantiateWithParams) return CUDA_ERROR_NOT_SUPPORTED;
  Stream s;
  if (in.hasUpload && !stream(in.stream, s)) return violation("unknown stream");
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = in.flags;
  params.hUploadStream = s.handle;
  cmd::GraphInstantiateReply answer{};
  if (!takeNodes(nodesOf(in.graph))) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraphExec exec = nullptr;
  const uint64_t number = graphs_.next(graph::Tag::kExec);
  const auto make = [&] { return driver_.cuGraphInstantiateWithParams(&exec, graph->handle, &params); };
  const DriverCosts& costs = costs_[boundContext_ ? deviceOf(boundContext_) : 0];
  const uint64_t most = kLeastExec + nodesOf(in.graph) * costs.graphNode;
  const CUresult rc = costs.any() && boundContext_
                          ? measured(DriverMemory::Of::kGraph, number, boundContext_, most, make,
                                     [&] { driver_.cuGraphExecDestroy(exec); })
                          : make();
  answer.status = static_cast<int32_t>(rc);
  answer.result = static_cast<uint32_t>(params.result_out);
  if (answer.status) {
    dropNodes();
    if (params.hErrNode_out) answer.errorNode = graphs_.adopt(in.graph, params.hErrNode_out);
    reply(answer, std::span<const std::byte>{});
    return CUDA_SUCCESS;
  }
  Exec made{exec, contentsOf(in.graph)};
  answer.exec = number;
  keepNodes(answer.exec);
  answer.hostFunctions = static_cast<uint32_t>(made.contents->calls.size());
  answer.kept = static_cast<uint32_t>(made.contents->kept().size());
  const std::vector<graph::Source> sources = sourcesOf(*made.contents, 0, answer.sourceCount);
  execs_.emplace(answer.exec, std::move(made));
  reply(answer, std::as_bytes(std::span(sources)));
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphSources(const cmd::Decoded<cmd::GraphSources>& command) {
  const auto exec = execs_.find(command.fixed.exec);
  if (exec == execs_.end()) return CUDA_ERROR_INVALID_VALUE;
  uint32_t count = 0;
  const std::vector<graph::Source> sources = sourcesOf(*exec->second.contents, command.fixed.first, count);
  reply(cmd::GraphSourcesReply{}, std::as_bytes(std::span(sources)));
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphExecDestroy(const cmd::Decoded<cmd::GraphExecDestroy>& command) {
  const auto exec = execs_.find(command.fixed.exec);
  if (exec == execs_.end()) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphExec handle = exec->second.handle;
  execs_.erase(exec);
  giveNodes(command.fixed.exec);
  const CUresult rc = driver_.cuGraphExecDestroy(handle);
  driverMemory_.drop(DriverMemory::Of::kGraph, command.fixed.exec);
  updateMemoryCounters();
  releaseForgottenRuns();
  return rc;
}

CUresult Executor::onGraphExecUpdate(const cmd::Decoded<cmd::GraphExecUpdate>& command) {
  const auto exec = execs_.find(command.fixed.exec);
  const GraphTable::Graph* graph = graphs_.graph(command.fixed.graph);
  if (exec == execs_.end() || !graph) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo info{};
  cmd::GraphExecUpdateReply answer{};
  answer.status = static_cast<int32_t>(driver_.cuGraphExecUpdate_v2(exec->second.handle, graph->handle, &info));
  answer.result = static_cast<uint32_t>(info.result);
  if (info.errorNode) answer.errorNode = graphs_.adopt(command.fixed.graph, info.errorNode);
  if (info.errorFromNode) answer.errorFromNode = graphs_.adopt(command.fixed.graph, info.errorFromNode);
  if (!answer.status) exec->second.contents = contentsOf(command.fixed.graph);
  answer.hostFunctions = static_cast<uint32_t>(exec->second.contents->calls.size());
  const std::vector<graph::Source> sources = sourcesOf(*exec->second.contents, 0, answer.sourceCount);
  reply(answer, std::as_bytes(std::span(sources)));
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphLaunch(const cmd::Decoded<cmd::GraphLaunch>& command) {
  const uint64_t landing = command.fixed.landing;
  if (landing && namedLandings_.contains(landing)) return violation("two landings of one number");
  forgetLandings(command.fixed.landed);
  const size_t before = landings_.size();
  const CUresult rc = launchGraph(command.fixed);
  if (landings_.size() == before && !ended_) endLanding(landing);
  return rc;
}

CUresult Executor::launchGraph(const cmd::GraphLaunch& launch) {
  Stream s;
  if (!stream(launch.stream, s)) return violation("unknown stream");
  const auto exec = execs_.find(launch.exec);
  if (exec == execs_.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto contents = exec->second.contents;
  const bool captured = captureStatus(s) != CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult rc = CUDA_SUCCESS;
  // What belongs to the launches of this graph would have to go over to the graph that is being captured.
  if (captured && (!contents->stages.empty() || !contents->calls.empty())) rc = CUDA_ERROR_NOT_SUPPORTED;
  if (!rc) rc = driver_.cuGraphLaunch(exec->second.handle, s.handle);
  // Its kernels may be of any.
  for (Context& each : contexts_) each.hasLaunched = each.hasLaunched || each.handle;
  if (rc || captured) {
    for (size_t i = 0; i < contents->calls.size(); ++i)
      callbacks_->announce({CallbackKind::kNothing, primaryOf(s.context), 0, 0, 0});
    return rc;
  }
  counters_.launches.fetch_add(1, std::memory_order_relaxed);
  for (const auto& each : contents->kept()) leftByGraphs_[each->address] = each;
  callbacksExpected_ += contents->calls.size();
  if (contents->stages.empty()) return CUDA_SUCCESS;
  Landing landing;
  landing.number = launch.landing;
  landing.stream = s.handle;
  landing.contents = contents;
  if (CUresult marked = mark(s, landing.mark)) return marked;
  if (landing.number) {
    NamedLanding& named = namedLandings_[landing.number];
    named.keeper = contents;
    for (const auto& [node, stage] : contents->stages)
      if (!stage->toDevice && !stage->hasGaps()) named.parts.push_back({stage->address, stage->bytes, stage->memory});
  }
  addLanding(std::move(landing));
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphUpload(const cmd::Decoded<cmd::GraphUpload>& command) {
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  const auto exec = execs_.find(command.fixed.exec);
  if (exec == execs_.end()) return CUDA_ERROR_INVALID_VALUE;
  return driver_.cuGraphUpload(exec->second.handle, s.handle);
}

// The rest

CUresult Executor::onGraphConditional(const cmd::Decoded<cmd::GraphConditional>& command) {
  const GraphTable::Graph* graph = graphs_.graph(command.fixed.graph);
  if (!graph || !boundContext_) return CUDA_ERROR_INVALID_VALUE;
  if (!driver_.cuGraphConditionalHandleCreate) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphConditionalHandle handle = 0;
  if (CUresult rc = driver_.cuGraphConditionalHandleCreate(&handle, graph->handle, contexts_[boundContext_ - 1u].handle,
                                                           command.fixed.initial, command.fixed.flags))
    return rc;
  conditions_[handle] = command.fixed.graph;
  reply(cmd::GraphConditionalReply{handle});
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphDot(const cmd::Decoded<cmd::GraphDot>& command) {
  const auto& in = command.fixed;
  const GraphTable::Graph* graph = graphs_.graph(in.graph);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (!driver_.cuGraphDebugDotPrint) return CUDA_ERROR_NOT_SUPPORTED;
  if (in.offset == 0) {
    // The driver only writes files: one in memory, which needs no folder that this process could write to.
    const UniqueFd file(::memfd_create("millpond-graph", MFD_CLOEXEC));
    if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
    const std::string path = "/proc/self/fd/" + std::to_string(file.get());
    if (const CUresult rc = driver_.cuGraphDebugDotPrint(graph->handle, path.c_str(), in.flags & ~kHiddenDotFlags)) return rc;
    dot_.clear();
    char piece[16384];
    ssize_t n = 0;
    while ((n = ::pread(file.get(), piece, sizeof(piece), static_cast<off_t>(dot_.size()))) > 0)
      dot_.append(piece, static_cast<size_t>(n));
    if (n < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    maskAddresses(dot_);
  }
  const size_t begin = std::min<size_t>(in.offset, dot_.size());
  const size_t bytes = std::min<size_t>(graph::kTextPage, dot_.size() - begin);
  reply(cmd::GraphDotReply{.total = static_cast<uint32_t>(dot_.size())},
        std::as_bytes(std::span(dot_.data() + begin, bytes)));
  return CUDA_SUCCESS;
}

CUresult Executor::onGraphMemory(const cmd::Decoded<cmd::GraphMemory>& command) {
  const auto& in = command.fixed;
  CUdevice target = 0;
  if (!device(in.device, target)) return violation("no device of the session");
  if (!driver_.cuDeviceGetGraphMemAttribute || !driver_.cuDeviceGraphMemTrim) return CUDA_ERROR_NOT_SUPPORTED;
  cuuint64_t value = in.value;
  const auto attribute = static_cast<CUgraphMem_attribute>(in.attribute);
  CUresult rc;
  if (in.what == 0)
    rc = driver_.cuDeviceGetGraphMemAttribute(target, attribute, &value);
  else if (in.what == 1)
    rc = driver_.cuDeviceSetGraphMemAttribute(target, attribute, &value);
  else
    rc = driver_.cuDeviceGraphMemTrim(target);
  if (rc) return rc;
  reply(cmd::GraphMemoryReply{value});
  return CUDA_SUCCESS;
}

CUresult Executor::onUserObjectCreate(const cmd::Decoded<cmd::UserObjectCreate>& command) {
  const auto& in = command.fixed;
  if (!boundContext_ || !driver_.cuUserObjectCreate) return CUDA_ERROR_NOT_SUPPORTED;
  auto call = std::make_unique<HostCall>(HostCall{
      callbacks_, {CallbackKind::kDestructor, primaryOf(boundContext_), in.destroy, in.data, 0}});
  CUuserObject object = nullptr;
  if (CUresult rc = driver_.cuUserObjectCreate(&object, call.get(), &HostCall::announceOnce, in.references, in.flags))
    return rc;
  call.release();  // the driver has it now
  const uint64_t number = graphs_.next(graph::Tag::kUserObject);
  userObjects_[number] = object;
  reply(cmd::UserObjectCreateReply{number});
  return CUDA_SUCCESS;
}

CUresult Executor::onUserObjectCount(const cmd::Decoded<cmd::UserObjectCount>& command) {
  const auto& in = command.fixed;
  const auto object = userObjects_.find(in.object);
  if (object == userObjects_.end()) return CUDA_ERROR_INVALID_VALUE;
  const GraphTable::Graph* graph = in.what >= 2 ? graphs_.graph(in.graph) : nullptr;
  if (in.what >= 2 && !graph) return CUDA_ERROR_INVALID_VALUE;
  switch (in.what) {
    case 0:
      return driver_.cuUserObjectRetain(object->second, in.count);
    case 1:
      return driver_.cuUserObjectRelease(object->second, in.count);
    case 2:
      return driver_.cuGraphRetainUserObject(graph->handle, object->second, in.count, in.flags);
    case 3:
      return driver_.cuGraphReleaseUserObject(graph->handle, object->second, in.count);
    default:
      return violation("a reference of no kind");
  }
}

}  // namespace millpond::worker
