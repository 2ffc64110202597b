// SPDX-License-Identifier: Apache-2.0
// Functions of the program that run in stream order.
#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/session/callback_thread.h"
#include "client/state/capture_state.h"

namespace millpond::client::api {
namespace {

/// Values of HostFunction::kind.
enum class Kind : uint32_t { kHostFunction = 0, kStreamCallback = 1 };

CUresult enqueue(Call& call, Flavour flavour, CUstream hStream, uint64_t function, void* data, Kind kind) {
  cmd::HostFunction wire{};
  if (const CUresult r = call.stream(hStream, flavour, wire.stream); r != CUDA_SUCCESS) return r;
  if (function == 0) return CUDA_ERROR_INVALID_VALUE;
  wire.function = function;
  wire.data = reinterpret_cast<uint64_t>(data);
  wire.handle = reinterpret_cast<uint64_t>(hStream);
  wire.kind = static_cast<uint32_t>(kind);
  const auto shape = kind == Kind::kStreamCallback ? GivenFunctions::Shape::kOfStream : GivenFunctions::Shape::kOfData;
  // During a capture it becomes part of the graph. Only the worker knows the streams of a graph.
  const auto uses = CaptureState::anyOpen() ? GivenFunctions::Uses::kAny : GivenFunctions::Uses::kOne;
  call.remote().functions.give(shape, function, wire.data, uses);
  if (const CUresult r = CallbackThread::expect(call.session(), call.streamContext(wire.stream), 1); r != CUDA_SUCCESS)
    return r;
  return call.post(wire);
}

}  // namespace

CUresult cuLaunchHostFunc(Flavour flavour, CUstream hStream, CUhostFn fn, void* userData) noexcept {
  Call call("cuLaunchHostFunc", Needs::kAny);
  return enqueue(call, flavour, hStream, reinterpret_cast<uint64_t>(fn), userData, Kind::kHostFunction);
}

CUresult cuStreamAddCallback(Flavour flavour, CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) noexcept {
  Call call("cuStreamAddCallback", Needs::kAny);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  // A captured stream accepts no callback; the call fails immediately.
  if (CaptureState::anyOpen()) call.waitForResult();
  return enqueue(call, flavour, hStream, reinterpret_cast<uint64_t>(callback), userData, Kind::kStreamCallback);
}

}  // namespace millpond::client::api
