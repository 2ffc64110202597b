// SPDX-License-Identifier: Apache-2.0
#include "client/memory/mirror/mirror_link.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "client/process/client.h"
#include "client/process/threads.h"
#include "client/state/capture_state.h"
#include "client/state/handle_table.h"
#include "protocol/gen/commands.h"

namespace millpond::client {
namespace {

constexpr size_t kMostOrdered = 4096;

Session& session() { return Client::instance().session(); }

template <typename C>
void post(uint16_t context, const C& command) {
  session().post(static_cast<uint16_t>(C::kOp), {context, threadNumber()}, cmd::encodedSize<C>(),
                 [&](std::byte* place) { cmd::encode(place, command); });
}

template <typename C>
int32_t wait(uint16_t context, const C& command, Session::Answer& answer) {
  return session().wait(
      static_cast<uint16_t>(C::kOp), {context, threadNumber()}, cmd::encodedSize<C>(),
      [&](std::byte* place) { cmd::encode(place, command); }, answer);
}

}  // namespace

MirrorLink::Side* MirrorLink::side(uint16_t context) {
  Side& side = sides_[context];
  if (side.stream != 0 || side.isFailed) return side.isFailed ? nullptr : &side;
  side.stream = handles_.create(HandleKind::kStream, context);
  side.event = handles_.create(HandleKind::kEvent, context);
  if (side.stream == 0 || side.event == 0) {
    side.isFailed = true;
    log(LogLevel::Error, "over %u streams, events, modules and functions at once are not supported",
        handle::kMaxHandles);
    return nullptr;
  }
  cmd::StreamCreate stream{};
  stream.phStream = side.stream;
  stream.Flags = CU_STREAM_NON_BLOCKING;
  post(context, stream);
  cmd::EventCreate event{};
  event.phEvent = side.event;
  event.Flags = CU_EVENT_DISABLE_TIMING;
  post(context, event);
  return &side;
}

void MirrorLink::push(uint16_t context, uint64_t address, std::span<const std::byte> bytes) {
  Side* to = side(context);
  if (!to) return;
  to->isOpen = true;
  cmd::CopyToDevice wire{};
  wire.address = address;
  wire.stream = to->stream;
  wire.total = bytes.size();
  for (size_t at = 0; at < bytes.size(); at += wire::kChunkBytes) {
    const auto piece = bytes.subspan(at, std::min(wire::kChunkBytes, bytes.size() - at));
    wire.offset = at;
    wire.setTailBytes({static_cast<uint32_t>(piece.size())});
    session().postWithData(
        static_cast<uint16_t>(cmd::CopyToDevice::kOp), {context, threadNumber()}, cmd::CopyToDevice::kFixedBytes,
        [&](std::byte* place) { std::memcpy(place, &wire, cmd::CopyToDevice::kFixedBytes); }, piece);
  }
}

void MirrorLink::fill(uint16_t context, uint64_t address, std::span<const std::byte> bytes) {
  cmd::HostContents wire{};
  for (size_t at = 0; at < bytes.size(); at += wire::kChunkBytes) {
    const auto piece = bytes.subspan(at, std::min(wire::kChunkBytes, bytes.size() - at));
    wire.address = address + at;
    wire.setTailBytes({static_cast<uint32_t>(piece.size())});
    session().postWithData(
        static_cast<uint16_t>(cmd::HostContents::kOp), {context, threadNumber()}, cmd::HostContents::kFixedBytes,
        [&](std::byte* place) { std::memcpy(place, &wire, cmd::HostContents::kFixedBytes); }, piece);
  }
}

void MirrorLink::clear(uint16_t context, uint64_t address, uint64_t bytes) {
  Side* to = side(context);
  if (!to) return;
  to->isOpen = true;
  cmd::MemsetD8Async wire{};
  wire.dstDevice = address;
  wire.N = bytes;
  wire.hStream = to->stream;
  post(context, wire);
}

void MirrorLink::order(uint16_t context, uint64_t stream) {
  for (auto& [number, side] : sides_) {
    if (!side.isOpen) continue;
    side.isOpen = false;
    side.pushes = ++pushes_;
    cmd::EventRecord record{};
    record.hEvent = side.event;
    record.hStream = side.stream;
    post(number, record);
  }
  if (pushes_ == 0) return;
  // One wait more than needed does no harm.
  if (ordered_.size() >= kMostOrdered) ordered_.clear();
  uint64_t& seen = ordered_[stream ? stream : context];
  if (seen == pushes_) return;
  for (const auto& [number, side] : sides_) {
    if (side.pushes <= seen) continue;
    cmd::StreamWaitEvent behind{};
    behind.hStream = stream;
    behind.hEvent = side.event;
    post(context, behind);
  }
  seen = pushes_;
}

void MirrorLink::awaitPushed() {
  for (const auto& [number, side] : sides_) {
    if (side.stream == 0) continue;
    cmd::StreamSync sync{};
    sync.stream = side.stream;
    Session::Answer answer;
    wait(number, sync, answer);
  }
}

int32_t MirrorLink::fetch(uint16_t context, uint64_t address, std::span<std::byte> to) {
  Side* from = side(context);
  if (!from) return CUDA_ERROR_OUT_OF_MEMORY;
  cmd::CopyFromDevice wire{};
  wire.address = address;
  wire.bytes = to.size();
  wire.stream = from->stream;
  cmd::CopyFromDeviceReply reply{};
  Session::Answer answer;
  answer.body = std::as_writable_bytes(std::span(&reply, 1));
  answer.data = to;
  const int32_t result = wait(context, wire, answer);
  return result != 0 || answer.dataBytes == to.size() ? result : int32_t{CUDA_ERROR_UNKNOWN};
}

std::vector<uint64_t> MirrorLink::streams() const {
  std::vector<uint64_t> all;
  for (const auto& [stream, seen] : ordered_)
    if (stream >= wire::kContextLimit) all.push_back(stream);
  return all;
}

void MirrorLink::settle(const std::vector<uint64_t>& streams) const {
  bool isCapturing = false;
  Client::instance().contexts().each([&](const Context& context) {
    Session::Answer answer;
    const int32_t result = wait(context.wireContext(), cmd::ContextSync{}, answer);
    isCapturing = isCapturing || result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    // The program's waits do not cover it.
    if (isSticky(static_cast<CUresult>(result)))
      if (Context* failed = contextOf(context.wireContext())) failed->fail(static_cast<CUresult>(result));
  });
  if (!isCapturing) return;
  for (const uint64_t stream : streams) {
    const HandleTable::Slot* slot = handles_.find(stream);
    if (!slot || CaptureState::isKnownCaptured(stream)) continue;
    cmd::StreamSync sync{};
    sync.stream = stream;
    Session::Answer answer;
    wait(slot->context, sync, answer);
  }
}

void MirrorLink::forget(uint16_t context) {
  sides_.erase(context);
  ordered_.erase(context);
}

}  // namespace millpond::client
