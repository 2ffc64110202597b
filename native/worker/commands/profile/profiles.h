// SPDX-License-Identifier: Apache-2.0
// The activity of the devices for the session, for a profiled program.
#pragma once

#include <string>
#include <utility>

#include "worker/core/session_part.h"
#include "worker/profile/profiler.h"

namespace millpond::worker {

class Profiles : private SessionPart {
 public:
  explicit Profiles(SessionCore& session) : SessionPart(session) {}

  /// Path of the driver and of CUPTI, as for Profiler::load.
  void setLibraries(std::string driver, std::string cupti) {
    driverLibrary_ = std::move(driver);
    cuptiLibrary_ = std::move(cupti);
  }

  CUresult onProfileBegin(const cmd::Decoded<cmd::ProfileBegin>& command);
  CUresult onProfileRead(const cmd::Decoded<cmd::ProfileRead>& command);
  CUresult onProfileEnd(const cmd::Decoded<cmd::ProfileEnd>& command);

  /// Whether work is recorded with the command that it belongs to, by Profiler::Command.
  bool notesCommands() const { return profiler_ && profiler_->notesCommands(); }

 private:
  std::string driverLibrary_, cuptiLibrary_;
  Profiler* profiler_ = nullptr;  ///< null: no profile
};

}  // namespace millpond::worker
