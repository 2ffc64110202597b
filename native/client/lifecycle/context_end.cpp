// SPDX-License-Identifier: Apache-2.0
#include "client/lifecycle/context_end.h"

#include <vector>

#include "client/call/call.h"
#include "client/process/threads.h"
#include "client/session/remote.h"
#include "client/session/restoration.h"
#include "client/state/core_dumps.h"

namespace millpond::client {

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
    remote.mirror.forget(wireContext);
  }
  for (const uint64_t address : allocated) {
    cmd::MemFree wire{};
    wire.address = address;
    wire.isLeft = 1;
    call.post(wire);
  }
  const auto claimed = remote.handles.claimAll(wireContext);
  // A parked session has nothing at a worker that would have to end, and the call must not wait for a GPU just for
  // that.
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
    call.useContext(0);  // no command may be sent in a context that is being destroyed
    cmd::ContextDestroy wire{};
    wire.context = wireContext;
    call.post(wire);
  }
}

}  // namespace millpond::client
