// SPDX-License-Identifier: Apache-2.0
// State that all parts of a session share: the driver and the link, the handles of the client, the current command,
// replies and failures.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/gen/commands.h"
#include "protocol/server/server_link.h"
#include "worker/core/contexts.h"
#include "worker/core/device_output.h"
#include "worker/core/handle_map.h"
#include "worker/core/marks.h"
#include "worker/core/open_captures.h"
#include "worker/core/synchronous_copies.h"
#include "worker/device/driver.h"
#include "worker/device/sanitizer.h"
#include "worker/device/session_devices.h"

namespace millpond::worker {

/// Returned by a handler whose reply follows later; not a code of the driver.
inline constexpr CUresult kDeferred = static_cast<CUresult>(1023);

/// The parts of a command that its reply needs.
struct Request {
  uint16_t op = 0;
  uint16_t context = 0;
  uint32_t request = 0;  ///< 0: no thread of the client waits for a reply
  uint32_t thread = 0;   ///< of the client
};

/// Where the current command is.
struct CommandPlace {
  uint64_t start = 0;                                   ///< offset in the ring
  const std::shared_ptr<const void>* keeper = nullptr;  ///< keeps memory beside the ring; null after the command
};

class SessionCore {
 public:
  struct Counters {
    std::atomic<uint64_t> commands{0};
    std::atomic<uint64_t> launches{0};
    std::atomic<uint64_t> waits{0};
    std::array<std::atomic<uint64_t>, 64> memoryUsed{};  ///< per device of the session
    /// Nanoseconds that each device worked for the session while its gate was on.
    std::array<std::atomic<uint64_t>, 64> computeUsedNs{};
    std::array<std::atomic<bool>, 64> isMeasured{};  ///< its gate is on
  };
  /// The reason why a session ended, and whether the end was orderly.
  struct End {
    std::string reason;
    bool ok;
    bool isParked = false;  ///< its client continues with another session
  };

  /// `output`: output of kernels; null discards it. `isResumed`: the client had another session before this one.
  SessionCore(const Driver& driver, SessionDevices& devices, ServerLink link, DeviceOutput* output, bool isResumed);

  const Driver& driver() const { return driver_; }
  SessionDevices& devices() { return devices_; }
  ServerLink& link() { return link_; }
  HandleMap& handles() { return handles_; }
  Contexts& contexts() { return contexts_; }
  OpenCaptures& captures() { return captures_; }
  Marks& marks() { return marks_; }
  SynchronousCopies& synchronousCopies() { return synchronousCopies_; }
  const Sanitizer& sanitizer() const { return sanitizer_; }
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }
  bool isResumed() const { return isResumed_; }
  /// Resumed sessions: all objects of the previous session have been restored.
  bool isRestored() const { return isRestored_; }
  void restored() { isRestored_ = true; }

  // The current command

  /// The next command of the stream. `start`: its offset in the ring; `keeper`: keeps memory beside the ring that holds it.
  void begin(const Request& request, uint64_t start, const std::shared_ptr<const void>& keeper);
  /// A command that was started before and whose reply is due now.
  void resume(const Request& request);
  Request& current() { return current_; }
  /// Number of commands started.
  uint64_t position() const { return position_; }
  const CommandPlace& frame() const { return frame_; }
  /// The command was executed, or is executed later from a copy.
  void endFrame() { frame_.keeper = nullptr; }
  /// Whether a thread of the client waits for its reply.
  bool isAwaited() const { return current_.request != 0; }

  // Handles and numbers of the client. False means a violation, or an object that another thread of the program has
  // ended.

  bool stream(uint64_t wire, CUstream& out);
  bool stream(uint64_t wire, Stream& out);
  template <typename H>
  bool handle(HandleKind kind, uint64_t wire, H& out) {
    const HandleMap::Entry* entry = handles_.find(kind, wire);
    if (!entry) return missing(wire);
    out = static_cast<H>(entry->object);
    return true;
  }
  bool device(int32_t ordinal, CUdevice& out);
  /// Records the use of an unknown handle, possibly a violation. Returns false.
  bool missing(uint64_t wire) {
    isStale_ = isResumed_ || handles_.wasKnown(wire);
    return false;
  }
  /// The session's handle of a driver's object; 0 when it has none.
  uint64_t wireOf(HandleKind kind, const void* object);

  // Answers

  template <typename R, typename... Tails>
  void reply(const R& fixed, const Tails&... tails) {
    replyBody_.resize(cmd::encodedSize<R>(tails...));
    cmd::encode(replyBody_.data(), fixed, tails...);
  }
  void clearReply() { replyBody_.clear(); }
  /// Sends the reply, or keeps the failure of a command for which no thread waits.
  void answer(const Request& request, CUresult result);
  /// Called before replies and data that say that the device is done: sends the data that has arrived for the client's
  /// memory.
  void beforeAnswers(std::function<void()> land) { land_ = std::move(land); }
  void land() { land_(); }
  /// Sends the client the output of kernels of that context.
  void forwardOutput(uint16_t context);

  // The end

  /// The client broke the protocol: ends the session. A handle that the session once had, and that another thread of
  /// the program ended meanwhile, is only an error of the program: the reply is CUDA_ERROR_INVALID_HANDLE.
  CUresult violation(const std::string& what);
  void end(End how) {
    hasEnded_ = true;
    end_ = std::move(how);
  }
  bool hasEnded() const { return hasEnded_; }
  const End& howItEnded() const { return end_; }

 private:
  /// Sends the client the output written there.
  void forward(wire::OutputStream stream);
  void latch(const Request& request, CUresult result);

  const Driver& driver_;
  SessionDevices& devices_;
  ServerLink link_;
  DeviceOutput* output_;
  const bool isResumed_;
  bool isRestored_ = false;
  Counters counters_;
  HandleMap handles_;
  Contexts contexts_;
  OpenCaptures captures_;
  Marks marks_;
  SynchronousCopies synchronousCopies_;
  const Sanitizer sanitizer_;

  uint64_t position_ = 0;
  CommandPlace frame_;
  Request current_;
  bool isStale_ = false;
  std::vector<std::byte> replyBody_;
  std::function<void()> land_ = [] {};
  bool hasEnded_ = false;
  End end_{"", true};
};

}  // namespace millpond::worker
