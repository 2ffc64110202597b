// SPDX-License-Identifier: Apache-2.0
// This process's knowledge of the worker's side: handles, addresses, results.
#pragma once

#include <atomic>
#include <mutex>

#include "client/addresses/memory_map.h"
#include "client/addresses/memory_pools.h"
#include "client/addresses/opened_memory.h"
#include "client/addresses/retained_files.h"
#include "client/addresses/virtual_memory.h"
#include "client/images/retained_images.h"
#include "client/memory/data_scans.h"
#include "client/memory/landings.h"
#include "client/memory/managed/managed_heap.h"
#include "client/memory/managed/managed_memory.h"
#include "client/memory/managed/managed_variables.h"
#include "client/memory/mapped_memory.h"
#include "client/memory/mirror/mirror.h"
#include "client/session/queue_bound.h"
#include "client/state/answer_cache.h"
#include "client/state/arrays.h"
#include "client/state/given_functions.h"
#include "client/state/graph_store.h"
#include "client/state/handle_table.h"
#include "client/state/stream_work.h"

namespace millpond::client {

struct Remote {
  /// One for the process, created at its first use and never destroyed.
  static Remote& instance() noexcept {
    // Read by every call.
    if (Remote* known = current.load(std::memory_order_acquire)) [[likely]]
      return *known;
    return first();
  }

  HandleTable handles;
  RetainedImages images;
  RetainedFiles files;
  MemoryMap memory;
  VirtualMemory virtualMemory;
  MemoryPools pools;
  OpenedMemory opened;
  Arrays arrays;
  AnswerCache answers;
  GraphStore graphs;
  GivenFunctions functions;
  Landings landings;
  Mirror mirror{handles, memory};
  ManagedMemory managed;
  ManagedHeap managedHeap{mirror};
  ManagedVariables managedVariables{mirror, memory, managed};
  MappedMemory mapped{mirror, memory, landings, graphs};
  DataScans scans{memory};
  QueueBound queues{handles};
  StreamWork work;
  std::mutex hostAllocation;
  bool synchronous = false;  ///< MILLPOND_SYNC=1: every call waits for its result
  /// CUDA_LAUNCH_BLOCKING=1, or the above: calls that submit device work wait until it is done.
  bool blocking = false;

 private:
  static Remote& first() noexcept;
  static inline std::atomic<Remote*> current{nullptr};
};

}  // namespace millpond::client
