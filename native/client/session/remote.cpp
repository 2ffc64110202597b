// SPDX-License-Identifier: Apache-2.0
#include "client/session/remote.h"

#include <pthread.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "client/call/call.h"
#include "client/session/client.h"
#include "client/session/restoration.h"
#include "client/state/capture_state.h"
#include "client/state/core_dumps.h"

namespace millpond::client {
namespace {

std::array<std::atomic<uint32_t>, wire::kContextLimit>& generations() {
  static auto& all = *new std::array<std::atomic<uint32_t>, wire::kContextLimit>();
  return all;
}

struct OwnStream {
  uint64_t wire = 0;
  uint32_t generation = 0;
};

thread_local std::vector<OwnStream>* ownStreams = nullptr;  ///< by number of the context

void endStream(uint16_t context, uint64_t wire) {
  // A capture that another thread of the program ends continues without this one.
  if (CaptureState::isKnownCaptured(wire)) return;
  Call call("end of a thread", Call::Teardown{context});
  cmd::StreamDestroyV2 end{};
  const auto* stream = reinterpret_cast<const void*>(wire);
  if (call.entry() != CUDA_SUCCESS || call.destroy(HandleKind::kStream, stream, end.hStream) != CUDA_SUCCESS) return;
  call.post(end);
}

/// Runs on an ending thread that had streams of its own. Its later calls may create others.
void endStreams(void* of) {
  const std::unique_ptr<std::vector<OwnStream>> streams(static_cast<std::vector<OwnStream>*>(of));
  ownStreams = nullptr;
  for (size_t context = 0; context < streams->size(); ++context) {
    const OwnStream& own = (*streams)[context];
    if (own.wire != 0 && own.generation == generations()[context].load(std::memory_order_relaxed))
      endStream(static_cast<uint16_t>(context), own.wire);
  }
}

/// None where the system has no key left: then the streams stay to the process's end.
std::optional<pthread_key_t> endOfThread() {
  static const std::optional<pthread_key_t> key = []() -> std::optional<pthread_key_t> {
    pthread_key_t made{};
    if (::pthread_key_create(&made, &endStreams) != 0) return std::nullopt;
    return made;
  }();
  return key;
}

}  // namespace

Remote& Remote::instance() noexcept {
  static Remote& remote = []() -> Remote& {
    auto& made = *new Remote();
    const auto isSet = [](const char* name) {
      const char* value = std::getenv(name);
      return value && std::strcmp(value, "1") == 0;
    };
    made.synchronous = isSet("MILLPOND_SYNC");
    made.blocking = made.synchronous || isSet("CUDA_LAUNCH_BLOCKING");
    return made;
  }();
  return remote;
}

Context* contextOf(uint16_t wireContext) noexcept { return Client::instance().contexts().byNumber(wireContext); }

uint32_t threadNumber() noexcept {
  static std::atomic<uint32_t> last{0};
  thread_local uint32_t mine = 0;
  if (mine == 0) mine = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return mine;
}

uint64_t ThreadStreams::get(uint16_t context) noexcept {
  if (!ownStreams || context >= ownStreams->size()) return 0;
  const OwnStream& own = (*ownStreams)[context];
  return own.generation == generations()[context].load(std::memory_order_relaxed) ? own.wire : 0;
}

void ThreadStreams::set(uint16_t context, uint64_t wire) noexcept {
  if (context >= wire::kContextLimit) return;
  if (!ownStreams) {
    ownStreams = std::make_unique<std::vector<OwnStream>>().release();
    if (const auto key = endOfThread()) ::pthread_setspecific(*key, ownStreams);
  }
  if (context >= ownStreams->size()) ownStreams->resize(context + size_t{1});
  (*ownStreams)[context] = {wire, generations()[context].load(std::memory_order_relaxed)};
}

void ThreadStreams::forget(uint16_t context) noexcept {
  if (context < wire::kContextLimit) generations()[context].fetch_add(1, std::memory_order_relaxed);
}

void endContext(const Context& context) {
  const uint16_t wireContext = context.wireContext();
  Call call("end of a context", Call::Teardown{wireContext});
  Remote& remote = Remote::instance();
  ThreadStreams::forget(wireContext);
  remote.answers.forgetContext(wireContext);
  remote.handles.forgetAllowed(wireContext);
  CoreDumps::instance().forget(wireContext);
  std::vector<uint64_t> allocated = remote.memory.dropDevice(wireContext);
  {
    const std::lock_guard lock(remote.opened.mutex);
    remote.opened.forget(wireContext);
  }
  if (Mirror::exists()) {
    const std::vector<CUdeviceptr> managed = remote.managedHeap.removeOf(wireContext);
    allocated.insert(allocated.end(), managed.begin(), managed.end());
    remote.managedVariables.forget(wireContext);
    Mirror::instance().forget(wireContext);
  }
  for (const uint64_t address : allocated) {
    cmd::MemFree wire{};
    wire.address = address;
    wire.isLeft = 1;
    call.post(wire);
  }
  const auto claimed = remote.handles.claimAll(wireContext);
  // A parked session has nothing at a worker that would have to end, and no call must wait for a GPU to say so.
  std::vector<Subject> ended{{Subject::Kind::kContext, wireContext}};
  for (const uint64_t each : claimed) ended.push_back({Subject::Kind::kHandle, each});
  if (endWhileParked(call.session(), ended)) {
    for (const uint64_t each : claimed) remote.images.drop(each);
    remote.handles.recycle(claimed);
    return call.dropFailure();
  }
  for (const uint64_t each : claimed) {
    switch (handle::kind(each)) {
      case HandleKind::kStream: {
        cmd::StreamDestroyV2 wire{};
        wire.hStream = each;
        call.post(wire);
        break;
      }
      case HandleKind::kEvent: {
        cmd::EventDestroyV2 wire{};
        wire.hEvent = each;
        call.post(wire);
        break;
      }
      case HandleKind::kModule: {
        cmd::ModuleUnload wire{};
        wire.handle = each;
        call.post(wire);
        break;
      }
      case HandleKind::kArray:
      case HandleKind::kMipmappedArray: {
        remote.arrays.drop(each);
        cmd::ArrayDestroy wire{};
        wire.handle = each;
        call.post(wire);
        break;
      }
      case HandleKind::kTextureReference: {
        if (remote.handles.wasChild(each)) break;
        cmd::TextureReferenceDestroy wire{};
        wire.handle = each;
        call.post(wire);
        break;
      }
      default: break;  // functions and references end with their module
    }
  }
  for (const uint64_t each : claimed) remote.images.drop(each);
  remote.handles.recycle(claimed);
  if (context.kind() == Context::Kind::kPrimary) {
    cmd::ContextResetReply reply{};
    call.wait(cmd::ContextReset{}, reply);
    call.dropFailure();
  } else {
    call.useContext(0);  // no command may be in a context that is being destroyed
    cmd::ContextDestroy wire{};
    wire.context = wireContext;
    call.post(wire);
  }
}

}  // namespace millpond::client
