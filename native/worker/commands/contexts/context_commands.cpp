// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/contexts/context_commands.h"

#include <cstring>
#include <string>
#include <vector>

namespace millpond::worker {
namespace {

constexpr size_t kMaxAffinities = 16;
/// The client decides how its threads wait; this worker never waits in the driver.
constexpr unsigned kFlagsPassedOn = CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_SYNC_MEMOPS;

}  // namespace

CUresult admitContext(SessionCore& session, uint32_t number) {
  Contexts& contexts = session.contexts();
  if (number <= session.devices().all().size() || number >= wire::kContextLimit)
    return session.violation("a context of the number " + std::to_string(number));
  if (number > contexts.size()) contexts.all().resize(number);
  const Context& before = contexts.at(number);
  if (!before.handle) return CUDA_SUCCESS;
  // Numbers are reused only after thousands of others: that many contexts can wait for the end of their work.
  return before.ending ? CUDA_ERROR_OUT_OF_MEMORY : session.violation("the number of a context is taken");
}

CUresult ContextCommands::onContextCreate(const cmd::Decoded<cmd::ContextCreate>& command) {
  const auto& create = command.fixed;
  CUdevice device = 0;
  if (!this->device(create.device, device)) return violation("a context on no device of the session");
  if (CUresult rc = admitContext(session_, create.context)) return rc;
  const auto bytes = command.tail[0];
  if (bytes.size() % sizeof(CUexecAffinityParam) || bytes.size() > kMaxAffinities * sizeof(CUexecAffinityParam))
    return violation("affinities of " + std::to_string(bytes.size()) + " bytes");
  std::vector<CUexecAffinityParam> affinities(bytes.size() / sizeof(CUexecAffinityParam));
  if (!affinities.empty()) std::memcpy(affinities.data(), bytes.data(), bytes.size());

  if (!counts_.take(Thing::kContext, 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (CUresult rc = charges_.context(create.context, static_cast<uint16_t>(create.device))) {
    counts_.countContexts();
    return rc;
  }
  CUcontext handle = nullptr;
  const unsigned flags = create.flags & kFlagsPassedOn;
  CUresult rc;
  if (affinities.empty())
    rc = driver_.cuCtxCreate_v2(&handle, flags, device);
  else
    rc = driver_.cuCtxCreate_v3(&handle, affinities.data(), static_cast<int>(affinities.size()), flags, device);
  // The driver has made the new context current; the previously bound one stays bound.
  if (contexts_.bound()) driver_.cuCtxSetCurrent(contexts_.at(contexts_.bound()).handle);
  if (rc) {
    charges_.dropContext(create.context);
    counts_.countContexts();
    return rc;
  }
  contexts_.at(create.context) = {static_cast<uint16_t>(create.device), handle, true, false, {}};
  return CUDA_SUCCESS;
}

CUresult ContextCommands::onContextSetLimit(const cmd::Decoded<cmd::ContextSetLimit>& command) {
  // A value outside the enumeration must not be converted to it.
  if (static_cast<uint32_t>(command.fixed.limit) >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  return charges_.setLimit(static_cast<CUlimit>(command.fixed.limit), command.fixed.value);
}

CUresult ContextCommands::onContextSetCacheConfig(const cmd::Decoded<cmd::ContextSetCacheConfig>& command) {
  return driver_.cuCtxSetCacheConfig(static_cast<CUfunc_cache>(command.fixed.config));
}

CUresult ContextCommands::onContextRecordEvent(const cmd::Decoded<cmd::ContextRecordEvent>& command) {
  CUevent event = nullptr;
  if (!handle(HandleKind::kEvent, command.fixed.event, event)) return violation("unknown event");
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  const Context& context = contexts_.at(session_.current().context);
  if (context.green) return driver_.cuGreenCtxRecordEvent(context.green, event);
  return driver_.cuCtxRecordEvent(context.handle, event);
}

CUresult ContextCommands::onContextWaitEvent(const cmd::Decoded<cmd::ContextWaitEvent>& command) {
  CUevent event = nullptr;
  if (!handle(HandleKind::kEvent, command.fixed.event, event)) return violation("unknown event");
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  const Context& context = contexts_.at(session_.current().context);
  if (context.green) return driver_.cuGreenCtxWaitEvent(context.green, event);
  return driver_.cuCtxWaitEvent(context.handle, event);
}

CUresult ContextCommands::onPeerAccess(const cmd::Decoded<cmd::PeerAccess>& command) {
  const uint32_t peer = command.fixed.peer;
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer == 0 || peer > contexts_.size() || !contexts_.at(peer).handle) return CUDA_ERROR_INVALID_CONTEXT;
  const auto call = command.fixed.enable ? driver_.cuCtxEnablePeerAccess : nullptr;
  const auto undo = command.fixed.enable ? nullptr : driver_.cuCtxDisablePeerAccess;
  if (call) return call(contexts_.at(peer).handle, 0);
  return undo ? undo(contexts_.at(peer).handle) : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace millpond::worker
