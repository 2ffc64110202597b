// SPDX-License-Identifier: Apache-2.0
// Managed memory where client and worker map nothing together: device memory of the worker's, mirrored here. Small pieces
// are cut from larger ones, so that a program may have very many of them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

class CommandSink;
class Mirror;

class ManagedHeap {
 public:
  explicit ManagedHeap(Mirror& mirror) : mirror_(mirror) {}
  /// `bytes` of managed memory in the call's context.
  CUresult allocate(const CommandSink& call, size_t bytes, CUdeviceptr& address);
  /// Frees memory that was allocated in that context. The caller has removed it from the memory map.
  CUresult free(const CommandSink& call, CUdeviceptr address, uint16_t context);
  /// The context is about to end, with all allocations in it. Returns their addresses at the worker, which the caller
  /// sends.
  std::vector<CUdeviceptr> removeOf(uint16_t context);

 private:
  /// Addresses from which pieces are carved.
  struct Slab {
    uint64_t address;
    uint64_t bytes;
    uint16_t context;
    uint64_t compared;                  ///< bytes at its beginning that are compared; the others are traced
    uint64_t mirrored;                  ///< how many of those are mirrored so far: more as they come into use
    std::map<uint64_t, uint64_t> free;  ///< start → bytes
  };

  /// Returns the context's slabs if nothing is carved from them, but not too often. Their memory would keep a session
  /// from being parked, and other sessions of the claim from using it.
  CUresult trim(const CommandSink& call, uint16_t context);
  bool mayTrim();
  /// Stops mirroring a slab.
  void endMirrored(const Slab& slab);
  /// Maps the worker's memory here: some of its bytes compared, the others traced.
  bool mirror(uint64_t address, uint64_t bytes, uint64_t compared, uint16_t context);
  CUresult map(const CommandSink& call, size_t bytes, uint64_t compared, CUdeviceptr& address);
  CUresult addSlab(const CommandSink& call);
  bool cut(uint16_t context, size_t bytes, CUdeviceptr& address);
  static void giveBack(Slab& slab, uint64_t address, uint64_t bytes);

  Mirror& mirror_;
  std::mutex mutex_;
  std::map<uint64_t, Slab> slabs_;       ///< by address
  std::map<uint64_t, uint64_t> pieces_;  ///< pieces of slabs: address → bytes
  std::map<uint64_t, uint16_t> whole_;   ///< other allocations: address → context
  uint64_t nextSlab_ = 0;
  int64_t trimsFrom_ = 0;  ///< of a token bucket: when it was empty, in monotonic nanoseconds
};

}  // namespace millpond::client
