// SPDX-License-Identifier: Apache-2.0
#include "worker/profile/profiler.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/log.h"

namespace millpond::worker {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
/// More than CUPTI uses at a time; beyond it CUPTI drops records and reports how many.
constexpr int kMostBuffers = 64;
constexpr auto kFlushInterval = std::chrono::milliseconds(100);

constexpr cupti::Kind kKinds[] = {cupti::Kind::kConcurrentKernel, cupti::Kind::kCopy, cupti::Kind::kFill,
                                  cupti::Kind::kPeerCopy};

constexpr const char* kLibraries[] = {
    "libcupti.so.13",
    "libcupti.so.12",
    "libcupti.so",
    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
    "/usr/local/cuda/lib64/libcupti.so",
};

std::atomic<int> buffers{0};

/// The command that a thread executes.
struct CurrentCommand {
  bool isThere = false;
  uint32_t thread = 0;
  uint64_t position = 0;
};
thread_local constinit CurrentCommand current;

template <typename F>
bool find(void* library, const char* name, F& into) {
  into = reinterpret_cast<F>(::dlsym(library, name));
  return into != nullptr;
}

bool isCupti(void* library) { return ::dlsym(library, "cuptiActivityRegisterCallbacks") != nullptr; }

Result<void*> open(const std::string& driver, const std::string& path) {
  if (void* own = ::dlopen(driver.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD); own && isCupti(own)) return own;
  if (!path.empty()) {
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return Error{std::string("CUPTI cannot be loaded: ") + ::dlerror()};
    if (!isCupti(library)) return Error{path + " is not CUPTI"};
    return library;
  }
  for (const char* each : kLibraries)
    if (void* library = ::dlopen(each, RTLD_NOW | RTLD_LOCAL); library && isCupti(library)) return library;
  return Error{
      "the node has no CUPTI (libcupti.so). Install NVIDIA's cuda-cupti there, or name the library in MILLPOND_CUPTI of its "
      "agent"};
}

}  // namespace

Profiler* Profiler::instance_ = nullptr;

Result<Profiler*> Profiler::load(const std::string& driver, const std::string& library) {
  if (instance_) return instance_;
  if (driver.empty()) return Error{"the driver library of this session is not known"};
  auto opened = open(driver, library);
  if (!opened) return opened.error();
  // Never deleted: CUPTI's threads use it until the process ends.
  std::unique_ptr<Profiler> made(new Profiler());
  if (auto found = made->find(*opened); !found) return found.error();
  instance_ = made.get();
  if (const auto rc = made->registerCallbacks_(&Profiler::requested, &Profiler::completed); rc != cupti::kSuccess) {
    // CUPTI may already have called the functions: they find no destination.
    instance_ = nullptr;
    return Error{"CUPTI refused to record activities: " + std::to_string(rc)};
  }
  std::thread([profiler = instance_] { profiler->flushNowAndThen(); }).detach();
  return made.release();
}

Status Profiler::find(void* library) {
  if (!millpond::worker::find(library, "cuptiActivityRegisterCallbacks", registerCallbacks_) ||
      !millpond::worker::find(library, "cuptiActivityEnable", enable_) ||
      !millpond::worker::find(library, "cuptiActivityDisable", disable_) ||
      !millpond::worker::find(library, "cuptiActivityGetNextRecord", nextRecord_) ||
      !millpond::worker::find(library, "cuptiActivityFlushAll", flushAll_))
    return Error{"this CUPTI is too old"};
  millpond::worker::find(library, "cuptiActivityGetNumDroppedRecords", droppedRecords_);
  millpond::worker::find(library, "cuptiSubscribe", subscribe_);
  millpond::worker::find(library, "cuptiEnableCallback", enableCallback_);
  return Done{};
}

Status Profiler::begin(bool commands) {
  if (!isOn_)
    for (const auto kind : kKinds)
      if (const auto rc = enable_(kind); rc != cupti::kSuccess) {
        disableKinds();
        return Error{"CUPTI refused to record activities of the kind " + std::to_string(static_cast<uint32_t>(kind)) +
                     ": " + std::to_string(rc)};
      }
  isOn_ = true;
  if (commands && !notesCommands_) enableCommands(true);
  return Done{};
}

void Profiler::end() {
  if (!isOn_) return;
  isOn_ = false;
  if (notesCommands_) enableCommands(false);
  flush();
  disableKinds();
}

void Profiler::disableKinds() {
  for (const auto kind : kKinds) disable_(kind);
}

void Profiler::enableCommands(bool areWanted) {
  notesCommands_ = false;
  if (!subscribe_ || !enableCallback_) return;
  if (!subscriber_)
    if (const auto rc = subscribe_(&subscriber_, &Profiler::called, this); rc != cupti::kSuccess) {
      // The records are valid without them; only the link to the program's calls is missing.
      subscriber_ = nullptr;
      log(LogLevel::Warn, "CUPTI refused to name the calls of activities: %d", rc);
      return;
    }
  int enabled = 0;
  // Earlier releases of CUPTI lack the last ones.
  for (const uint32_t call : cupti::kCallsWithWork)
    if (enableCallback_(areWanted ? 1 : 0, subscriber_, cupti::kDriverCalls, call) == cupti::kSuccess) ++enabled;
  notesCommands_ = areWanted && enabled > 0;
}

Profiler::Command::Command(uint32_t thread, uint64_t position) { current = {true, thread, position}; }
Profiler::Command::~Command() { current = {}; }

void Profiler::called(void* self, uint32_t, uint32_t, const cupti::CallbackData* told) {
  if (told && told->site == cupti::Site::kEnter && current.isThere)
    static_cast<Profiler*>(self)->lines_.addCommand(told->correlation, current.thread, current.position);
}

void Profiler::flush() { flushAll_(0); }

void Profiler::flushNowAndThen() {
  for (;;) {
    std::this_thread::sleep_for(kFlushInterval);
    flush();
  }
}

void Profiler::requested(uint8_t** buffer, size_t* bytes, size_t* mostRecords) {
  *buffer = nullptr;
  *bytes = 0;
  *mostRecords = 0;
  if (buffers.fetch_add(1) >= kMostBuffers) {
    buffers.fetch_sub(1);
    return;
  }
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(alignof(std::max_align_t), kBufferBytes));
  if (*buffer)
    *bytes = kBufferBytes;
  else
    buffers.fetch_sub(1);
}

void Profiler::completed(void* context, uint32_t stream, uint8_t* buffer, size_t, size_t validBytes) {
  if (Profiler* profiler = instance_) {
    profiler->read(buffer, validBytes);
    size_t dropped = 0;
    if (profiler->droppedRecords_ && profiler->droppedRecords_(context, stream, &dropped) == cupti::kSuccess &&
        dropped > 0)
      profiler->lines_.lose(dropped);
  }
  if (buffer) {
    std::free(buffer);
    buffers.fetch_sub(1);
  }
}

void Profiler::read(uint8_t* buffer, size_t validBytes) {
  uint8_t* record = nullptr;
  while (nextRecord_(buffer, validBytes, &record) == cupti::kSuccess && record) {
    cupti::Kind kind{};
    std::memcpy(&kind, record, sizeof kind);
    const auto add = [&]<typename R>(R each) {
      std::memcpy(static_cast<void*>(&each), record, sizeof each);
      // A record of unfinished work has no times.
      if (each.start != 0 && each.end >= each.start) lines_.add(each);
    };
    switch (kind) {
      case cupti::Kind::kConcurrentKernel: add(cupti::KernelRecord{}); break;
      case cupti::Kind::kCopy: add(cupti::CopyRecord{}); break;
      case cupti::Kind::kPeerCopy: add(cupti::PeerCopyRecord{}); break;
      case cupti::Kind::kFill: add(cupti::FillRecord{}); break;
    }
  }
}

}  // namespace millpond::worker
