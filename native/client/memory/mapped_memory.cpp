// SPDX-License-Identifier: Apache-2.0
#include "client/memory/mapped_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/address_places.h"
#include "base/log.h"
#include "client/memory/command_sink.h"
#include "client/memory/landings.h"
#include "client/memory/named_places.h"
#include "client/state/graph_store.h"
#include "protocol/futex.h"

namespace millpond::client {
namespace {

/// Pinned memory up to this size is compared, so that system calls can access it at any time; larger memory is traced.
constexpr size_t kLargestComparedPinned = size_t{64} << 10;
constexpr uint64_t kPlaces = 256;
constexpr int kPlaceAttempts = 8;
/// How long a command waits for held copies into memory to which it gives the worker access.
constexpr int64_t kTransitPatienceNs = 50'000'000;
constexpr int64_t kShortestTransitNapNs = 20'000;
constexpr int64_t kLongestTransitNapNs = 500'000;

/// Whether the program may read all of it, and unless `isReadOnly` also write it.
bool isUsable(uint64_t address, uint64_t bytes, bool isReadOnly) {
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (!maps) return false;
  char line[512];
  uint64_t at = address;
  while (at < address + bytes && std::fgets(line, sizeof(line), maps)) {
    unsigned long long first = 0, behind = 0;
    char rights[5] = "";
    if (std::sscanf(line, "%llx-%llx %4s", &first, &behind, rights) != 3 || behind <= at) continue;
    if (first > at || rights[0] != 'r' || (!isReadOnly && rights[1] != 'w')) break;
    at = behind;
  }
  std::fclose(maps);
  return at >= address + bytes;
}

/// The memory to which addresses stored in a run may refer.
std::vector<uint64_t> placesIn(const MemoryMap& memory, const MemoryRun& run) {
  std::vector<uint64_t> places;
  memory.eachLocalAddress(run.address, {reinterpret_cast<const std::byte*>(run.address), run.bytes},
                          [&](uint64_t each) { addPlaces(places, each); });
  return places;
}

/// Gives copies into the run that wait for the program a moment to end: after them its pages can be traced.
void awaitHeld(const Landings& landings, const MemoryRun& run) {
  const int64_t end = monotonicNs() + kTransitPatienceNs;
  for (int64_t nap = kShortestTransitNapNs;
       landings.firstCopyTo(run.address, run.bytes, true) != 0 && monotonicNs() < end;
       nap = std::min(2 * nap, kLongestTransitNapNs)) {
    const timespec pause{0, nap};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace

void* MappedMemory::allocate(size_t bytes) {
  if (bytes <= kLargestComparedPinned) {
    void* place = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return place == MAP_FAILED ? nullptr : place;
  }
  const std::lock_guard lock(mutex_);
  beginPlaces();
  std::unique_ptr<TracedPages> pages;
  for (int i = 0; i < kPlaceAttempts && !pages; ++i) {
    pages = TracedPages::map(nextPlace_, bytes, TracedPages::Content::kProgram);
    nextPlace_ += pages ? (bytes + TracedPages::kPage) : kPinnedPlaces.step;
  }
  if (!pages) pages = TracedPages::map(0, bytes, TracedPages::Content::kProgram);
  if (!pages) return nullptr;
  const uint64_t address = pages->address();
  traceable_.emplace(address, std::move(pages));
  return reinterpret_cast<void*>(address);
}

void MappedMemory::beginPlaces() {
  if (nextPlace_ == 0)
    nextPlace_ = kPinnedPlaces.first + static_cast<uint64_t>(::getpid()) % kPlaces * kPinnedPlaces.step;
}

void* MappedMemory::nextPlace(size_t bytes) {
  const std::lock_guard lock(mutex_);
  beginPlaces();
  return reinterpret_cast<void*>(std::exchange(nextPlace_, nextPlace_ + bytes + TracedPages::kPage));
}

void MappedMemory::free(uint64_t address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (traceable_.erase(address) == 0) ::munmap(reinterpret_cast<void*>(address), bytes);
}

std::map<uint64_t, MappedMemory::Part>::iterator MappedMemory::partAt(uint64_t address) {
  const auto next = parts_.upper_bound(address);
  if (next == parts_.begin()) return parts_.end();
  const auto part = std::prev(next);
  return address - part->first < part->second.bytes ? part : parts_.end();
}

uint64_t MappedMemory::inOne(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto part = partAt(address);
  return part == parts_.end() ? bytes : std::min(bytes, part->first + part->second.bytes - address);
}

CUresult MappedMemory::hold(const CommandSink& call, const MemoryRun& run, std::vector<uint64_t>& shares) {
  constexpr uint64_t kPage = TracedPages::kPage;
  const uint64_t end = (run.address + run.bytes + kPage - 1) / kPage * kPage;
  for (uint64_t at = run.address / kPage * kPage; at < end;) {
    auto part = partAt(at);
    if (part == parts_.end()) {
      const auto next = parts_.lower_bound(at);
      cmd::HostAlloc wire{};
      wire.bytes = (next == parts_.end() ? end : std::min(end, next->first)) - at;
      wire.address = at;
      wire.isPrivate = 1;
      cmd::HostAllocReply reply{};
      if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
      part = parts_.emplace(at, Part{wire.bytes, 0}).first;
    }
    ++part->second.runs;
    shares.push_back(part->first);
    at = part->first + part->second.bytes;
  }
  return CUDA_SUCCESS;
}

CUresult MappedMemory::release(const CommandSink& call, const std::vector<uint64_t>& shares) {
  CUresult result = CUDA_SUCCESS;
  for (const uint64_t share : shares) {
    const auto part = parts_.find(share);
    if (part == parts_.end() || --part->second.runs != 0) continue;
    parts_.erase(part);
    cmd::HostFree wire{};
    wire.address = share;
    cmd::HostFreeReply reply{};
    if (const CUresult r = call.wait(wire, reply); result == CUDA_SUCCESS) result = r;
  }
  return result;
}

std::optional<CUresult> MappedMemory::mirror(const CommandSink& call, const MemoryRun& run) {
  const std::lock_guard lock(mutex_);
  // Another thread may have been faster.
  const auto now = memory_.find(run.address);
  if (!now || now->kind != MemoryKind::kPinnedLocal) return now ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  const bool isReadOnly = (run.flags & MemoryRun::kRegistered) && (run.flags & CU_MEMHOSTREGISTER_READ_ONLY);
  if (!isUsable(run.address, run.bytes, isReadOnly)) {
    log(LogLevel::Error, "kernels cannot reach registered memory at 0x%llx: this process cannot write all of it",
        static_cast<unsigned long long>(run.address));
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const Handover::Turn turn(handover_, run, [&] { return landings_.firstCopyTo(run.address, run.bytes, false) == 0; });
  if (!turn.hasBegun()) return std::nullopt;
  // Memory that calls and graphs may still write must stay accessible. Bytes of held copies go only to the worker's
  // pages, which must not be replaced by the program's whole pages later.
  const bool mayLand = graphs_.mayLandIn(run.address, run.bytes);
  const bool isStill = turn.awaitUses() && !mayLand && landings_.firstCopyTo(run.address, run.bytes, true) == 0;
  std::vector<uint64_t> shares;
  if (const CUresult r = hold(call, run, shares); r != CUDA_SUCCESS) {
    release(call, shares);
    if (r != CUDA_ERROR_ALREADY_MAPPED) return r;
    log(LogLevel::Error, "kernels cannot reach memory at 0x%llx: the worker uses these addresses for other memory",
        static_cast<unsigned long long>(run.address));
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  std::vector<Piece> pieces;
  for (const uint64_t share : shares) {
    const uint64_t first = std::max(share, run.address);
    pieces.push_back({first, std::min(share + parts_[share].bytes, run.address + run.bytes) - first});
  }
  // Until its contents are complete at the worker, other threads may launch graphs that read and write it.
  if (const CUresult r = tellState(call, pieces, State::kFilling); r != CUDA_SUCCESS) {
    release(call, shares);
    return r;
  }
  if (const auto pages = traceable_.find(run.address); pages != traceable_.end() && isStill) {
    if (!mirror_.addPages(std::move(pages->second), run.context, TracedPages::Content::kProgram))
      return CUDA_ERROR_OUT_OF_MEMORY;
    traceable_.erase(pages);
  } else {
    for (const Piece& piece : pieces)
      mirror_.addProgramBytes(piece.address, piece.bytes, run.context,
                              isReadOnly ? Mirror::Writes::kNever : Mirror::Writes::kMerged,
                              mayLand ? Mirror::Landed::kYes : Mirror::Landed::kNo);
  }
  shares_[run.address] = std::move(shares);
  memory_.setMirrored(run.address);
  return tellState(call, pieces, State::kMirrored);
}

CUresult MappedMemory::tellState(const CommandSink& call, std::span<const Piece> pieces, State state) {
  for (const Piece& piece : pieces) {
    cmd::HostMirror wire{};
    wire.address = piece.address;
    wire.bytes = piece.bytes;
    wire.state = static_cast<uint32_t>(state);
    cmd::HostMirrorReply reply{};
    if (const CUresult r = call.wait(wire, reply); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult MappedMemory::reach(const CommandSink& call, const MemoryRun& run) { return reachEach(call, {run.address}); }

CUresult MappedMemory::reachCommand(const CommandSink& call, const cmd::CommandLayout& layout,
                                    std::span<const std::byte> fixed,
                                    std::span<const std::span<const std::byte>> tails) {
  std::vector<uint64_t> places = namedPlaces(memory_, layout, fixed, tails);
  return places.empty() ? CUDA_SUCCESS : reachEach(call, std::move(places));
}

CUresult MappedMemory::reachEach(const CommandSink& call, std::vector<uint64_t> places) {
  while (!places.empty() && memory_.hasLocal()) {
    const auto run = memory_.find(places.back());
    places.pop_back();
    if (!run || run->kind != MemoryKind::kPinnedLocal) continue;
    awaitHeld(landings_, *run);
    std::optional<CUresult> result;
    while (!result) {
      if (const CUresult r = landings_.awaitCopies(call, run->address, run->bytes); r != CUDA_SUCCESS) return r;
      result = mirror(call, *run);
    }
    if (*result != CUDA_SUCCESS) return *result;
    // Addresses stored there refer to further memory.
    const std::vector<uint64_t> inside = placesIn(memory_, *run);
    places.insert(places.end(), inside.begin(), inside.end());
  }
  return CUDA_SUCCESS;
}

CUresult MappedMemory::reachNamed(const CommandSink& call, uint64_t address, std::span<const std::byte> bytes) {
  if (!memory_.hasLocal()) [[likely]]
    return CUDA_SUCCESS;
  std::vector<uint64_t> found;
  memory_.eachLocalAddress(address, bytes, [&](uint64_t each) { addPlaces(found, each); });
  return found.empty() ? CUDA_SUCCESS : reachEach(call, std::move(found));
}

CUresult MappedMemory::reachNoted(const CommandSink& call, uint64_t stream) {
  // A recorded kernel runs with the launches of its graph, which do this check themselves.
  if (!call.isDoneNow(stream)) return CUDA_SUCCESS;
  for (;;) {
    { const MirrorTurn turn(mirror_, call.context(), stream); }
    std::vector<uint64_t> found;
    for (const uint64_t each : mirror_.takeNamed()) addPlaces(found, each);
    if (found.empty()) return CUDA_SUCCESS;
    if (const CUresult r = reachEach(call, std::move(found)); r != CUDA_SUCCESS) return r;
  }
}

CUresult MappedMemory::leave(const CommandSink& call, const MemoryRun& run) {
  mirror_.settle();
  const std::lock_guard lock(mutex_);
  const auto known = shares_.extract(run.address);
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  bool werePages = false;
  std::vector<Piece> pieces;
  for (const uint64_t share : known.mapped()) {
    const uint64_t first = std::max(share, run.address);
    werePages = mirror_.remove(first) == Mirror::Removed::kPages || werePages;
    pieces.push_back({first, std::min(share + parts_[share].bytes, run.address + run.bytes) - first});
  }
  const CUresult told = tellState(call, pieces, State::kOwn);
  if (!werePages && !(run.flags & MemoryRun::kRegistered) && traceable_.erase(run.address) == 0)
    ::munmap(reinterpret_cast<void*>(run.address), run.bytes);
  const CUresult released = release(call, known.mapped());
  return told == CUDA_SUCCESS ? released : told;
}

}  // namespace millpond::client
