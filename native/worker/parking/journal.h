// SPDX-License-Identifier: Apache-2.0
// The commands by which another session becomes like this one: those that made what there is, and set what is set. A
// client's handles are its own invention, so the same commands make the same things under the same handles anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "protocol/commands/command_subject.h"
#include "protocol/gen/commands.h"

namespace millpond::worker {

class Journal {
 public:
  using IsThere = std::function<bool(const Subject&)>;

  /// A command that was done in that context; one that cannot be repeated is left out.
  void note(cmd::Op op, uint16_t context, std::span<const std::byte> body);
  /// The settings of a context are as they were at first.
  void forgetSettings(uint16_t context);
  /// Leaves out what is not there any more. Called now and then, so that it stays as long as what there is.
  void prune(const IsThere& isThere);
  /// Whether it has grown much since it was last pruned.
  bool isLong() const { return entries_.size() > 2 * pruned_ + 1024; }

  bool contains(const Subject& subject) const { return made_.contains(subject); }
  /// The commands as frames, in an order in which they can be done.
  std::vector<std::byte> frames() const;

 private:
  struct Entry {
    cmd::Op op;
    uint16_t context;
    Subject subject;
    std::vector<std::byte> key;  ///< of a setting: by which a later one takes its place
    std::vector<std::byte> body;
  };
  void erase(uint64_t number);

  uint64_t last_ = 0;
  std::map<uint64_t, Entry> entries_;  ///< in their order
  std::map<Subject, uint64_t> made_;
  std::map<std::vector<std::byte>, uint64_t> settings_;
  size_t pruned_ = 0;
};

}  // namespace millpond::worker
