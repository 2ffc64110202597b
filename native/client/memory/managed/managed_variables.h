// SPDX-License-Identifier: Apache-2.0
// `__managed__` variables: the worker's driver has put them somewhere, and this process mirrors them at the same
// addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

#include "cuda/gen/cuda_api.h"

namespace millpond::client {

class CommandSink;
class ManagedMemory;
class MemoryMap;
class Mirror;

class ManagedVariables {
 public:
  ManagedVariables(Mirror& mirror, MemoryMap& memory, ManagedMemory& managed)
      : mirror_(mirror), memory_(memory), managed_(managed) {}
  struct Variable {
    uint64_t library;
    uint64_t address;
    size_t bytes;
  };
  /// Lets the program use the variable at the worker's address. Succeeds if it is already known.
  CUresult add(const CommandSink& call, const Variable& variable, const char* name);
  /// The library is about to end.
  void removeOf(uint64_t library);
  /// The context is about to end, in which variables get their initial values again.
  void forget(uint16_t context);

 private:
  struct Known {
    Variable variable;
    uint16_t context;
  };
  bool mapPages(uint64_t first, uint64_t end);

  Mirror& mirror_;
  MemoryMap& memory_;
  ManagedMemory& managed_;
  std::mutex mutex_;
  std::vector<Known> known_;
  std::set<uint64_t> pages_;  ///< mapped for variables: the mappings stay, and later variables may use them
};

}  // namespace millpond::client
