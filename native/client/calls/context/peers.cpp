// SPDX-License-Identifier: Apache-2.0
// Access of the devices of a session to each other's memory.
#include <mutex>
#include <set>

#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"
#include "client/state/context.h"

namespace millpond::client::api {
namespace {

/// Pairs of contexts with access, by the identity of both, so that an entry ends with either.
struct PeerAccess {
  std::mutex mutex;
  std::set<std::pair<uint64_t, uint64_t>> enabled;
};
PeerAccess& access() {
  static auto& all = *new PeerAccess();
  return all;
}

CUresult change(Call& call, const Context& peer, bool enable) {
  cmd::PeerAccess wire{};
  wire.peer = peer.wireContext();
  wire.enable = enable;
  cmd::PeerAccessReply reply{};
  return call.wait(wire, reply);
}

}  // namespace

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) noexcept {
  Call call("cuCtxEnablePeerAccess", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const Context* own = contextOf(call.context());
  const Context* peer = Client::instance().contexts().find(peerContext);
  if (!own || !peer || !peer->active()) return CUDA_ERROR_INVALID_CONTEXT;
  int can = 0;
  if (const CUresult r = api::cuDeviceCanAccessPeer(&can, own->device(), peer->device()); r != CUDA_SUCCESS) return r;
  if (!can) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  std::lock_guard lock(access().mutex);
  const std::pair key(own->id(), peer->id());
  if (access().enabled.contains(key)) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  const CUresult result = change(call, *peer, true);
  if (result == CUDA_SUCCESS) access().enabled.insert(key);
  return result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) noexcept {
  Call call("cuCtxDisablePeerAccess", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  const Context* own = contextOf(call.context());
  const Context* peer = Client::instance().contexts().find(peerContext);
  if (!own || !peer || !peer->active()) return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard lock(access().mutex);
  if (access().enabled.erase({own->id(), peer->id()}) == 0) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  return change(call, *peer, false);
}

}  // namespace millpond::client::api
