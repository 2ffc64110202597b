// SPDX-License-Identifier: Apache-2.0
// Helpers of all calls about graphs.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/log.h"
#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"
#include "client/state/context.h"
#include "cuda/graph_node.h"

namespace millpond::client::api {

template <typename H>
uint64_t numberOf(H handle) {
  return reinterpret_cast<uint64_t>(handle);
}

/// Performs the checks at the call's beginning, and checks that the handle is a graph or node at all; the worker knows
/// which ones exist.
inline CUresult check(const Call& call, CUgraph graph) {
  if (call.entry() != CUDA_SUCCESS) return call.entry();
  return graph::is(graph::Tag::kGraph, numberOf(graph)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
inline CUresult check(const Call& call, CUgraphNode node) {
  if (call.entry() != CUDA_SUCCESS) return call.entry();
  return graph::is(graph::Tag::kNode, numberOf(node)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/// Lets the call act in the given context; null: the current one.
inline CUresult useContext(Call& call, CUcontext context) {
  if (!context) return CUDA_SUCCESS;
  const Context* known = Client::instance().contexts().find(context);
  if (!known) return CUDA_ERROR_INVALID_CONTEXT;
  call.useContext(known->wireContext());
  return CUDA_SUCCESS;
}

/// A reply with tails.
template <typename R>
class Reply {
 public:
  template <typename C, typename... Tails>
  CUresult of(Call& call, const C& command, const Tails&... tails) {
    Session::Answer answer;
    answer.whole = &body_;
    if (const CUresult r = call.waitFor(command, answer, tails...); r != CUDA_SUCCESS) return r;
    return cmd::decode(std::span<const std::byte>(body_), decoded_) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
  }
  const R& fixed() const { return decoded_.fixed; }
  std::span<const std::byte> tail(size_t i) const { return decoded_.tail[i]; }

 private:
  std::vector<std::byte> body_;
  cmd::Decoded<R> decoded_;
};

/// All memory of this process that launches of an executable graph read: the first page with the total number, then the
/// other pages.
inline CUresult readSources(Call& call, uint64_t exec, uint32_t count, std::span<const std::byte> first,
                            std::vector<graph::Source>& out) {
  std::vector<std::byte> page(first.begin(), first.end());
  Reply<cmd::GraphSourcesReply> reply;
  for (;;) {
    const size_t before = out.size();
    out.resize(before + page.size() / sizeof(graph::Source));
    if (out.size() > before)
      std::memcpy(out.data() + before, page.data(), (out.size() - before) * sizeof(graph::Source));
    for (size_t i = before; i < out.size(); ++i)
      if (!call.remote().graphs.mayUse(out[i])) {
        log(LogLevel::Error, "the worker asks for memory of this process that no copy of its graphs names");
        return CUDA_ERROR_UNKNOWN;
      }
    if (out.size() >= count) return CUDA_SUCCESS;
    if (out.size() == before) return CUDA_ERROR_UNKNOWN;
    cmd::GraphSources wire{};
    wire.exec = exec;
    wire.first = static_cast<uint32_t>(out.size());
    if (const CUresult r = reply.of(call, wire); r != CUDA_SUCCESS) return r;
    page.assign(reply.tail(0).begin(), reply.tail(0).end());
  }
}

}  // namespace millpond::client::api
