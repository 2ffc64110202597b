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

  /// Whole pages of zeros at an address that the worker can be expected to have free; null when there is no memory.
  void* allocate(size_t bytes);
  /// Where workers can be expected to have room for that much. Nothing is there yet, and may not be free here.
  void* nextPlace(size_t bytes);
  /// The end of one that no kernel reaches any more.
  void free(uint64_t address, size_t bytes);

  /// Lets kernels access the run, and all memory whose address is stored in it. Waits for bytes in transit to it, unless they
  /// may not arrive before later calls of the program: then the worker puts them there, in the order of their streams.
  CUresult reach(const CommandSink& call, const MemoryRun& run);
  /// The same for all memory to which a command that is about to be sent leads the worker or a kernel, by whatever address.
  CUresult reachCommand(const CommandSink& call, const cmd::CommandLayout& layout, std::span<const std::byte> fixed,
                        std::span<const std::span<const std::byte>> tails);
  /// The same for memory whose address is among bytes for a device, to be stored at `address`: kernels may find it
  /// there.
  CUresult reachNamed(const CommandSink& call, uint64_t address, std::span<const std::byte> bytes);
  /// The same for memory whose address the program has written to mirrored memory, before a kernel that may find it there.
  CUresult reachWritten(const CommandSink& call, uint64_t stream) {
    // Every launch asks.
    if (!Mirror::exists() || !memory_.hasLocal()) [[likely]]
      return CUDA_SUCCESS;
    return reachNoted(call, stream);
  }
  /// Ends the mapping of a run that kernels reach, when the device is done with it, and of pinned memory itself. The program's
  /// own memory then has the bytes that the device wrote.
  CUresult leave(const CommandSink& call, const MemoryRun& run);

  /// Excludes that memory which a call treats as this process's own becomes mirrored meanwhile.
  Handover& handover() { return handover_; }

  /// How many of the bytes from there on the worker has as one. Its driver takes no copies that go further.
  uint64_t inOne(uint64_t address, uint64_t bytes);

 private:
  /// Whole pages that the worker has for runs.
  struct Part {
    uint64_t bytes;
    unsigned runs;  ///< that have a share of them: pages at the border of one may be those of others, too
  };

  struct Piece {
    uint64_t address;
    uint64_t bytes;
  };
  /// Where the bytes of memory are, as HostMirror tells the worker.
  enum class State : uint32_t {
    kOwn = 0,       ///< with this process alone
    kFilling = 1,   ///< with both, but the worker lacks contents
    kMirrored = 2,  ///< with both
  };
  static CUresult tellState(const CommandSink& call, std::span<const Piece> pieces, State state);

  /// The memory whose addresses the mirror has noted.
  CUresult reachNoted(const CommandSink& call, uint64_t stream);
  /// Lets kernels access the memory of the places, and all memory that its contents refer to.
  CUresult reachEach(const CommandSink& call, std::vector<uint64_t> places);
  /// The worker has the run from now on, too. None: a copy to it was begun meanwhile, which has to be awaited first.
  std::optional<CUresult> mirror(const CommandSink& call, const MemoryRun& run);
  void beginPlaces();
  /// Lets the worker have all pages of a run; the first addresses of the parts that it shares.
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
  std::map<uint64_t, std::vector<uint64_t>> shares_;            ///< by the run's address: its parts'
  uint64_t nextPlace_ = 0;
};

}  // namespace millpond::client
