// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/contexts/context_ends.h"

#include <string>
#include <vector>

#include "base/log.h"

namespace millpond::worker {

CUresult ContextEnds::onContextDestroy(const cmd::Decoded<cmd::ContextDestroy>& command) {
  const uint32_t number = command.fixed.context;
  if (number <= devices_.all().size() || number > contexts_.size() || !contexts_.at(number).used)
    return violation("not a context of the program");
  Context& context = contexts_.at(number);
  if (!context.handle || std::exchange(context.ending, true)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const auto end = [this, number = static_cast<uint16_t>(number)](CUresult) {
    const CUcontext handle = contexts_.at(number).handle;
    const CUgreenCtx green = contexts_.at(number).green;
    if (green) endStreamsOf(number);
    const uint64_t ending = forget(number);
    contexts_.at(number) = {0, nullptr, true, false, {}};
    const CUresult rc = green ? driver_.cuGreenCtxDestroy(green) : driver_.cuCtxDestroy_v2(handle);
    charges_.ended(ending);
    counts_.countContexts();
    return rc;
  };
  // The driver would wait for the remaining work. For that of destroyed streams it does: the client destroys those of the context
  // first, and expects their work to be done before its later commands in other contexts.
  std::vector<Mark> marks;
  if (marks_.fence(static_cast<uint16_t>(number), marks, false) != CUDA_SUCCESS || marks.empty())
    return end(CUDA_SUCCESS);
  return waits_.until(std::move(marks), end);
}

void ContextEnds::endStreamsOf(uint16_t number) {
  handles_.eachOf(number, [&](HandleMap::Entry& entry) {
    if (handle::kind(entry.wire) != HandleKind::kStream || !entry.object) return;
    downloads_.detach(static_cast<CUstream>(entry.object));
    driver_.cuStreamDestroy_v2(static_cast<CUstream>(entry.object));
    handles_.lose(entry);
  });
  counts_.count(HandleKind::kStream);
  if (CUstream& quiet = contexts_.at(number).quiet) driver_.cuStreamDestroy_v2(std::exchange(quiet, nullptr));
}

uint64_t ContextEnds::forget(uint16_t number) {
  const uint64_t ending = charges_.newEnding();
  handles_.eachOf(number, [&](HandleMap::Entry& entry) {
    const HandleKind kind = handle::kind(entry.wire);
    if (kind == HandleKind::kStream && entry.object) downloads_.detach(static_cast<CUstream>(entry.object));
    if (kind == HandleKind::kEvent && entry.object) waits_.endEvent(static_cast<CUevent>(entry.object));
    if (kind == HandleKind::kModule) charges_.retireModule(entry.wire, ending);
    if (handle::livesInContext(kind)) handles_.lose(entry);
  });
  charges_.retireContext(number, ending);
  Context& gone = contexts_.at(number);
  gone.streams = gone.mostStreams = 0;
  gone.stackBytes = kUsualStack;
  gone.localBytes = 0;
  waits_.forgetContext(number);
  marks_.forgetContext(number);
  counts_.count(HandleKind::kStream);
  counts_.count(HandleKind::kEvent);
  observer_(number);
  contexts_.at(number).pool.clear();
  contexts_.at(number).quiet = nullptr;
  if (contexts_.bound() == number) contexts_.use(contexts_.primaryOf(number));
  return ending;
}

CUresult ContextEnds::onContextReset(const cmd::Decoded<cmd::ContextReset>&) {
  const uint16_t number = session_.current().context;
  if (number == 0 || number > devices_.all().size()) return violation("only primary contexts are reset");
  // The client has destroyed the objects in it. Only the driver can reset the libraries in it, above all their
  // variables. The driver would wait for the remaining work.
  const auto reset = [this, number] { return resetPrimary(number); };
  std::vector<Mark> marks;
  if (marks_.fence(number, marks, false) != CUDA_SUCCESS || marks.empty()) return order_.run(reset);
  return waits_.until(std::move(marks), [this, reset](CUresult) { return order_.run(reset); });
}

CUresult ContextEnds::resetPrimary(uint16_t number) {
  const CUdevice device = devices_.all()[contexts_.deviceOf(number)].device;
  const uint64_t ending = forget(number);
  CUcontext again = nullptr;
  CUresult rc = driver_.cuDevicePrimaryCtxReset_v2(device);
  charges_.ended(ending);
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

}  // namespace millpond::worker
