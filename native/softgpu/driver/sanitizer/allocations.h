// SPDX-License-Identifier: Apache-2.0
// The table of device memory that workers give to programs piece by piece, kept while programs are checked.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "softgpu/ptx/written_bytes.h"

namespace millpond::softgpu {

/// A call of the program, as identified by the worker: a thread of the client, and the offset of a command in its
/// stream.
struct Call {
  uint16_t thread = 0;
  uint64_t offset = 0;
};

struct Allocation {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint64_t number = 0;                         // its number, from 1
  uint64_t since = 0;                          // the time at which it was allocated
  uint64_t until = 0;                          // and freed; 0: it is still allocated
  const char* by = "";                         // the call that allocated it
  const char* freedBy = "";                    // and freed it
  Call call;                                   // the call of the program that allocated it
  std::shared_ptr<ptx::WrittenBytes> written;  // null: written bytes are not tracked, or any process may write

  uint64_t end() const { return base + bytes; }
  bool isThere(uint64_t time) const { return since <= time && (until == 0 || time < until); }
};

class Allocations {
 public:
  /// Increases with each change: a launch may use memory that existed when it was made.
  uint64_t now() const;

  void manage(uint64_t address, uint64_t bytes);
  bool isManaged(uint64_t address) const;

  /// `keepsWritten`: its written bytes are tracked.
  void allocated(uint64_t address, uint64_t bytes, const char* by, Call call = {}, bool keepsWritten = false);
  /// Other processes may write, so from now on all memory counts as written.
  void share();
  /// Notes that bytes were written other than by a kernel.
  void written(uint64_t address, uint64_t bytes);
  /// Notes that bytes were copied: they count as written exactly if their source does.
  void copied(uint64_t to, uint64_t from, uint64_t bytes);
  void freed(uint64_t address, const char* by);

  /// The allocation that contains `address` and existed at that time.
  std::optional<Allocation> find(uint64_t address, uint64_t time) const;
  /// The allocation, freed or not, that contains `address` or is nearest to it, at most `reach` bytes away.
  std::optional<Allocation> nearest(uint64_t address, uint64_t reach) const;
  /// Allocations that were never freed.
  std::vector<Allocation> left() const;

 private:
  using ByBase = std::map<uint64_t, Allocation>;
  ByBase::const_iterator atOrBefore(uint64_t address) const;

  mutable std::shared_mutex mutex_;
  uint64_t time_ = 0;
  uint64_t count_ = 0;
  bool isShared_ = false;
  ByBase all_;                            // freed ones until their addresses are reused
  std::map<uint64_t, uint64_t> managed_;  // base to length
};

}  // namespace millpond::softgpu
