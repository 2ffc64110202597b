// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/current_context.h"

#include <vector>

namespace millpond::softgpu {
namespace {

std::vector<ContextPtr>& stack() {
  thread_local std::vector<ContextPtr> contexts;
  return contexts;
}

}  // namespace

ContextPtr currentContext() { return stack().empty() ? nullptr : stack().back(); }

void setCurrentContext(ContextPtr context) {
  if (!stack().empty()) stack().pop_back();
  if (context) stack().push_back(std::move(context));
}

void pushContext(ContextPtr context) { stack().push_back(std::move(context)); }

ContextPtr popContext() {
  if (stack().empty()) return nullptr;
  ContextPtr top = std::move(stack().back());
  stack().pop_back();
  return top;
}

}  // namespace millpond::softgpu
