// SPDX-License-Identifier: Apache-2.0
// Checks for errors that the driver returns from the call itself and that the client can detect. An error found only in
// the command stream would be reported too late: the program already considers the call successful.
#pragma once

#include "client/call/call.h"
#include "cuda/gen/cuda_api.h"

namespace millpond::client::precondition {

/// Querying an event is refused while the event is captured, which the driver knows, and when the query could disturb a
/// capture.
CUresult eventAnswer(Call& call, CUevent event);
/// Recording an event that is shared by processes, or waiting for it, completes before the call returns: the process
/// may notify another one next.
void awaitIfShared(Call& call, CUevent event);
/// An event can be recorded only in streams of the context in which it was created.
CUresult ownEvent(Call& call, CUevent event, CUstream stream);
template <class... Rest>
CUresult recordedEvent(Call& call, CUevent event, CUstream stream, Rest...) {
  awaitIfShared(call, event);
  return ownEvent(call, event, stream);
}
inline CUresult awaitedEvent(Call& call, CUstream, CUevent event, unsigned) {
  awaitIfShared(call, event);
  return CUDA_SUCCESS;
}
/// Querying a stream, or waiting for it, is refused if that could disturb a capture.
CUresult streamAnswer(Call& call, CUstream);
/// Refuses work in a stream outside of a capture if it could disturb the capture of another stream.
CUresult uncaptured(Call& call, uint64_t stream);
/// A copy between devices must not exceed memory of this session.
CUresult copy(Call& call, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream = nullptr);
void wordAt(Call& call, CUdeviceptr at, size_t bytes);
/// A fill without a stream is complete when the call returns, if the program can read the memory directly.
void awaitIfSeen(Call& call, CUdeviceptr to);
CUresult memsetRange(Call& call, CUdeviceptr to, size_t bytes, size_t unit);
CUresult memsetRows(Call& call, CUdeviceptr to, size_t pitch, size_t width, size_t height, size_t unit);
/// Accepts only a reference created by the program: those of modules end with their modules.
CUresult isNotOfModule(Call& call, CUtexref reference);

/// A stream writes a word or waits for one. If the driver may refuse it, the driver is queried before the call returns.
template <class T>
CUresult word(Call& call, CUstream, CUdeviceptr at, T, unsigned) {
  wordAt(call, at, sizeof(T));
  return CUDA_SUCCESS;
}

/// The word must be aligned to the width of the value, and within memory of this session.
template <class T, class... Stream>
CUresult memset(Call& call, CUdeviceptr to, T, size_t count, Stream...) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, sizeof(T), &bytes)) return CUDA_ERROR_INVALID_VALUE;
  if constexpr (sizeof...(Stream) == 0) awaitIfSeen(call, to);
  return memsetRange(call, to, bytes, sizeof(T));
}

template <class T, class... Stream>
CUresult memset2D(Call& call, CUdeviceptr to, size_t pitch, T, size_t width, size_t height, Stream...) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(width, sizeof(T), &bytes)) return CUDA_ERROR_INVALID_VALUE;
  if constexpr (sizeof...(Stream) == 0) awaitIfSeen(call, to);
  return memsetRows(call, to, pitch, bytes, height, sizeof(T));
}

}  // namespace millpond::client::precondition
