// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/graphs/graph_stages.h"

#include <cstring>
#include <utility>

namespace millpond::worker {

CUresult GraphStages::make(const Box& box, bool toDevice, const CUDA_MEMCPY3D& original,
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
  std::erase_if(all_, [](const auto& each) { return each.second.expired(); });
  out = std::shared_ptr<GraphStage>(stage.release(), [&buffers = buffers_, view](GraphStage* gone) {
    const std::unique_ptr<GraphStage> end(gone);
    buffers.leave(view);
  });
  all_[out->number] = out;
  return CUDA_SUCCESS;
}

CUresult GraphStages::onGraphSource(const cmd::Decoded<cmd::GraphSource>& command) {
  const auto found = all_.find(command.fixed.source);
  const auto stage = found == all_.end() ? nullptr : found->second.lock();
  const auto data = command.tail[0];
  if (!stage) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t offset = command.fixed.address - stage->address;
  if (!stage->toDevice || offset > stage->bytes || data.size() > stage->bytes - offset)
    return violation("bytes beyond the range that a graph reads");
  if (!data.empty()) std::memcpy(stage->memory + offset, data.data(), data.size());
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
