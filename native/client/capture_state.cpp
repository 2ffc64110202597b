// SPDX-License-Identifier: Apache-2.0
#include "client/capture_state.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include "protocol/gen/commands.h"

namespace millpond::client {
namespace {

struct Open {
  uint64_t stream;
  CUstreamCaptureMode mode;
  uint32_t thread;
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

/// Calls that wait, that may make the driver wait, or that ask how far the device is. Those about events ask first whether
/// the event is of a capture: precondition::eventAnswer. Loading a library is none of them: the runtime loads lazily, so
/// a kernel whose first launch is captured brings its library while it is.
constexpr std::string_view kUnsafe[] = {
    "cuCtxSynchronize",     "cuCtxSynchronize_v2",  "cuLibraryUnload",      "cuMemAllocHost_v2",    "cuMemAllocManaged",     "cuMemAllocPitch_v2",
    "cuMemAlloc_v2",        "cuMemFreeHost",
    "cuMemFree_v2",         "cuMemHostAlloc",       "cuMemHostRegister_v2",  "cuMemHostUnregister",
    "cuMemcpy",             "cuMemcpy2DUnaligned_v2", "cuMemcpy2D_v2",       "cuMemcpy3D_v2",
    "cuMemcpyDtoD_v2",      "cuMemcpyDtoH_v2",      "cuMemcpyHtoD_v2",       "cuMemcpyPeer",
    "cuMemsetD16_v2",       "cuMemsetD2D16_v2",     "cuMemsetD2D32_v2",      "cuMemsetD2D8_v2",
    "cuMemsetD32_v2",       "cuMemsetD8_v2",        "cuModuleLoad",          "cuModuleLoadData",
    "cuModuleLoadDataEx",   "cuModuleLoadFatBinary", "cuModuleUnload",       "cuStreamAddCallback",
    "cuStreamQuery",        "cuStreamSynchronize",
};

}  // namespace

CUresult CaptureState::check(const char* call, Session& session, uint32_t thread) noexcept {
  const bool isUnsafe =
      std::find(std::begin(kUnsafe), std::end(kUnsafe), std::string_view(call)) != std::end(kUnsafe);
  return isUnsafe ? checkUnsafe(session, thread) : CUDA_SUCCESS;
}

CUresult CaptureState::checkUnsafe(Session& session, uint32_t thread) noexcept {
  if (threadMode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const std::lock_guard lock(books().mutex);
  CUresult result = CUDA_SUCCESS;
  for (const Open& each : books().open) {
    const bool mine = each.thread == thread;
    const bool forbids = mine ? each.mode != CU_STREAM_CAPTURE_MODE_RELAXED
                              : threadMode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                    each.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!forbids) continue;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    cmd::CaptureInvalidate wire{};
    wire.stream = each.stream;
    session.post(static_cast<uint16_t>(cmd::CaptureInvalidate::kOp), {0, thread},
                 cmd::encodedSize<cmd::CaptureInvalidate>(), [&](std::byte* place) { cmd::encode(place, wire); });
  }
  return result;
}

void CaptureState::begun(uint64_t stream, CUstreamCaptureMode mode, uint32_t thread) noexcept {
  const std::lock_guard lock(books().mutex);
  books().open.push_back({stream, mode, thread});
  books().known.push_back(stream);
  open_.store(static_cast<uint32_t>(books().open.size()), std::memory_order_relaxed);
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
