// SPDX-License-Identifier: Apache-2.0
// The gates of a node's devices, as seen by one worker.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "worker/gate/gate_file.h"

namespace millpond::worker::gate {

class Gates {
 public:
  /// None: compute shares are not enforced.
  Gates() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a folder is all that there is to say of them.
  Gates(std::string directory) : directory_(std::move(directory)) {}

  bool areNone() const { return directory_.empty(); }
  /// Opens the gate of a device before the worker drops its rights: afterwards it has no access to the files.
  Status prepare(const std::string& uuid) {
    if (areNone() || prepared_.contains(uuid)) return Done{};
    auto file = GateFile::open(pathOf(uuid));
    if (!file) return file.error();
    prepared_.emplace(uuid, std::move(*file));
    return Done{};
  }
  /// Returns the gate of a device, once.
  Result<std::unique_ptr<GateFile>> take(const std::string& uuid) {
    if (const auto found = prepared_.extract(uuid)) return std::move(found.mapped());
    return GateFile::open(pathOf(uuid));
  }

 private:
  std::string pathOf(const std::string& uuid) const { return directory_ + "/" + uuid; }

  std::string directory_;
  std::map<std::string, std::unique_ptr<GateFile>> prepared_;
};

}  // namespace millpond::worker::gate
