// SPDX-License-Identifier: Apache-2.0
// The commands by which a session's worker is asked for the activity of its devices.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/gen/cuda_api.h"

namespace millpond {
class Session;
}

namespace millpond::client {

class WorkerProfile {
 public:
  /// The session must stay.
  explicit WorkerProfile(Session& session) : session_(session) {}

  /// Starts it, and compares the clocks. `commands`: record for which command each piece of work is. A failure is
  /// logged.
  CUresult begin(bool commands);
  /// By how many ns the worker's clock is ahead of this process's, and the round-trip time of the query that measured
  /// it.
  int64_t lead() const { return lead_; }
  int64_t uncertainty() const { return uncertainty_; }

  struct Page {
    std::string lines;  ///< whole ones
    uint64_t lost = 0;  ///< records, since the beginning
    bool hasMore = false;
  };
  /// The next lines. `flush`: everything that is complete by now is among these and the following ones.
  CUresult read(bool flush, Page& page);
  /// Ends recording. Lines can still be read.
  CUresult end();

 private:
  Session& session_;
  int64_t lead_ = 0, uncertainty_ = 0;
};

}  // namespace millpond::client
