// SPDX-License-Identifier: Apache-2.0
#include "client/memory/managed/managed_heap.h"

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "client/addresses/map_flags.h"
#include "client/addresses/pages/traced_pages.h"
#include "client/memory/command_sink.h"
#include "client/memory/mirror/mirror.h"
#include "cuda/program_calls_table.h"
#include "protocol/futex.h"

namespace millpond::client {
namespace {

/// The driver's alignment.
constexpr uint64_t kPieceAlignment = 512;
/// From this size on, memory is not carved from a slab.
constexpr uint64_t kLarge = uint64_t{512} << 10;
constexpr uint64_t kFirstSlab = uint64_t{2} << 20;
constexpr uint64_t kLargestSlab = uint64_t{64} << 20;
/// The worker gives allocations of this size and more whole pages of their own.
constexpr uint64_t kOwnPages = (uint64_t{1} << 20) + TracedPages::kPage;
/// This many bytes of a context are compared instead of traced, so that system calls can access them at any time. That
/// costs each launch some microseconds, so they are mirrored in steps, and a program that uses few of them pays for
/// few.
constexpr uint64_t kCompared = uint64_t{256} << 10;
constexpr uint64_t kComparedStep = uint64_t{16} << 10;
constexpr uint64_t kLargestCompared = uint64_t{64} << 10;
/// Slabs are returned at most this many times in a row, and one more time per interval (a token bucket), so that a loop that
/// allocates and frees keeps them.
constexpr int64_t kTrims = 8;
constexpr int64_t kTrimIntervalNs = 1'000'000'000;
/// The number of attempts at addresses that something else in this process occupies.
constexpr int kPlacesTried = 16;

constexpr uint64_t wholeUnits(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

bool mapZeros(uint64_t address, uint64_t bytes) {
  void* wanted = reinterpret_cast<void*>(address);
  void* got = ::mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got == wanted) {
    ::madvise(got, bytes, MADV_DONTFORK);
    return true;
  }
  ::munmap(got, bytes);
  return false;
}

CUresult freeAtWorker(const CommandSink& call, CUdeviceptr address) {
  cmd::MemFree wire{};
  wire.address = address;
  return call.post(wire);
}

}  // namespace

bool ManagedHeap::mirror(uint64_t address, uint64_t bytes, uint64_t compared, uint16_t context) {
  if (compared && !mapZeros(address, compared)) return false;
  auto pages = TracedPages::map(address + compared, bytes - compared, TracedPages::Content::kZero);
  if (pages && mirror_.addPages(std::move(pages), context, TracedPages::Content::kZero)) return true;
  if (compared) ::munmap(reinterpret_cast<void*>(address), compared);
  return false;
}

CUresult ManagedHeap::map(const CommandSink& call, size_t bytes, uint64_t compared, CUdeviceptr& address) {
  std::vector<CUdeviceptr> occupied;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (int i = 0; i < kPlacesTried; ++i) {
    cmd::MemAlloc wire{};
    wire.bytes = std::max<uint64_t>(bytes, kOwnPages);
    wire.flags = kManagedMemory;
    cmd::MemAllocReply reply{};
    result = call.wait(wire, reply);
    if (result != CUDA_SUCCESS) break;
    if (mirror(reply.address, bytes, compared, call.context())) {
      address = reply.address;
      break;
    }
    result = CUDA_ERROR_OUT_OF_MEMORY;
    occupied.push_back(reply.address);
  }
  if (occupied.size() == kPlacesTried)
    log(LogLevel::Error,
        "managed memory of %zu bytes: this process uses the addresses that the worker gave, 0x%llx among them", bytes,
        static_cast<unsigned long long>(occupied.front()));
  for (const CUdeviceptr each : occupied) freeAtWorker(call, each);
  return result;
}

CUresult ManagedHeap::allocate(const CommandSink& call, size_t bytes, CUdeviceptr& address) {
  if (bytes > UINT64_MAX - kLarge) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex_);
  if (bytes >= kLarge) {
    const CUresult result = map(call, wholeUnits(bytes, TracedPages::kPage), 0, address);
    if (result == CUDA_SUCCESS) whole_.emplace(address, call.context());
    return result;
  }
  const uint64_t rounded = wholeUnits(bytes, kPieceAlignment);
  if (cut(call.context(), rounded, address)) return CUDA_SUCCESS;
  if (const CUresult r = addSlab(call); r != CUDA_SUCCESS) return r;
  return cut(call.context(), rounded, address) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult ManagedHeap::addSlab(const CommandSink& call) {
  const bool isFirst = std::none_of(slabs_.begin(), slabs_.end(),
                                    [&](const auto& each) { return each.second.context == call.context(); });
  const uint64_t bytes = isFirst ? kFirstSlab : std::clamp(nextSlab_ * 2, kFirstSlab, kLargestSlab);
  const uint64_t compared = isFirst ? kCompared : 0;
  CUdeviceptr address = 0;
  if (const CUresult r = map(call, bytes, compared, address); r != CUDA_SUCCESS) return r;
  nextSlab_ = bytes;
  Slab slab{address, bytes, call.context(), compared, 0, {}};
  if (compared) slab.free.emplace(address, compared);
  slab.free.emplace(address + compared, bytes - compared);
  slabs_.emplace(address, std::move(slab));
  return CUDA_SUCCESS;
}

bool ManagedHeap::cut(uint16_t context, size_t bytes, CUdeviceptr& address) {
  for (auto& [start, slab] : slabs_) {
    if (slab.context != context) continue;
    for (auto run = slab.free.begin(); run != slab.free.end(); ++run) {
      const bool isCompared = run->first < start + slab.compared;
      if (run->second < bytes || (isCompared && bytes > kLargestCompared)) continue;
      const auto [at, length] = *run;
      slab.free.erase(run);
      if (length > bytes) slab.free.emplace(at + bytes, length - bytes);
      for (; isCompared && start + slab.mirrored < at + bytes; slab.mirrored += kComparedStep)
        mirror_.addBytes(start + slab.mirrored, kComparedStep, context);
      pieces_.emplace(at, bytes);
      address = at;
      return true;
    }
  }
  return false;
}

void ManagedHeap::giveBack(Slab& slab, uint64_t address, uint64_t bytes) {
  const uint64_t border = slab.address + slab.compared;
  auto next = slab.free.lower_bound(address);
  if (next != slab.free.end() && address + bytes == next->first && next->first != border) {
    bytes += next->second;
    next = slab.free.erase(next);
  }
  if (next != slab.free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == address && address != border) {
      before->second += bytes;
      return;
    }
  }
  slab.free.emplace(address, bytes);
}

CUresult ManagedHeap::free(const CommandSink& call, CUdeviceptr address, uint16_t context) {
  const std::lock_guard lock(mutex_);
  if (const auto piece = pieces_.find(address); piece != pieces_.end()) {
    // Work of the device that still uses the memory must finish before it is allocated again.
    mirror_.settle();
    const auto slab = std::prev(slabs_.upper_bound(address));
    giveBack(slab->second, address, piece->second);
    pieces_.erase(piece);
    return trim(call, context);
  }
  if (whole_.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  mirror_.remove(address);
  call.useContext(context);
  return freeAtWorker(call, address);
}

bool ManagedHeap::mayTrim() {
  const int64_t now = monotonicNs();
  trimsFrom_ = std::max(trimsFrom_, now - kTrims * kTrimIntervalNs);
  if (trimsFrom_ + kTrimIntervalNs > now) return false;
  trimsFrom_ += kTrimIntervalNs;
  return true;
}

CUresult ManagedHeap::trim(const CommandSink& call, uint16_t context) {
  const auto isInUse = [&](const auto& each) {
    const Slab& slab = each.second;
    return slab.context == context &&
           pieces_.lower_bound(slab.address) != pieces_.lower_bound(slab.address + slab.bytes);
  };
  if (std::any_of(slabs_.begin(), slabs_.end(), isInUse) || !mayTrim()) return CUDA_SUCCESS;
  call.useContext(context);
  CUresult result = CUDA_SUCCESS;
  for (auto each = slabs_.begin(); each != slabs_.end();) {
    if (each->second.context != context) {
      ++each;
      continue;
    }
    endMirrored(each->second);
    if (const CUresult r = freeAtWorker(call, each->second.address); result == CUDA_SUCCESS) result = r;
    each = slabs_.erase(each);
  }
  return result;
}

void ManagedHeap::endMirrored(const Slab& slab) {
  for (uint64_t at = 0; at < slab.mirrored; at += kComparedStep) mirror_.remove(slab.address + at);
  mirror_.remove(slab.address + slab.compared);
  if (slab.compared) ::munmap(reinterpret_cast<void*>(slab.address), slab.compared);
}

std::vector<CUdeviceptr> ManagedHeap::removeOf(uint16_t context) {
  std::vector<CUdeviceptr> ended;
  const std::lock_guard lock(mutex_);
  for (auto each = whole_.begin(); each != whole_.end();) {
    if (each->second != context) {
      ++each;
      continue;
    }
    mirror_.remove(each->first);
    ended.push_back(each->first);
    each = whole_.erase(each);
  }
  for (auto each = slabs_.begin(); each != slabs_.end();) {
    const Slab& slab = each->second;
    if (slab.context != context) {
      ++each;
      continue;
    }
    pieces_.erase(pieces_.lower_bound(slab.address), pieces_.lower_bound(slab.address + slab.bytes));
    endMirrored(slab);
    ended.push_back(slab.address);
    each = slabs_.erase(each);
  }
  return ended;
}

}  // namespace millpond::client
