// SPDX-License-Identifier: Apache-2.0
#include "client/state/capture_state.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "protocol/gen/commands.h"

namespace millpond::client {
namespace {

struct Open {
  uint64_t stream;
  CUstreamCaptureMode mode;
  uint32_t thread;
  uint16_t context;
  bool isBlocking;  ///< the legacy stream waits for it
  bool isIntoGraph;
};

struct Books {
  std::mutex mutex;
  std::vector<Open> open;
  std::vector<uint64_t> known;  ///< streams that take part
};

Books& books() {
  static auto& all = *new Books();
  return all;
}

thread_local constinit CUstreamCaptureMode threadMode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/// Calls that may make the driver wait for the device, or that query its progress; measured on a card, call by call.
/// Calls about events first check whether the event belongs to a capture (precondition::eventAnswer), calls about
/// streams check which stream it is (precondition::streamAnswer), and stream-ordered allocations check whether the
/// stream is captured (precondition::uncaptured). Synchronous copies and fills, and loading modules, are not among
/// them: the runtime loads lazily, so a kernel whose first launch is captured loads its library during the capture.
constexpr std::string_view kUnsafe[] = {
    "cuArray3DCreate_v2",
    "cuArrayCreate_v2",
    "cuArrayDestroy",
    "cuCtxSetLimit",
    "cuGraphInstantiateWithFlags",
    "cuGraphInstantiateWithParams",
    "cuGraphInstantiate_v2",
    "cuLibraryUnload",
    "cuMemAllocHost_v2",
    "cuMemAllocManaged",
    "cuMemAllocPitch_v2",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolTrimTo",
    "cuMipmappedArrayCreate",
    "cuMipmappedArrayDestroy",
    "cuModuleUnload",
};
/// Calls that wait for all streams of the context, including captured ones: no mode allows them.
constexpr std::string_view kForbidden[] = {"cuCtxSynchronize", "cuCtxSynchronize_v2"};

bool isOneOf(std::span<const std::string_view> calls, std::string_view call) {
  return std::find(calls.begin(), calls.end(), call) != calls.end();
}

void tellLost(const Open& capture, Session& session, uint32_t thread) {
  cmd::CaptureInvalidate wire{};
  wire.stream = capture.stream;
  session.post(static_cast<uint16_t>(cmd::CaptureInvalidate::kOp), {0, thread},
               cmd::encodedSize<cmd::CaptureInvalidate>(), [&](std::byte* place) { cmd::encode(place, wire); });
}

/// Invalidates the captures for which `forbids` is true; returns `code` if there was one.
template <typename Forbids>
CUresult loseThose(Session& session, uint32_t thread, Forbids forbids,
                   CUresult code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
  const std::lock_guard lock(books().mutex);
  CUresult result = CUDA_SUCCESS;
  for (const Open& each : books().open) {
    if (!forbids(each)) continue;
    result = code;
    tellLost(each, session, thread);
  }
  return result;
}

}  // namespace

CUresult CaptureState::check(const char* call, Session& session, uint32_t thread, uint16_t context) noexcept {
  if (isOneOf(kForbidden, call))
    return loseThose(session, thread, [&](const Open& each) { return each.context == context; });
  return isOneOf(kUnsafe, call) ? checkUnsafe(session, thread) : CUDA_SUCCESS;
}

CUresult CaptureState::checkUnsafe(Session& session, uint32_t thread) noexcept {
  if (threadMode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  return loseThose(session, thread, [&](const Open& each) {
    if (each.thread == thread) return each.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return threadMode == CU_STREAM_CAPTURE_MODE_GLOBAL && each.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  });
}

CUresult CaptureState::checkLegacy(Session& session, uint32_t thread, uint16_t context) noexcept {
  return loseThose(
      session, thread, [&](const Open& each) { return each.isBlocking && each.context == context; },
      CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void CaptureState::lose(uint64_t stream, Session& session, uint32_t thread) noexcept {
  loseThose(session, thread, [&](const Open& each) { return each.stream == stream; });
}

void CaptureState::begun(uint64_t stream, CUstreamCaptureMode mode, uint32_t thread, uint16_t context, bool isBlocking,
                         bool isIntoGraph) noexcept {
  const std::lock_guard lock(books().mutex);
  books().open.push_back({stream, mode, thread, context, isBlocking, isIntoGraph});
  books().known.push_back(stream);
  open_.store(static_cast<uint32_t>(books().open.size()), std::memory_order_relaxed);
}

bool CaptureState::isIntoGraph(uint64_t stream) noexcept {
  const std::lock_guard lock(books().mutex);
  return std::any_of(books().open.begin(), books().open.end(),
                     [&](const Open& each) { return each.stream == stream && each.isIntoGraph; });
}

CUresult CaptureState::mayEnd(uint64_t stream, uint32_t thread) noexcept {
  const std::lock_guard lock(books().mutex);
  for (const Open& each : books().open)
    if (each.stream == stream && each.thread != thread && each.mode != CU_STREAM_CAPTURE_MODE_RELAXED)
      return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  return CUDA_SUCCESS;
}

void CaptureState::ended(uint64_t stream) noexcept {
  const std::lock_guard lock(books().mutex);
  if (std::erase_if(books().open, [&](const Open& each) { return each.stream == stream; }) == 0) return;
  books().known.clear();
  open_.store(static_cast<uint32_t>(books().open.size()), std::memory_order_relaxed);
}

bool CaptureState::isKnownCaptured(uint64_t stream) noexcept {
  const std::lock_guard lock(books().mutex);
  const auto& known = books().known;
  return std::find(known.begin(), known.end(), stream) != known.end();
}

void CaptureState::learnCaptured(uint64_t stream) noexcept {
  const std::lock_guard lock(books().mutex);
  if (!books().open.empty()) books().known.push_back(stream);
}

CUstreamCaptureMode CaptureState::exchangeMode(CUstreamCaptureMode mode) noexcept {
  return std::exchange(threadMode, mode);
}

}  // namespace millpond::client
