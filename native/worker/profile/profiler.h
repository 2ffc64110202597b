// SPDX-License-Identifier: Apache-2.0
// Records, with CUPTI, the work of the devices for this process: only that of its own session.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "worker/profile/profile_lines.h"

namespace millpond::worker {

class Profiler {
 public:
  /// Starts recording. There is one profiler in a process, and it stays until the process ends, because CUPTI keeps its
  /// functions. `driver`: the driver library, which is tried first: the software GPU is its own CUPTI. `library`: a
  /// path; empty: the default place of CUDA toolkits.
  static Result<Profiler*> start(const std::string& driver, const std::string& library);

  /// Processes the records that are complete by now.
  void flush();
  ProfileLines::Page take(size_t mostBytes) { return lines_.take(mostBytes); }

 private:
  Profiler() = default;
  Status load(void* library);
  void flushNowAndThen();
  static void requested(uint8_t** buffer, size_t* bytes, size_t* mostRecords);
  static void completed(void* context, uint32_t stream, uint8_t* buffer, size_t bytes, size_t validBytes);
  void read(uint8_t* buffer, size_t validBytes);

  static Profiler* instance_;

  cupti::GetNextRecord nextRecord_ = nullptr;
  cupti::FlushAll flushAll_ = nullptr;
  cupti::GetNumDroppedRecords droppedRecords_ = nullptr;
  ProfileLines lines_;
};

}  // namespace millpond::worker
