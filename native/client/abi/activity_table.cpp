// SPDX-License-Identifier: Apache-2.0
#include "client/abi/activity_table.h"

#include "client/abi/runtime_hooks.h"
#include "client/process/client.h"
#include "client/profile/activity_feed.h"
#include "client/trace/trace.h"

namespace millpond::client {
namespace {

void observe(void (*called)(const ObservedCall*)) { trace::observe(called); }

int32_t begin() { return ActivityFeed::instance().begin(); }

void end() { ActivityFeed::instance().end(); }

int32_t read(void (*each)(void* to, const char* lines, size_t bytes), void* to, int64_t* lead, uint64_t* lost) {
  return ActivityFeed::instance().read(each, to, *lead, *lost);
}

int32_t placeOf(uint32_t device) {
  if (Client::check() != CUDA_SUCCESS) return -1;
  const Client& client = Client::instance();
  for (CUdevice i = 0; i < client.deviceCount(); ++i)
    if (client.device(i) == client.snapshot().devices.data() + device) return i;
  return -1;
}

constexpr ActivityTable kTable{.observe = &observe,
                               .observeRuntime = &runtime_hooks::observe,
                               .setRuntimeSwitch = &runtime_hooks::setSwitch,
                               .begin = &begin,
                               .end = &end,
                               .read = &read,
                               .placeOf = &placeOf};

}  // namespace

const ActivityTable& activityTable() { return kTable; }

}  // namespace millpond::client
