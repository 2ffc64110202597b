// SPDX-License-Identifier: Apache-2.0
// Pages of this process that represent memory of the worker at the same addresses. Page protection detects accesses to
// absent pages, and writes. Has no connection to the wire, and is used under a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/unique_fd.h"

namespace millpond::client {

class TracedPages {
 public:
  static constexpr size_t kPage = 4096;
  enum class State : uint8_t {
    kAway,   ///< the worker's contents are newer: an access faults
    kClean,  ///< both sides have the same contents: a write faults
    kDirty,  ///< the program may have written
  };
  struct Run {
    size_t first;  ///< page
    size_t count;
  };
  /// The state of the pages before they were mirrored.
  enum class Content {
    kZero,     ///< untouched so far, on both sides: distinguishes the first writes of the program
    kProgram,  ///< all contents are the program's
  };

  /// Maps `bytes` bytes, whole pages, at `address` (0: anywhere). Null if the address is taken, or there is no memory.
  /// The program may use it like any other until it is withdrawn.
  static std::unique_ptr<TracedPages> map(uint64_t address, size_t bytes, Content content);
  ~TracedPages();
  TracedPages(const TracedPages&) = delete;
  TracedPages& operator=(const TracedPages&) = delete;

  uint64_t address() const { return address_; }
  size_t bytes() const { return bytes_; }
  size_t pages() const { return bytes_ / kPage; }
  size_t pageOf(uint64_t at) const { return (at - address_) / kPage; }
  /// Whether the program can access every page without a fault.
  bool isAccessible() const { return accessible_; }
  State state(size_t page) const { return untouched_ ? State::kDirty : states_[page]; }
  /// The contents of pages, whatever their protection.
  std::span<std::byte> data(Run run) const { return {alias_ + run.first * kPage, run.count * kPage}; }

  /// Whether the program may have written any page since they were withdrawn.
  bool hasDirty() const;
  /// Makes every access fault from now on. The program's writes go to `send(offset, bytes)`.
  template <typename Send>
  void withdraw(Send&& send) {
    for (const Run run : take()) send(run.first * kPage, std::span<const std::byte>(data(run)));
  }
  /// The pages to fetch when one that is away is touched: the more regular the accesses, the more pages each time.
  Run wanted(size_t page);
  /// The pages to make writable for a write to one that is clean.
  Run writable(size_t page);
  /// The first run of pages that are away, from `page` on; count 0: none.
  Run away(size_t page) const;
  /// Lets the program use the pages. False if the system refuses because of too many mappings; then only all of them
  /// can be made accessible together.
  bool grant(Run run, State state);
  /// Withdraws one page again. Changes by the program to it are not reported.
  void takeBack(size_t page);

 private:
  TracedPages() = default;
  /// Withdraws all pages and returns the dirty ones.
  std::vector<Run> take();
  std::vector<Run> touched() const;
  size_t reach(size_t page);

  uint64_t address_ = 0;
  size_t bytes_ = 0;
  std::byte* alias_ = nullptr;
  UniqueFd file_;          ///< while untouched: knows which pages exist
  bool untouched_ = true;  ///< never withdrawn
  bool isZero_ = true;
  bool accessible_ = true;
  std::vector<State> states_;
  size_t faults_ = 0;  ///< since it was withdrawn
  size_t next_ = 0;    ///< page after the last one that a fault fetched
  size_t reach_ = 0;
};

}  // namespace millpond::client
