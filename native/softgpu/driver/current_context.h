// SPDX-License-Identifier: Apache-2.0
// The calling thread's stack of contexts; its top is the current context.
#pragma once

#include "softgpu/driver/context.h"

namespace millpond::softgpu {

/// Null when the stack is empty.
ContextPtr currentContext();
/// Replaces the top; null takes it away.
void setCurrentContext(ContextPtr context);
void pushContext(ContextPtr context);
/// Null when the stack is empty.
ContextPtr popContext();

}  // namespace millpond::softgpu
