// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/pages/traced_pages.h"

#include <unistd.h>

#include <algorithm>

#include "client/addresses/map_flags.h"

namespace millpond::client {
namespace {

/// Small memory is transferred as a whole.
constexpr size_t kWhole = 64;
constexpr size_t kFirstReach = 16;
constexpr size_t kLongestReach = 1024;
/// After this many scattered accesses each one maps twice as much, because a process has a limited number of mappings.
constexpr size_t kScattered = 256;
constexpr size_t kMostDoublings = 16;

std::byte* mapFile(uint64_t address, size_t bytes, int file) {
  void* wanted = reinterpret_cast<void*>(address);
  void* got = ::mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (address ? MAP_FIXED_NOREPLACE : 0), file, 0);
  if (got == MAP_FAILED) return nullptr;
  if (address == 0 || got == wanted) return static_cast<std::byte*>(got);
  // A kernel before 4.17 treats the address as a hint.
  ::munmap(got, bytes);
  return nullptr;
}

int protectionOf(TracedPages::State state) {
  switch (state) {
    case TracedPages::State::kClean: return PROT_READ;
    case TracedPages::State::kDirty: return PROT_READ | PROT_WRITE;
    default: return PROT_NONE;
  }
}

}  // namespace

std::unique_ptr<TracedPages> TracedPages::map(uint64_t address, size_t bytes, Content content) {
  UniqueFd file(::memfd_create("millpond-mirror", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return nullptr;
  std::byte* place = mapFile(address, bytes, file.get());
  if (!place) return nullptr;
  std::byte* alias = mapFile(0, bytes, file.get());
  if (!alias) {
    ::munmap(place, bytes);
    return nullptr;
  }
  // A forked child would share the pages with its parent, unlike device memory.
  if (content == Content::kZero) ::madvise(place, bytes, MADV_DONTFORK);
  ::madvise(alias, bytes, MADV_DONTFORK);
  auto pages = std::unique_ptr<TracedPages>(new TracedPages());
  pages->address_ = reinterpret_cast<uint64_t>(place);
  pages->bytes_ = bytes;
  pages->alias_ = alias;
  pages->isZero_ = content == Content::kZero;
  if (pages->isZero_) pages->file_ = std::move(file);
  return pages;
}

TracedPages::~TracedPages() {
  ::munmap(reinterpret_cast<void*>(address_), bytes_);
  ::munmap(alias_, bytes_);
}

std::vector<TracedPages::Run> TracedPages::touched() const {
  if (!isZero_) return {{0, pages()}};
  std::vector<Run> runs;
  const auto all = static_cast<off_t>(bytes_);
  for (off_t at = 0; at < all;) {
    const off_t data = ::lseek(file_.get(), at, SEEK_DATA);
    if (data < 0 || data >= all) break;
    const off_t hole = ::lseek(file_.get(), data, SEEK_HOLE);
    const size_t first = static_cast<size_t>(data) / kPage;
    const size_t behind = hole < 0 ? pages() : std::min(pages(), (static_cast<size_t>(hole) + kPage - 1) / kPage);
    runs.push_back({first, behind - first});
    at = static_cast<off_t>(behind * kPage);
  }
  return runs;
}

bool TracedPages::hasDirty() const {
  if (!accessible_) return false;
  return untouched_ ? !touched().empty() : std::find(states_.begin(), states_.end(), State::kDirty) != states_.end();
}

std::vector<TracedPages::Run> TracedPages::take() {
  if (!accessible_) return {};
  // Done first: later writes fault, so the earlier ones are complete.
  ::mprotect(reinterpret_cast<void*>(address_), bytes_, PROT_NONE);
  accessible_ = false;
  faults_ = 0;
  next_ = pages();
  std::vector<Run> dirty;
  if (untouched_) {
    dirty = touched();
    untouched_ = false;
    file_.reset();
    states_.assign(pages(), State::kAway);
    return dirty;
  }
  for (size_t page = 0; page < states_.size(); ++page) {
    if (states_[page] == State::kDirty) {
      if (!dirty.empty() && dirty.back().first + dirty.back().count == page)
        ++dirty.back().count;
      else
        dirty.push_back({page, 1});
    }
    states_[page] = State::kAway;
  }
  return dirty;
}

size_t TracedPages::reach(size_t page) {
  reach_ = page == next_ ? std::min(reach_ * 2, kLongestReach) : kFirstReach;
  return std::max(reach_, kFirstReach << std::min(faults_++ / kScattered, kMostDoublings));
}

TracedPages::Run TracedPages::wanted(size_t page) {
  if (pages() <= kWhole) {
    size_t first = page;
    while (first > 0 && states_[first - 1] == State::kAway) --first;
    return {first, away(first).count};
  }
  const Run run{page, std::min(reach(page), away(page).count)};
  next_ = run.first + run.count;
  return run;
}

TracedPages::Run TracedPages::writable(size_t page) {
  const size_t most = pages() <= kWhole ? pages() : reach(page);
  Run run{page, 0};
  while (run.count < most && page + run.count < pages() && states_[page + run.count] == State::kClean) ++run.count;
  next_ = run.first + run.count;
  return run;
}

TracedPages::Run TracedPages::away(size_t page) const {
  while (page < states_.size() && states_[page] != State::kAway) ++page;
  Run run{page, 0};
  while (page + run.count < states_.size() && states_[page + run.count] == State::kAway) ++run.count;
  return run;
}

bool TracedPages::grant(Run run, State state) {
  auto* start = reinterpret_cast<std::byte*>(address_) + run.first * kPage;
  if (::mprotect(start, run.count * kPage, protectionOf(state)) != 0) return false;
  std::fill_n(states_.begin() + static_cast<ptrdiff_t>(run.first), run.count, state);
  accessible_ = true;
  return true;
}

void TracedPages::takeBack(size_t page) {
  ::mprotect(reinterpret_cast<std::byte*>(address_) + page * kPage, kPage, PROT_NONE);
  states_[page] = State::kAway;
}

}  // namespace millpond::client
