// SPDX-License-Identifier: Apache-2.0
#include "client/call/call.h"

#include "base/log.h"
#include "client/process/client.h"
#include "client/process/threads.h"
#include "client/session/restoration.h"
#include "client/state/capture_state.h"
#include "client/state/device_text.h"
#include "client/trace/trace.h"

namespace millpond::client {
namespace {

/// Destroys a default stream of a thread that ends.
void endStream(uint16_t context, uint64_t wire) {
  // A capture that another thread of the program has ended continues without this stream.
  if (CaptureState::isKnownCaptured(wire)) return;
  Call call("end of a thread", Call::Teardown{context});
  cmd::StreamDestroyV2 end{};
  const auto* stream = reinterpret_cast<const void*>(wire);
  if (call.entry() != CUDA_SUCCESS || call.destroy(HandleKind::kStream, stream, end.hStream) != CUDA_SUCCESS) return;
  call.post(end);
}

}  // namespace

Call::Call(const char* name, Needs needs) noexcept : name_(name) {
  entry_ = Client::check();
  if (entry_ != CUDA_SUCCESS) return;
  Client& client = Client::instance();
  session_ = &client.session();
  remote_ = &Remote::instance();
  caller_.thread = threadNumber();
  const Context* current = CurrentContext::get();
  if (current && !current->destroyed()) {
    caller_.context = current->wireContext();
    home_ = current->home();
  }
  if (HostFunctions::running()) {
    entry_ = CUDA_ERROR_NOT_PERMITTED;
  } else if (session_->lost()) {
    entry_ = static_cast<CUresult>(kSessionLost);
  } else if (needs == Needs::kNoContext) {
    origin_ = Origin::kApart;
    enter();
  } else if (needs == Needs::kNothing || (current && current->active())) {
    enter();
  } else if (current) {
    entry_ = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  } else {
    entry_ = CUDA_ERROR_INVALID_CONTEXT;
    if (needs == Needs::kAny) origin_ = Origin::kSought;
  }
  if (logs(LogLevel::Trace)) log(LogLevel::Trace, "[%u] %s", caller_.thread, name);
}

void Call::enter() noexcept {
  entry_ = pendingFailure();
  if (CaptureState::anyOpen() && entry_ == CUDA_SUCCESS) [[unlikely]]
    entry_ = CaptureState::check(name_, *session_, caller_.thread, caller_.context);
}

CUresult Call::adopt(uint16_t number) noexcept {
  if (origin_ != Origin::kSought) return entry_;
  const Context* context = contextOf(number);
  if (!context) return CUDA_SUCCESS;
  origin_ = Origin::kArgument;
  caller_.context = number;
  home_ = context->home();
  enter();
  return entry_;
}

Call::Call(const char* name, Teardown teardown) noexcept : name_(name) {
  entry_ = Client::check();
  if (entry_ != CUDA_SUCCESS) return;
  session_ = &Client::instance().session();
  remote_ = &Remote::instance();
  caller_ = {teardown.context, threadNumber()};
  home_ = teardown.context;
  if (session_->lost()) entry_ = static_cast<CUresult>(kSessionLost);
  if (logs(LogLevel::Trace)) log(LogLevel::Trace, "[%u] %s", caller_.thread, name);
}

void Call::collectFailure() noexcept {
  // The driver's messages about the failure are printed before the call returns it.
  DeviceText::instance().write();
  uint16_t number = 0;
  while (const int32_t failure = session_->takeFailure(&number)) {
    // Failures of contexts that have ended in the meantime are dropped.
    if (Context* failed = contextOf(number)) failed->fail(static_cast<CUresult>(failure));
  }
}

void Call::dropFailure() noexcept {
  collectFailure();
  if (Context* context = contextOf(caller_.context)) context->forgetFailure();
}

CUresult Call::pendingFailure() noexcept {
  if (session_->failure() != 0) [[unlikely]]
    collectFailure();
  Context* context = origin_ == Origin::kApart ? nullptr : contextOf(caller_.context);
  const CUresult failure = context ? context->takeFailure() : CUDA_SUCCESS;
  if (failure != CUDA_SUCCESS && !trace::isOff()) trace::notes().isEarlierFailure = true;
  return failure;
}

CUresult Call::stream(CUstream in, Flavour flavour, uint64_t& wire) noexcept {
  if (entry() != CUDA_SUCCESS) return entry_;
  if (!isDefaultStream(in)) return handle(HandleKind::kStream, in, wire);
  // Only the current context determines the meaning of a default stream.
  if (origin_ != Origin::kThread) return CUDA_ERROR_INVALID_CONTEXT;
  if (in == CU_STREAM_LEGACY || (!in && flavour != Flavour::kPerThread)) {
    wire = 0;
    namesLegacy_ = true;
    // A capture may forbid work in the legacy stream, and then this call itself must return that error.
    if (CaptureState::anyOpen()) [[unlikely]]
      waits_ = true;
    return CUDA_SUCCESS;
  }
  if (caller_.context == 0) return CUDA_ERROR_INVALID_CONTEXT;
  wire = ThreadStreams::get(caller_.context);
  if (wire != 0) return CUDA_SUCCESS;
  wire = remote_->handles.create(HandleKind::kStream, caller_.context);
  if (wire == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  ThreadStreams::set(caller_.context, wire, &endStream);
  cmd::StreamCreate create{};
  create.phStream = wire;
  return post(create);
}

uint16_t Call::streamContext(uint64_t stream) const noexcept {
  const HandleTable::Slot* slot = stream ? remote_->handles.find(stream) : nullptr;
  return slot ? slot->context : caller_.context;
}

CUresult Call::handle(HandleKind kind, const void* in, uint64_t& wire) noexcept {
  const HandleTable::Slot* slot = remote_->handles.find(kind, in);
  if (!slot) return CUDA_ERROR_INVALID_HANDLE;
  wire = reinterpret_cast<uint64_t>(in);
  return origin_ == Origin::kSought ? adopt(slot->context) : CUDA_SUCCESS;
}

CUresult Call::functionOrKernel(const void* in, uint64_t& wire) noexcept {
  const auto kind = handle::kind(reinterpret_cast<uint64_t>(in));
  return handle(kind == HandleKind::kKernel ? kind : HandleKind::kFunction, in, wire);
}

CUresult Call::device(CUdevice in, int32_t& wire) noexcept {
  const Context* context = Client::instance().contexts().primary(in);
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  wire = context->sessionDevice();
  return CUDA_SUCCESS;
}

uint64_t Call::create(HandleKind kind, void** out, HandleTraits traits) noexcept {
  const uint16_t owner = kind == HandleKind::kStream ? caller_.context : home_;
  const uint64_t wire = remote_->handles.create(kind, owner, traits);
  if (wire == 0) {
    log(LogLevel::Error, "over %u streams, events, modules and functions at once are not supported",
        handle::kMaxHandles);
    entry_ = CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = reinterpret_cast<void*>(wire);
  return wire;
}

CUresult Call::destroy(HandleKind kind, const void* in, uint64_t& wire) noexcept {
  if (const HandleTable::Slot* slot = origin_ == Origin::kSought ? remote_->handles.find(kind, in) : nullptr)
    if (const CUresult r = adopt(slot->context); r != CUDA_SUCCESS) return r;
  claimed_ = remote_->handles.claim(kind, in);
  if (claimed_.empty()) return CUDA_ERROR_INVALID_HANDLE;
  wire = reinterpret_cast<uint64_t>(in);
  if (kind == HandleKind::kStream && CaptureState::anyOpen()) [[unlikely]]
    CaptureState::ended(wire);
  // A parked session has no worker that could receive the command later.
  if (session_->parks() && session_->isParked()) [[unlikely]]
    waits_ = true;
  return CUDA_SUCCESS;
}

bool Call::endsWhileParked() noexcept {
  if (claimed_.empty()) return false;
  std::vector<Subject> subjects;
  for (const uint64_t wire : claimed_) subjects.push_back({Subject::Kind::kHandle, wire});
  return endWhileParked(*session_, subjects);
}

CUresult Call::sent(bool alive) noexcept {
  if (!trace::isOff()) [[unlikely]]
    trace::notes().hasWorked = true;
  if (!claimed_.empty()) {
    for (const uint64_t wire : claimed_) {
      remote_->answers.forget(wire);
      remote_->images.drop(wire);
    }
    remote_->handles.recycle(claimed_);
    claimed_.clear();
  }
  return alive ? CUDA_SUCCESS : static_cast<CUresult>(kSessionLost);
}

CUresult Call::settle(int32_t result) noexcept {
  if (!trace::isOff()) [[unlikely]]
    ++trace::notes().waits;
  DeviceText::instance().write();
  sent(true);
  if (result == 0) return pendingFailure();
  const auto failure = static_cast<CUresult>(result);
  if (isSticky(failure))
    if (Context* failed = contextOf(caller_.context)) failed->fail(failure);
  return failure;
}

CUresult Call::isCaptured(uint64_t stream, bool& captured) noexcept {
  captured = false;
  if (stream == 0 || !CaptureState::anyOpen()) return CUDA_SUCCESS;
  captured = CaptureState::isKnownCaptured(stream);
  if (captured) return CUDA_SUCCESS;
  cmd::CaptureInfo ask{};
  ask.stream = stream;
  cmd::CaptureInfoReply reply{};
  if (const CUresult r = wait(ask, reply); r != CUDA_SUCCESS) return r;
  captured = reply.status != CU_STREAM_CAPTURE_STATUS_NONE;
  if (captured) CaptureState::learnCaptured(stream);
  return CUDA_SUCCESS;
}

bool Call::isDoneNow(uint64_t stream) noexcept {
  bool captured = false;
  return isCaptured(stream, captured) != CUDA_SUCCESS || !captured;
}

CUresult Call::reachCommand(const cmd::CommandLayout& layout, std::span<const std::byte> fixed,
                            std::span<const std::span<const std::byte>> tails) noexcept {
  return remote_->mapped.reachCommand(CallSink(*this), layout, fixed, tails);
}

CUresult Call::admit(uint64_t stream, size_t bytes) noexcept {
  return remote_->queues.admit(CallSink(*this), stream, bytes);
}

void Call::reportLandings(uint64_t over) noexcept { post(cmd::LandingsOver{.landed = over}); }

bool Call::isOnlyContext() noexcept {
  size_t contexts = 0;
  Client::instance().contexts().each([&](const Context&) { ++contexts; });
  return contexts == 1;
}

std::optional<uint64_t> Call::momentOfAll() noexcept {
  return isOnlyContext() ? remote_->mirror.moment() : std::nullopt;
}

CUresult Call::awaitWork(uint64_t stream) noexcept {
  // Waiting for a stream under capture is an error, and its work is recorded, not executed.
  if (CaptureState::anyOpen()) return CUDA_SUCCESS;
  cmd::StreamSync sync{};
  sync.stream = stream;
  cmd::StreamSyncReply reply{};
  return wait(sync, reply);
}

CUresult Call::check() noexcept {
  cmd::MarkerReply reply{};
  return wait(cmd::Marker{}, reply);
}

bool Call::awaitTaken() noexcept {
  Session::Answer answer;
  session_->wait(
      static_cast<uint16_t>(cmd::Marker::kOp), caller_, cmd::Marker::kFixedBytes, [](std::byte*) {}, answer);
  return !session_->lost();
}

CUresult CallSink::post(const cmd::MemFree& command) const noexcept { return call_.post(command); }
CUresult CallSink::wait(const cmd::MemAlloc& command, cmd::MemAllocReply& reply) const noexcept {
  return call_.wait(command, reply);
}
CUresult CallSink::wait(const cmd::HostAlloc& command, cmd::HostAllocReply& reply) const noexcept {
  return call_.wait(command, reply);
}
CUresult CallSink::wait(const cmd::HostFree& command, cmd::HostFreeReply& reply) const noexcept {
  return call_.wait(command, reply);
}
CUresult CallSink::wait(const cmd::HostMirror& command, cmd::HostMirrorReply& reply) const noexcept {
  return call_.wait(command, reply);
}
CUresult CallSink::wait(const cmd::LandingAwait& command, cmd::LandingAwaitReply& reply) const noexcept {
  return call_.wait(command, reply);
}
CUresult CallSink::wait(const cmd::StreamQuery& command, cmd::StreamQueryReply& reply) const noexcept {
  return call_.wait(command, reply);
}
CUresult CallSink::wait(const cmd::StreamSync& command, cmd::StreamSyncReply& reply) const noexcept {
  return call_.wait(command, reply);
}

}  // namespace millpond::client
