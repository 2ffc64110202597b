// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/client_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace millpond::worker {

uint64_t ClientPages::sizeOf(uint64_t address, uint64_t bytes) {
  uint64_t end = 0;
  if (bytes == 0 || __builtin_add_overflow(address, bytes, &end) || end > UINT64_MAX - kPage) return 0;
  return (end + kPage - 1) / kPage * kPage - address / kPage * kPage;
}

void ClientPages::cut(uint64_t at) {
  auto run = runs_.lower_bound(at);
  if (run == runs_.begin()) return;
  --run;
  if (run->second.end <= at) return;
  runs_[at] = {run->second.end, run->second.offset + (at - run->first), run->second.views};
  run->second.end = at;
}

std::optional<ClientPages::View> ClientPages::view(uint64_t address, uint64_t bytes) {
  return view({address / kPage * kPage, sizeOf(address, bytes), nullptr}, 0);
}

std::optional<ClientPages::View> ClientPages::viewInPlace(uint64_t address, uint64_t bytes) {
  if (address % kPage != 0 || sizeOf(address, bytes) != bytes) return std::nullopt;
  return view({address, bytes, reinterpret_cast<std::byte*>(address)}, MAP_FIXED_NOREPLACE);
}

std::optional<ClientPages::View> ClientPages::view(const View& wanted, int flags) {
  View view = wanted;
  if (view.bytes == 0) return std::nullopt;
  if (!file_) file_ = UniqueFd(::memfd_create("millpond-client-pages", MFD_CLOEXEC));
  if (!file_ || fileEnd_ > static_cast<uint64_t>(INT64_MAX) - view.bytes) return std::nullopt;
  void* place =
      ::mmap(wanted.memory, view.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (place == MAP_FAILED) return std::nullopt;
  if (flags != 0 && place != wanted.memory) {
    ::munmap(place, view.bytes);
    return std::nullopt;
  }
  view.memory = static_cast<std::byte*>(place);
  const uint64_t end = view.address + view.bytes;
  cut(view.address);
  cut(end);
  const uint64_t before = fileEnd_;
  for (uint64_t at = view.address; at < end;) {
    auto run = runs_.lower_bound(at);
    const uint64_t next = run == runs_.end() ? end : std::min(end, run->first);
    if (next > at) {
      run = runs_.emplace(at, Run{next, fileEnd_, 0}).first;
      fileEnd_ += next - at;
    }
    ++run->second.views;
    at = run->second.end;
  }
  const bool isLonger = fileEnd_ == before || ::ftruncate(file_.get(), static_cast<off_t>(fileEnd_)) == 0;
  if (isLonger && map(view)) return view;
  this->end(view);
  return std::nullopt;
}

bool ClientPages::map(const View& view) const {
  const uint64_t end = view.address + view.bytes;
  for (auto run = runs_.lower_bound(view.address); run != runs_.end() && run->first < end; ++run)
    if (::mmap(view.at(run->first), run->second.end - run->first, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
               file_.get(), static_cast<off_t>(run->second.offset)) == MAP_FAILED)
      return false;
  return true;
}

void ClientPages::end(const View& view) {
  ::munmap(view.memory, view.bytes);
  const uint64_t end = view.address + view.bytes;
  for (auto run = runs_.lower_bound(view.address); run != runs_.end() && run->first < end;) {
    if (--run->second.views != 0) {
      ++run;
      continue;
    }
    // If it cannot be returned to the system, it stays until the worker ends.
    ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(run->second.offset),
                static_cast<off_t>(run->second.end - run->first));
    run = runs_.erase(run);
  }
}

}  // namespace millpond::worker
