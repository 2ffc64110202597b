// SPDX-License-Identifier: Apache-2.0
#include "client/memory/managed/managed_variables.h"

#include <algorithm>

#include "base/log.h"
#include "client/addresses/map_flags.h"
#include "client/addresses/memory_map.h"
#include "client/addresses/pages/traced_pages.h"
#include "client/memory/command_sink.h"
#include "client/memory/managed/managed_memory.h"
#include "client/memory/mirror/mirror.h"
#include "client/process/client.h"
#include "client/state/context.h"

namespace millpond::client {
bool ManagedVariables::mapPages(uint64_t first, uint64_t end) {
  constexpr uint64_t kPage = TracedPages::kPage;
  for (uint64_t page = first; page < end; page += kPage) {
    if (pages_.contains(page)) continue;
    void* wanted = reinterpret_cast<void*>(page);
    void* got = ::mmap(wanted, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != wanted) {
      if (got != MAP_FAILED) ::munmap(got, kPage);
      return false;
    }
    pages_.insert(page);
  }
  return true;
}

CUresult ManagedVariables::add(const CommandSink& call, const Variable& variable, const char* name) {
  constexpr uint64_t kPage = TracedPages::kPage;
  const std::lock_guard lock(mutex_);
  const bool isKnown = std::any_of(known_.begin(), known_.end(), [&](const Known& each) {
    return each.variable.library == variable.library && each.variable.address == variable.address;
  });
  if (isKnown) return CUDA_SUCCESS;
  if (variable.bytes == 0 || variable.bytes > UINT64_MAX - kPage - variable.address) return CUDA_ERROR_UNKNOWN;
  const uint64_t first = variable.address / kPage * kPage;
  const uint64_t end = (variable.address + variable.bytes + kPage - 1) / kPage * kPage;
  if (!mapPages(first, end)) {
    log(LogLevel::Error, "the variable %s is __managed__ and is at 0x%llx, which this process uses for other memory",
        name, static_cast<unsigned long long>(variable.address));
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const Context* primary = Client::instance().contexts().primary(0);
  const uint16_t context = call.context() != 0 || !primary ? call.context() : primary->wireContext();
  const int32_t result = mirror_.adoptBytes(variable.address, variable.bytes, context);
  if (result != 0) return static_cast<CUresult>(result);
  known_.push_back({variable, context});
  memory_.add({variable.address, variable.bytes, MemoryKind::kMirrored, context,
               MemoryRun::kManaged | MemoryRun::kBorrowed, 0});
  managed_.add(variable.address, variable.bytes);
  return CUDA_SUCCESS;
}

void ManagedVariables::removeOf(uint64_t library) {
  const std::lock_guard lock(mutex_);
  std::erase_if(known_, [&](const Known& each) {
    if (each.variable.library != library) return false;
    mirror_.remove(each.variable.address);
    memory_.take(each.variable.address);
    managed_.drop(each.variable.address);
    return true;
  });
}

void ManagedVariables::forget(uint16_t context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(known_, [&](const Known& each) { return each.context == context; });
}

}  // namespace millpond::client
