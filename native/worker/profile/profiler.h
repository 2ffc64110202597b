// SPDX-License-Identifier: Apache-2.0
// Records, with CUPTI, the work of the devices for this process: only that of its own session.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "worker/profile/profile_lines.h"

namespace millpond::worker {

class Profiler {
 public:
  /// There is one profiler in a process, and it stays until the process ends, because CUPTI keeps its functions. `driver`: the driver library, which is tried first: the software GPU is its own CUPTI. `library`: a
  /// path; empty: the default place of CUDA toolkits.
  static Result<Profiler*> load(const std::string& driver, const std::string& library);

  /// The session's devices in order, by the driver's numbers: records refer to them by position.
  void nameDevices(std::vector<int> devices) { lines_.nameDevices(std::move(devices)); }

  /// Starts recording, unless it is already on. `commands`: also record the client's commands, through `Command`.
  Status begin(bool commands);
  /// Stops recording.
  void end();

  /// The command of the client that the calling thread executes, for the lifetime of this object: its thread, and its
  /// offset in the session's stream.
  class Command {
   public:
    Command(uint32_t thread, uint64_t position);
    ~Command();
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;
  };
  /// Whether `Command` has an effect.
  bool notesCommands() const { return notesCommands_; }

  /// Processes the records that are complete by now.
  void flush();
  ProfileLines::Page take(size_t mostBytes) { return lines_.take(mostBytes); }

 private:
  Profiler() = default;
  Status find(void* library);
  void disableKinds();
  void enableCommands(bool areWanted);
  static void called(void* self, uint32_t domain, uint32_t call, const cupti::CallbackData* told);
  void flushNowAndThen();
  static void requested(uint8_t** buffer, size_t* bytes, size_t* mostRecords);
  static void completed(void* context, uint32_t stream, uint8_t* buffer, size_t bytes, size_t validBytes);
  void read(uint8_t* buffer, size_t validBytes);

  static Profiler* instance_;

  cupti::RegisterCallbacks registerCallbacks_ = nullptr;
  cupti::Enable enable_ = nullptr, disable_ = nullptr;
  cupti::Subscribe subscribe_ = nullptr;
  cupti::EnableCallback enableCallback_ = nullptr;
  void* subscriber_ = nullptr;
  bool isOn_ = false;
  bool notesCommands_ = false;
  cupti::GetNextRecord nextRecord_ = nullptr;
  cupti::FlushAll flushAll_ = nullptr;
  cupti::GetNumDroppedRecords droppedRecords_ = nullptr;
  ProfileLines lines_;
};

}  // namespace millpond::worker
