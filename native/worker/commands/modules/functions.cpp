// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/modules/functions.h"

#include <algorithm>
#include <utility>

namespace millpond::worker {

bool Functions::functionOrKernel(uint64_t wire, CUfunction& out) {
  const HandleKind kind = handle::kind(wire) == HandleKind::kKernel ? HandleKind::kKernel : HandleKind::kFunction;
  const HandleMap::Entry* entry = handles_.find(kind, wire);
  if (!entry) return session_.missing(wire);
  out = static_cast<CUfunction>(entry->object);
  if (kind == HandleKind::kFunction || !out) return true;
  // Launches accept a kernel in place of a function, but the driver's queries about functions do not.
  auto& inContext = all_[wire].inContext;
  const uint16_t bound = contexts_.bound();
  if (inContext.size() <= bound) inContext.resize(bound + size_t{1});
  CUfunction& function = inContext[bound];
  if (!function) {
    CUfunction found = nullptr;
    if (driver_.cuKernelGetFunction(&found, static_cast<CUkernel>(entry->object)) != CUDA_SUCCESS)
      return true;  // the call with the kernel reports the error
    if (charges_.localMemory(HandleKind::kFunction, found) != CUDA_SUCCESS) {
      out = nullptr;
      return true;
    }
    function = found;
  }
  out = function;
  return true;
}

void Functions::add(uint64_t wire, FunctionInfo info) {
  all_[wire] = std::move(info);
  if (loadsAll_) loadKernel(wire);
}

uint64_t Functions::wireOf(CUfunction function, CUkernel kernel) {
  uint64_t found = 0;
  for (const auto& [wire, info] : all_) {
    const HandleMap::Entry* entry = handles_.find(handle::kind(wire), wire);
    if (!entry) continue;
    const bool isIt =
        entry->object == function || (kernel && entry->object == kernel) ||
        (function && std::find(info.inContext.begin(), info.inContext.end(), function) != info.inContext.end());
    if (isIt) found = wire;
  }
  return found;
}

void Functions::load() {
  if (loadsAll_) return;
  loadsAll_ = true;
  for (const auto& entry : all_) loadKernel(entry.first);
}

void Functions::loadKernel(uint64_t wire) {
  CUfunction loaded = nullptr;
  // A kernel that cannot be loaded fails its launch, with the reason.
  if (handle::kind(wire) == HandleKind::kKernel && contexts_.bound()) (void)functionOrKernel(wire, loaded);
}

void Functions::forgetContext(uint16_t number) {
  for (auto& [wire, function] : all_)
    if (function.inContext.size() > number) function.inContext[number] = nullptr;
}

}  // namespace millpond::worker
