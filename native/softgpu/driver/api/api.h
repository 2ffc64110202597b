// SPDX-License-Identifier: Apache-2.0
// The common beginning of every entry point of the driver.
#pragma once

#include <exception>
#include <new>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/driver.h"
#include "softgpu/driver/engine/host_function.h"
#include "softgpu/driver/host/log.h"
#include "softgpu/driver/model/current_context.h"
#include "softgpu/driver/streams/resolve.h"

namespace millpond::softgpu::api {

/// Runs a body, letting no exception out to C.
template <typename Body>
CUresult guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    log(LogLevel::error, std::string("a call failed: ") + error.what());
    return CUDA_ERROR_UNKNOWN;
  }
}

/// A call that needs no context: `body(Driver&)`.
template <typename Body>
CUresult withDriver(Body body) noexcept {
  return guarded([&]() -> CUresult {
    Driver& driver = Driver::instance();
    if (CUresult result = driver.ready()) return result;
    if (isInHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
    return body(driver);
  });
}

/// A call about a device: `body(Driver&, Device&)`.
template <typename Body>
CUresult withDevice(CUdevice ordinal, Body body) noexcept {
  return withDriver([&](Driver& driver) -> CUresult {
    Device* device = driver.device(ordinal);
    return device ? body(driver, *device) : CUDA_ERROR_INVALID_DEVICE;
  });
}

inline CUresult checkAlive(const ContextPtr& context) {
  if (!context || context->state() == Context::State::dormant) return CUDA_ERROR_INVALID_CONTEXT;
  return context->state() == Context::State::alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/// A call that works in the current context, and fails with that context's fault: `body(Driver&, const
/// ContextPtr&)`.
template <typename Body>
CUresult withContext(Body body) noexcept {
  return withDriver([&](Driver& driver) -> CUresult {
    const ContextPtr context = currentContext();
    if (CUresult result = checkAlive(context)) return result;
    if (CUresult fault = context->fault()) return fault;
    return body(driver, context);
  });
}

/// A call that queues work on a stream: `body(Driver&, const StreamTarget&)`. Needs a current context, as the
/// real driver does, although the stream may belong to another.
template <typename Body>
CUresult withStream(CUstream handle, Body body) noexcept {
  return withContext([&](Driver& driver, const ContextPtr& context) -> CUresult {
    StreamTarget target;
    if (CUresult result = resolveStream(handle, context, driver.streams(), &target)) return result;
    return body(driver, target);
  });
}

}  // namespace millpond::softgpu::api
