// SPDX-License-Identifier: Apache-2.0
// The commands that restore this session in another worker: those that created the existing objects, and set the
// present attributes. The client chooses its handles, so the same commands create the same objects under the same
// handles anywhere.
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

  /// Adds a command executed in that context; a command that cannot be repeated is ignored.
  void note(cmd::Op op, uint16_t context, std::span<const std::byte> body);
  /// A command was executed whose effects cannot be recorded. The first of these is remembered.
  void leaveTrace(cmd::Op op) {
    if (trace_ == cmd::Op{}) trace_ = op;
  }
  /// The first command whose effects cannot be recorded; 0: none.
  cmd::Op trace() const { return trace_; }
  /// The settings of a context have been reset.
  void forgetSettings(uint16_t context);
  /// Removes commands of objects that no longer exist. Called regularly, so that the journal stays proportional to the
  /// objects.
  void prune(const IsThere& isThere);
  /// Whether it has grown much since it was last pruned.
  bool isLong() const { return entries_.size() > 2 * pruned_ + 1024; }

  bool contains(const Subject& subject) const { return made_.contains(subject); }
  /// The commands as frames, in an executable order.
  std::vector<std::byte> frames() const;

 private:
  struct Entry {
    cmd::Op op;
    uint16_t context;
    Subject subject;
    std::vector<std::byte> key;  ///< of a setting: key by which a later one replaces it
    std::vector<std::byte> body;
  };
  void erase(uint64_t number);

  uint64_t last_ = 0;
  std::map<uint64_t, Entry> entries_;  ///< in their order
  std::map<Subject, uint64_t> made_;
  std::map<std::vector<std::byte>, uint64_t> settings_;
  size_t pruned_ = 0;
  cmd::Op trace_ = cmd::Op{};
};

}  // namespace millpond::worker
