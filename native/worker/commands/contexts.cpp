// SPDX-License-Identifier: Apache-2.0
// Contexts that the program creates beside the devices' primary ones, and the end of contexts.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

constexpr size_t kMaxAffinities = 16;
/// The client decides how its threads wait; this worker never waits in the driver.
constexpr unsigned kFlagsPassedOn = CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_SYNC_MEMOPS;

}  // namespace

CUresult Executor::admitContext(uint32_t number) {
  if (number <= devices_.all().size() || number >= wire::kContextLimit)
    return violation("a context of the number " + std::to_string(number));
  if (number > contexts_.size()) contexts_.all().resize(number);
  const Context& before = contexts_.at(number);
  if (!before.handle) return CUDA_SUCCESS;
  // Numbers are reused only after thousands of others: that many contexts can wait for the end of their work.
  return before.ending ? CUDA_ERROR_OUT_OF_MEMORY : violation("the number of a context is taken");
}

CUresult Executor::onContextCreate(const cmd::Decoded<cmd::ContextCreate>& command) {
  const auto& create = command.fixed;
  CUdevice device = 0;
  if (!this->device(create.device, device)) return violation("a context on no device of the session");
  if (CUresult rc = admitContext(create.context)) return rc;
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

CUresult Executor::onContextDestroy(const cmd::Decoded<cmd::ContextDestroy>& command) {
  const uint32_t number = command.fixed.context;
  if (number <= devices_.all().size() || number > contexts_.size() || !contexts_.at(number).used)
    return violation("this is no context of the program's");
  Context& context = contexts_.at(number);
  if (!context.handle || std::exchange(context.ending, true)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const auto end = [this, number = static_cast<uint16_t>(number)](CUresult) {
    const CUcontext handle = contexts_.at(number).handle;
    const CUgreenCtx green = contexts_.at(number).green;
    if (green) endStreamsOf(number);
    forgetContext(number);
    contexts_.at(number) = {0, nullptr, true, false, {}};
    counts_.countContexts();
    return green ? driver_.cuGreenCtxDestroy(green) : driver_.cuCtxDestroy_v2(handle);
  };
  // The driver would wait for the remaining work.
  std::vector<Mark> marks;
  if (marks_.fence(static_cast<uint16_t>(number), marks) != CUDA_SUCCESS || marks.empty()) return end(CUDA_SUCCESS);
  return waits_.until(std::move(marks), end);
}

void Executor::endStreamsOf(uint16_t number) {
  handles_.eachOf(number, [&](HandleMap::Entry& entry) {
    if (handle::kind(entry.wire) != HandleKind::kStream || !entry.object) return;
    detachDownloads(static_cast<CUstream>(entry.object));
    driver_.cuStreamDestroy_v2(static_cast<CUstream>(entry.object));
    handles_.lose(entry);
  });
  counts_.count(HandleKind::kStream);
  if (CUstream& quiet = contexts_.at(number).quiet) driver_.cuStreamDestroy_v2(std::exchange(quiet, nullptr));
}

void Executor::forgetContext(uint16_t number) {
  handles_.eachOf(number, [&](HandleMap::Entry& entry) {
    const HandleKind kind = handle::kind(entry.wire);
    if (kind == HandleKind::kStream && entry.object) detachDownloads(static_cast<CUstream>(entry.object));
    if (kind == HandleKind::kEvent && entry.object) waits_.endEvent(static_cast<CUevent>(entry.object));
    if (kind == HandleKind::kModule) charges_.dropModule(entry.wire);
    if (handle::livesInContext(kind)) handles_.lose(entry);
  });
  charges_.dropContext(number);
  budgets_.publish();
  Context& gone = contexts_.at(number);
  gone.streams = gone.mostStreams = 0;
  gone.stackBytes = kUsualStack;
  gone.localBytes = 0;
  counts_.count(HandleKind::kStream);
  counts_.count(HandleKind::kEvent);
  const auto forget = [number](Mark& mark) {
    if (mark.context == number) mark.event = nullptr;
  };
  waits_.forgetContext(number);
  marks_.forgetContext(number);
  hostCopies_.forgetContext(number);
  frees_.forgetContext(number);
  textures_.forgetContext(number);
  for (Hold& each : holds_) forget(each.mark);
  for (Landing& each : landings_) forget(each.mark);
  for (ReadMemory& each : readMemory_) forget(each.mark);
  for (Download& each : downloads_) {
    for (Download::Piece& piece : each.pieces) forget(piece.mark);
    if (each.stream.context == number && each.left && !each.failure) each.failure = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  for (const auto& gate : gates_) gate->forget(number);
  contexts_.at(number).pool.clear();
  contexts_.at(number).quiet = nullptr;
  journal_.forgetSettings(number);
  eventTimes_.forgetContext(number);
  functions_.forgetContext(number);
  if (contexts_.bound() == number) contexts_.use(contexts_.primaryOf(number));
}

CUresult Executor::onContextReset(const cmd::Decoded<cmd::ContextReset>&) {
  const uint16_t number = session_.current().context;
  if (number == 0 || number > devices_.all().size()) return violation("only primary contexts are reset");
  // The client has destroyed the objects in it. Only the driver can reset the libraries in it, above all their
  // variables. It would wait for the remaining work.
  const auto reset = [this, number] { return resetPrimary(number); };
  std::vector<Mark> marks;
  if (marks_.fence(number, marks) != CUDA_SUCCESS || marks.empty()) return order_.run(reset);
  return waits_.until(std::move(marks), [this, reset](CUresult) { return order_.run(reset); });
}

CUresult Executor::resetPrimary(uint16_t number) {
  const CUdevice device = devices_.all()[contexts_.deviceOf(number)].device;
  forgetContext(number);
  CUcontext again = nullptr;
  CUresult rc = driver_.cuDevicePrimaryCtxReset_v2(device);
  if (!rc) rc = driver_.cuDevicePrimaryCtxRetain(&again, device);
  if (!rc) rc = driver_.cuCtxSetCurrent(again);
  if (!rc) {
    contexts_.replaceBound(number, again);
    // Registrations with the driver ended with it.
    rc = pinned_.pinAgain(number);
  }
  log(LogLevel::Info, "context %u was reset: %d", number, static_cast<int>(rc));
  if (rc) {
    session_.end({"the driver could not reset a context (" + std::to_string(static_cast<int>(rc)) + ")", false});
  }
  return rc;
}

CUresult Executor::onContextSetLimit(const cmd::Decoded<cmd::ContextSetLimit>& command) {
  // A value outside the enumeration must not be converted to it.
  if (static_cast<uint32_t>(command.fixed.limit) >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  return charges_.setLimit(static_cast<CUlimit>(command.fixed.limit), command.fixed.value);
}

CUresult Executor::onContextSetCacheConfig(const cmd::Decoded<cmd::ContextSetCacheConfig>& command) {
  return driver_.cuCtxSetCacheConfig(static_cast<CUfunc_cache>(command.fixed.config));
}

CUresult Executor::onContextRecordEvent(const cmd::Decoded<cmd::ContextRecordEvent>& command) {
  CUevent event = nullptr;
  if (!handle(HandleKind::kEvent, command.fixed.event, event)) return violation("unknown event");
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  const Context& context = contexts_.at(session_.current().context);
  if (context.green) return driver_.cuGreenCtxRecordEvent(context.green, event);
  return driver_.cuCtxRecordEvent(context.handle, event);
}

CUresult Executor::onContextWaitEvent(const cmd::Decoded<cmd::ContextWaitEvent>& command) {
  CUevent event = nullptr;
  if (!handle(HandleKind::kEvent, command.fixed.event, event)) return violation("unknown event");
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  const Context& context = contexts_.at(session_.current().context);
  if (context.green) return driver_.cuGreenCtxWaitEvent(context.green, event);
  return driver_.cuCtxWaitEvent(context.handle, event);
}

CUresult Executor::onPeerAccess(const cmd::Decoded<cmd::PeerAccess>& command) {
  const uint32_t peer = command.fixed.peer;
  if (!contexts_.bound()) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer == 0 || peer > contexts_.size() || !contexts_.at(peer).handle) return CUDA_ERROR_INVALID_CONTEXT;
  const auto call = command.fixed.enable ? driver_.cuCtxEnablePeerAccess : nullptr;
  const auto undo = command.fixed.enable ? nullptr : driver_.cuCtxDisablePeerAccess;
  if (call) return call(contexts_.at(peer).handle, 0);
  return undo ? undo(contexts_.at(peer).handle) : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace millpond::worker
