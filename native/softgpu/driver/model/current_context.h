// SPDX-License-Identifier: Apache-2.0
// The calling thread's stack of contexts; its top is the current context.
#pragma once

#include "softgpu/driver/model/context.h"

namespace millpond::softgpu {

/// A context by the handle under which a program made it current: its own, or that of a green one.
struct Current {
  ContextPtr context;
  CUgreenCtx green = nullptr;

  CUcontext handle() const {
    return green ? reinterpret_cast<CUcontext>(green) : context ? context->handle() : nullptr;
  }
};

/// Nothing in it when the stack is empty.
Current current();
inline ContextPtr currentContext() { return current().context; }
/// Replaces the top; one without a context takes it away.
void setCurrent(Current entry);
void pushCurrent(Current entry);
/// Nothing in it when the stack is empty.
Current popCurrent();

}  // namespace millpond::softgpu
