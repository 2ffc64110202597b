// SPDX-License-Identifier: Apache-2.0
#include "cupti/source.h"

#include <dlfcn.h>

#include <atomic>

#include "base/log.h"

namespace millpond::profiler {
namespace {

const ActivityTable* find() {
  void* const client = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (!client) return nullptr;
  // As in native/client/abi/export_tables.cpp. NVIDIA's own library has no such table.
  const auto get = reinterpret_cast<int (*)(const void**, const void*)>(::dlsym(client, "cuGetExportTable"));
  const void* table = nullptr;
  if (!get || get(&table, kActivityTableId) != 0) return nullptr;
  const auto* const found = static_cast<const ActivityTable*>(table);
  return found && found->bytes == sizeof(ActivityTable) ? found : nullptr;
}

}  // namespace

const ActivityTable* activitySource() {
  static std::atomic<const ActivityTable*> known{nullptr};
  static std::atomic<bool> said{false};
  if (const ActivityTable* table = known.load(std::memory_order_acquire)) return table;
  const ActivityTable* const found = find();
  if (found)
    known.store(found, std::memory_order_release);
  else
    logOnce(said, LogLevel::Warn,
            "profilers see no GPU: the libcuda.so.1 of this process is not that of this libcupti.so");
  return found;
}

}  // namespace millpond::profiler
