// SPDX-License-Identifier: Apache-2.0
// Memory of this process alone that kernels can access: pinned or registered memory serves only copies until a kernel
// uses it. From then on the worker has memory at the same address, too, and the two are mirrored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "client/addresses/memory_map.h"
#include "client/addresses/pages/traced_pages.h"
#include "client/memory/handover.h"
#include "client/memory/mirror/mirror.h"
#include "cuda/gen/cuda_api.h"
#include "protocol/gen/command_layouts.h"

namespace millpond::client {

class CommandSink;
class GraphStore;
class Landings;

class MappedMemory {
 public:
  MappedMemory(Mirror& mirror, MemoryMap& memory, Landings& landings, GraphStore& graphs)
      : mirror_(mirror), memory_(memory), landings_(landings), graphs_(graphs) {}

  /// Whole pages of zeros at an address that is likely to be free at the worker; null if there is no memory.
  void* allocate(size_t bytes);
  /// Addresses at which workers are likely to have room for that much. Nothing is mapped yet, and they may be in use
  /// here.
  void* nextPlace(size_t bytes);
  /// Frees memory that no kernel accesses any more.
  void free(uint64_t address, size_t bytes);

  /// Lets kernels access the run, and all memory whose address is stored in it. Waits for bytes in transit to it,
  /// unless these may wait for later calls of the program: then the worker puts them there, in stream order.
  CUresult reach(const CommandSink& call, const MemoryRun& run);
  /// The same for all memory to which a command that is about to be sent refers, directly or indirectly, for the worker
  /// or a kernel.
  CUresult reachCommand(const CommandSink& call, const cmd::CommandLayout& layout, std::span<const std::byte> fixed,
                        std::span<const std::span<const std::byte>> tails);
  /// The same for memory whose address is among bytes for a device, to be stored at `address`: kernels may find it
  /// there.
  CUresult reachNamed(const CommandSink& call, uint64_t address, std::span<const std::byte> bytes);
  /// Lets kernels access the memory of the places, and all memory that its contents refer to.
  CUresult reachEach(const CommandSink& call, std::vector<uint64_t> places);
  /// The same for memory whose address the program has written to mirrored memory, before a kernel that may find it there.
  CUresult reachWritten(const CommandSink& call, uint64_t stream) {
    // Called by every launch.
    if (!Mirror::exists() || !memory_.hasLocal()) [[likely]]
      return CUDA_SUCCESS;
    return reachNoted(call, stream);
  }
  /// Ends the mapping of a run that kernels can access when the device is done with it; for pinned memory also the
  /// memory itself. The program's own memory then has the bytes that the device wrote.
  CUresult leave(const CommandSink& call, const MemoryRun& run);

  /// Prevents memory that a call treats as this process's own from becoming mirrored in the meantime.
  Handover& handover() { return handover_; }

  /// How many of the bytes from there on are one mapping at the worker. Its driver accepts no copy beyond that.
  uint64_t inOne(uint64_t address, uint64_t bytes);

 private:
  /// Whole pages that the worker has for runs.
  struct Part {
    uint64_t bytes;
    unsigned runs;  ///< that share them: pages at the border of a run may be shared with others
  };

  struct Piece {
    uint64_t address;
    uint64_t bytes;
  };
  /// Where the contents of memory are, as reported to HostMirror.
  enum class State : uint32_t {
    kOwn = 0,       ///< only this process has it
    kFilling = 1,   ///< both have it, but the worker lacks contents
    kMirrored = 2,  ///< both have it
  };
  static CUresult tellState(const CommandSink& call, std::span<const Piece> pieces, State state);

  /// The memory whose addresses the mirror has recorded.
  CUresult reachNoted(const CommandSink& call, uint64_t stream);
  /// From now on the worker has the run, too. None: a copy to it has begun in the meantime, which must be awaited
  /// first.
  std::optional<CUresult> mirror(const CommandSink& call, const MemoryRun& run);
  void beginPlaces();
  /// Gives the worker all pages of a run; returns the first addresses of the parts that it shares.
  CUresult hold(const CommandSink& call, const MemoryRun& run, std::vector<uint64_t>& shares);
  CUresult release(const CommandSink& call, const std::vector<uint64_t>& shares);
  std::map<uint64_t, Part>::iterator partAt(uint64_t address);

  Mirror& mirror_;
  MemoryMap& memory_;
  Landings& landings_;
  GraphStore& graphs_;
  Handover handover_;
  std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<TracedPages>> traceable_;  ///< pinned memory whose pages are not traced yet
  std::map<uint64_t, Part> parts_;                              ///< by address
  std::map<uint64_t, std::vector<uint64_t>> shares_;            ///< by address of the run: its parts
  uint64_t nextPlace_ = 0;
};

}  // namespace millpond::client
