// SPDX-License-Identifier: Apache-2.0
// The calling thread's stack of contexts; its top is the current context.
#pragma once

#include "softgpu/driver/model/context.h"

namespace millpond::softgpu {

/// A context by the handle with which a program made it current: its own, or that of a green context.
struct Current {
  ContextPtr context;
  CUgreenCtx green = nullptr;

  CUcontext handle() const {
    return green ? reinterpret_cast<CUcontext>(green) : context ? context->handle() : nullptr;
  }
};

/// Empty if the stack is empty.
Current current();
inline ContextPtr currentContext() { return current().context; }
/// Replaces the top; one without a context removes it.
void setCurrent(Current entry);
void pushCurrent(Current entry);
/// Empty if the stack was empty.
Current popCurrent();

}  // namespace millpond::softgpu
