// SPDX-License-Identifier: Apache-2.0
// This process's knowledge of the worker's side: handles, addresses, results.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "client/addresses/kept_files.h"
#include "client/addresses/memory_map.h"
#include "client/addresses/memory_pools.h"
#include "client/addresses/opened_memory.h"
#include "client/addresses/virtual_memory.h"
#include "client/images/kept_images.h"
#include "client/memory/landings.h"
#include "client/memory/managed/managed_heap.h"
#include "client/memory/managed/managed_memory.h"
#include "client/memory/managed/managed_variables.h"
#include "client/memory/mapped_memory.h"
#include "client/state/answer_cache.h"
#include "client/state/arrays.h"
#include "client/state/given_functions.h"
#include "client/state/graph_store.h"
#include "client/state/handle_table.h"
#include "client/state/stream_work.h"

namespace millpond::client {

struct Remote {
  /// One for the process, made at its first use and never taken down.
  static Remote& instance() noexcept;

  HandleTable handles;
  KeptImages images;
  KeptFiles files;
  MemoryMap memory;
  VirtualMemory virtualMemory;
  MemoryPools pools;
  ManagedMemory managed;
  ManagedHeap managedHeap;
  ManagedVariables managedVariables;
  MappedMemory mapped;
  OpenedMemory opened;
  Arrays arrays;
  AnswerCache answers;
  GraphStore graphs;
  GivenFunctions functions;
  Landings landings;
  StreamWork work;
  std::mutex hostAllocation;
  bool synchronous = false;  ///< MILLPOND_SYNC=1: every call waits for its result
  /// CUDA_LAUNCH_BLOCKING=1, or the above: calls that give the device work wait until it is done.
  bool blocking = false;
};

class Context;

/// The context that a frame's number means, nullptr for 0 and for one that has ended.
Context* contextOf(uint16_t wireContext) noexcept;

/// Small number of the calling thread, from 1.
uint32_t threadNumber() noexcept;

/// The calling thread's own default streams, one for each context in which it asked for one. They end with the thread.
class ThreadStreams {
 public:
  /// Number of the stream in that context, 0 while there is none.
  static uint64_t get(uint16_t context) noexcept;
  static void set(uint16_t context, uint64_t wire) noexcept;
  /// Forgets those of every thread: their context has ended.
  static void forget(uint16_t context) noexcept;
};

}  // namespace millpond::client
