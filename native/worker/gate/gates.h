// SPDX-License-Identifier: Apache-2.0
// The gates of a node's devices, as seen by one worker.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "worker/gate/gate_file.h"
#include "worker/gate/lane.h"

namespace millpond::worker::gate {

class Gates {
 public:
  /// None: compute shares are not enforced.
  Gates() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a folder is all that there is to say of them.
  Gates(std::string directory) : directory_(std::move(directory)) {}

  bool areNone() const { return directory_.empty(); }
  /// Opens the gates of a device before the worker drops its rights: afterwards it has no access to the files.
  Status prepare(const std::string& uuid) {
    if (areNone()) return Done{};
    for (const Lane lane : kLanes) {
      const std::string path = pathOf(uuid, lane);
      if (prepared_.contains(path)) continue;
      auto file = GateFile::open(path);
      if (!file) return file.error();
      prepared_.emplace(path, std::move(*file));
    }
    return Done{};
  }
  /// Returns the gate of a lane of a device, once.
  Result<std::unique_ptr<GateFile>> take(const std::string& uuid, Lane lane) {
    const std::string path = pathOf(uuid, lane);
    if (const auto found = prepared_.extract(path)) return std::move(found.mapped());
    return GateFile::open(path);
  }

 private:
  std::string pathOf(const std::string& uuid, Lane lane) const { return directory_ + "/" + uuid + suffixOf(lane); }

  std::string directory_;
  std::map<std::string, std::unique_ptr<GateFile>> prepared_;  ///< by path
};

}  // namespace millpond::worker::gate
