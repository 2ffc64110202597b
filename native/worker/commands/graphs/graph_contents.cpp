// SPDX-License-Identifier: Apache-2.0
// Data that launches of a graph need beside the driver: memory and functions of the client that its nodes use.
#include <algorithm>
#include <cstring>

#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

constexpr size_t kMaxGraphCalls = size_t{1} << 20;

}  // namespace

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
  ClientPages::View view;
  if (CUresult rc = buffers_.view(stage->address, stage->bytes, view)) return rc;
  stage->memory = view.at(stage->address);
  stage->number = graphs_.next(graph::Tag::kGraph);
  std::erase_if(stages_, [](const auto& each) { return each.second.expired(); });
  out = std::shared_ptr<GraphStage>(stage.release(), [this, view](GraphStage* gone) {
    const std::unique_ptr<GraphStage> end(gone);
    buffers_.leave(view);
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
  // Contiguous rows are sent as one.
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
  std::map<uint64_t, std::vector<uint64_t>> after;  // node → its dependencies
  const bool asks = std::any_of(special.begin(), special.end(), [&](uint64_t each) {
    return graphs_.node(each)->call || !graphs_.node(each)->children.empty();
  });
  size_t count = 0;
  if (asks && driver_.cuGraphGetEdges_v2(graph->handle, nullptr, nullptr, nullptr, &count) == CUDA_SUCCESS && count) {
    std::vector<CUgraphNode> from(count), to(count);
    std::vector<CUgraphEdgeData> data(count);
    if (driver_.cuGraphGetEdges_v2(graph->handle, from.data(), to.data(), data.data(), &count) == CUDA_SUCCESS)
      for (size_t i = 0; i < count; ++i) after[graphs_.adopt(number, to[i])].push_back(graphs_.adopt(number, from[i]));
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
      page.push_back(
          {stage->toDevice ? stage->number : 0, stage->address, stage->bytes, stage->hasGaps() ? 1u : 0u, 0});
    ++count;
  }
  return page;
}

}  // namespace millpond::worker
