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
  /// The end of one that was allocated in that context. The caller has taken it out of the memory map.
  CUresult free(const CommandSink& call, CUdeviceptr address, uint16_t context);
  /// The context is about to end, with all allocations in it. Returns their addresses at the worker, for the caller to send.
  std::vector<CUdeviceptr> removeOf(uint16_t context);

 private:
  /// Addresses from which pieces are cut.
  struct Slab {
    uint64_t address;
    uint64_t bytes;
    uint16_t context;
    uint64_t compared;                  ///< bytes at its beginning that are compared, the others are traced
    uint64_t mirrored;                  ///< how many of those are mirrored so far: they are as they come to be used
    std::map<uint64_t, uint64_t> free;  ///< start → bytes
  };

  /// Gives the context's slabs back if nothing is cut from them, but not again and again. Their memory would keep a session
  /// from being parked, and others of the claim from having it.
  CUresult trim(const CommandSink& call, uint16_t context);
  bool mayTrim();
  /// Ends what is mirrored of a slab.
  void endMirrored(const Slab& slab);
  /// Maps the worker's memory here: some bytes to be compared, the others traced.
  bool mirror(uint64_t address, uint64_t bytes, uint64_t compared, uint16_t context);
  CUresult map(const CommandSink& call, size_t bytes, uint64_t compared, CUdeviceptr& address);
  CUresult addSlab(const CommandSink& call);
  bool cut(uint16_t context, size_t bytes, CUdeviceptr& address);
  static void giveBack(Slab& slab, uint64_t address, uint64_t bytes);

  Mirror& mirror_;
  std::mutex mutex_;
  std::map<uint64_t, Slab> slabs_;       ///< by address
  std::map<uint64_t, uint64_t> pieces_;  ///< what was cut: address → bytes
  std::map<uint64_t, uint16_t> whole_;   ///< what was not: address → context
  uint64_t nextSlab_ = 0;
  int64_t trimsFrom_ = 0;  ///< of a token bucket: it was empty, monotonic nanoseconds
};

}  // namespace millpond::client
