// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/model/current_context.h"

#include <vector>

#include "base/thread_owned.h"

namespace millpond::softgpu {
namespace {

std::vector<Current>& stack() { return threadOwned<std::vector<Current>>(); }

}  // namespace

Current current() { return stack().empty() ? Current{} : stack().back(); }

void setCurrent(Current entry) {
  if (!stack().empty()) stack().pop_back();
  if (entry.context) stack().push_back(std::move(entry));
}

void pushCurrent(Current entry) { stack().push_back(std::move(entry)); }

Current popCurrent() {
  if (stack().empty()) return {};
  Current top = std::move(stack().back());
  stack().pop_back();
  return top;
}

}  // namespace millpond::softgpu
