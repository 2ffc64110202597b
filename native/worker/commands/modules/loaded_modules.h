// SPDX-License-Identifier: Apache-2.0
// The contents of modules and libraries as loaded, so that another session can restore them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "worker/core/session_part.h"
#include "worker/images/image_variables.h"

namespace millpond::worker {

class LoadedModules : private SessionPart {
 public:
  LoadedModules(SessionCore& session, bool isRecorded) : SessionPart(session), isRecorded_(isRecorded) {}

  /// The client knows the address of a variable of that module or library.
  void tellAddress(uint64_t wire) {
    if (isRecorded_) asked_.insert(wire);
  }
  void forget(uint64_t wire) {
    loaded_.erase(wire);
    asked_.erase(wire);
  }

  /// Records the variables of a module or library; `image`: empty if unknown.
  void note(const cmd::ModuleLoad& load, std::span<const std::byte> image);
  /// The reason why they cannot be loaded again with the same contents; empty if they can.
  std::string whyKept();

 private:
  /// The contents for comparison.
  enum class Compared { kSame, kOther, kUnknown };
  /// The properties of a module or library that decide whether another one is the same.
  struct Loaded {
    bool isKept = false;  ///< its client has the image
    std::optional<std::vector<ImageVariable>> variables;
  };

  bool holdsTheSame(uint64_t wire, const ImageVariable& variable);
  Compared compareVariables(uint64_t wire, const Loaded& loaded);

  bool isRecorded_;
  std::unordered_map<uint64_t, Loaded> loaded_;  ///< by the handle of the module or library
  /// modules and libraries of which the client knows the address of a variable
  std::unordered_set<uint64_t> asked_;
};

}  // namespace millpond::worker
