// SPDX-License-Identifier: Apache-2.0
// The pools of this process, and which one each device's allocations come from. Callers hold `mutex`.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

class MemoryPools {
 public:
  struct Pool {
    CUdevice device = 0;
    uint64_t threshold = 0;
    /// CU_MEMPOOL_ATTR_REUSE_*, by attribute. Stored so that the program can read them back: the worker always reuses
    /// memory whenever it is safe.
    int reuse[3] = {1, 1, 1};
    bool isDefault = false;
    unsigned opens = 0;  ///< how often it was opened, if it belongs to another process: nothing is allocated from it
    bool isOpened() const { return opens > 0; }
    CUmemAllocationHandleType handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  };

  std::mutex mutex;
  std::map<CUmemoryPool, Pool> pools;
  std::map<CUdevice, CUmemoryPool> defaults;
  std::map<CUdevice, CUmemoryPool> current;  ///< if it is not the default

  Pool* find(CUmemoryPool pool) {
    const auto found = pools.find(pool);
    return found == pools.end() ? nullptr : &found->second;
  }
};

}  // namespace millpond::client
