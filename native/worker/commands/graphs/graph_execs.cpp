// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/graph_execs.h"

namespace millpond::worker {
namespace {

/// Upper bound of the device memory of an executable graph beside that of its nodes.
constexpr uint64_t kLeastExec = uint64_t{4} << 20;

}  // namespace

CUresult GraphExecs::onGraphInstantiate(const cmd::Decoded<cmd::GraphInstantiate>& command) {
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
  if (!nodeCount_.take(nodeCount_.of(in.graph))) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraphExec exec = nullptr;
  const uint64_t number = graphs_.next(graph::Tag::kExec);
  const auto make = [&] { return driver_.cuGraphInstantiateWithParams(&exec, graph->handle, &params); };
  const DriverCosts& costs = charges_.costs(contexts_.bound() ? contexts_.deviceOf(contexts_.bound()) : 0);
  const uint64_t most = kLeastExec + nodeCount_.of(in.graph).nodes * costs.graphNode;
  const CUresult rc = costs.any() && contexts_.bound()
                          ? charges_.measured(DriverMemory::Of::kGraph, number, contexts_.bound(), most, make,
                                              [&] { driver_.cuGraphExecDestroy(exec); })
                          : make();
  answer.status = static_cast<int32_t>(rc);
  answer.result = static_cast<uint32_t>(params.result_out);
  if (answer.status) {
    nodeCount_.drop();
    if (params.hErrNode_out) answer.errorNode = graphs_.adopt(in.graph, params.hErrNode_out);
    reply(answer, std::span<const std::byte>{});
    return CUDA_SUCCESS;
  }
  Exec made{exec, contents_.of(in.graph)};
  answer.exec = number;
  nodeCount_.keep(answer.exec);
  answer.hostFunctions = static_cast<uint32_t>(made.contents->calls.size());
  answer.hostCopies = made.contents->hostCopies();
  answer.kept = static_cast<uint32_t>(made.contents->kept().size());
  const std::vector<graph::Source> sources = made.contents->sources(0, answer.sourceCount);
  all_.emplace(answer.exec, std::move(made));
  reply(answer, std::as_bytes(std::span(sources)));
  return CUDA_SUCCESS;
}

CUresult GraphExecs::onGraphSources(const cmd::Decoded<cmd::GraphSources>& command) {
  const auto exec = all_.find(command.fixed.exec);
  if (exec == all_.end()) return CUDA_ERROR_INVALID_VALUE;
  uint32_t count = 0;
  const std::vector<graph::Source> sources = exec->second.contents->sources(command.fixed.first, count);
  reply(cmd::GraphSourcesReply{}, std::as_bytes(std::span(sources)));
  return CUDA_SUCCESS;
}

CUresult GraphExecs::onGraphExecDestroy(const cmd::Decoded<cmd::GraphExecDestroy>& command) {
  const auto exec = all_.find(command.fixed.exec);
  if (exec == all_.end()) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphExec handle = exec->second.handle;
  all_.erase(exec);
  nodeCount_.give(command.fixed.exec);
  const CUresult rc = driver_.cuGraphExecDestroy(handle);
  charges_.drop(DriverMemory::Of::kGraph, command.fixed.exec);
  budgets_.publish();
  hostMemory_.releaseForgotten();
  return rc;
}

CUresult GraphExecs::onGraphExecUpdate(const cmd::Decoded<cmd::GraphExecUpdate>& command) {
  const auto exec = all_.find(command.fixed.exec);
  const GraphTable::Graph* graph = graphs_.graph(command.fixed.graph);
  if (exec == all_.end() || !graph) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo info{};
  cmd::GraphExecUpdateReply answer{};
  answer.status = static_cast<int32_t>(driver_.cuGraphExecUpdate_v2(exec->second.handle, graph->handle, &info));
  answer.result = static_cast<uint32_t>(info.result);
  if (info.errorNode) answer.errorNode = graphs_.adopt(command.fixed.graph, info.errorNode);
  if (info.errorFromNode) answer.errorFromNode = graphs_.adopt(command.fixed.graph, info.errorFromNode);
  if (!answer.status) exec->second.contents = contents_.of(command.fixed.graph);
  answer.hostFunctions = static_cast<uint32_t>(exec->second.contents->calls.size());
  answer.hostCopies = exec->second.contents->hostCopies();
  const std::vector<graph::Source> sources = exec->second.contents->sources(0, answer.sourceCount);
  reply(answer, std::as_bytes(std::span(sources)));
  return CUDA_SUCCESS;
}

CUresult GraphExecs::onGraphLaunch(const cmd::Decoded<cmd::GraphLaunch>& command) {
  const uint64_t landing = command.fixed.landing;
  if (landing && landings_.isNamed(landing)) return violation("two landings of one number");
  landings_.forget(command.fixed.landed);
  const size_t before = landings_.size();
  const CUresult rc = launch(command.fixed);
  if (landings_.size() == before && !session_.hasEnded()) landings_.end(landing);
  return rc;
}

CUresult GraphExecs::launch(const cmd::GraphLaunch& launch) {
  Stream s;
  if (!stream(launch.stream, s)) return violation("unknown stream");
  const auto exec = all_.find(launch.exec);
  if (exec == all_.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto contents = exec->second.contents;
  const bool captured = captures_.status(s) != CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult rc = CUDA_SUCCESS;
  // Stages and functions of this graph's launches would have to move to the graph that is being captured.
  if (captured && (!contents->stages.empty() || !contents->calls.empty())) rc = CUDA_ERROR_NOT_SUPPORTED;
  if (!contents->calls.empty()) functions_.load();
  if (!rc) rc = driver_.cuGraphLaunch(exec->second.handle, s.handle);
  // Its kernels may belong to any context.
  for (Context& each : contexts_.all()) each.hasLaunched = each.hasLaunched || each.handle;
  if (rc || captured) {
    for (size_t i = 0; i < contents->calls.size(); ++i)
      callbacks_->announce({CallbackKind::kNothing, contexts_.primaryOf(s.context), 0, 0, 0});
    return rc;
  }
  session_.counters().launches.fetch_add(1, std::memory_order_relaxed);
  for (const auto& each : contents->kept()) graphMemory_.leave(each);
  order_.expect(contents->calls.size());
  order_.graphLaunched(s);
  if (contents->stages.empty()) return CUDA_SUCCESS;
  return landings_.addLaunch(s, launch.landing, contents);
}

CUresult GraphExecs::onGraphUpload(const cmd::Decoded<cmd::GraphUpload>& command) {
  Stream s;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  const auto exec = all_.find(command.fixed.exec);
  if (exec == all_.end()) return CUDA_ERROR_INVALID_VALUE;
  return driver_.cuGraphUpload(exec->second.handle, s.handle);
}

}  // namespace millpond::worker
