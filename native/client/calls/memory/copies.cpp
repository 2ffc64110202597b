// SPDX-License-Identifier: Apache-2.0
// Copies between this process's memory and devices.
#include "client/calls/memory/copies.h"

#include <algorithm>
#include <ctime>

#include "client/addresses/address_guard.h"
#include "client/addresses/own_address.h"
#include "client/call/preconditions.h"
#include "client/calls/graphs/captured_copy.h"
#include "client/gen/api.h"
#include "client/session/callback_thread.h"
#include "client/state/capture_state.h"
#include "protocol/completion.h"

namespace millpond::client {
namespace {

/// Bytes in one frame besides the data: the rest of wire::kMaxFrameBytes is for data.
constexpr size_t kPiece = wire::kChunkBytes;
/// From this size on, keeping a copy of the bytes for a possible resend costs more than waiting until the worker has
/// them.
constexpr size_t kLentBytes = size_t{512} << 10;
/// The most bytes of one landing, and of all pending landings of copies: the worker holds these in pinned memory.
constexpr size_t kLandingBytes = size_t{64} << 20;
constexpr size_t kMostLandingBytes = size_t{256} << 20;
/// How long a copy from pinned memory waits for pending functions of the program before the memory is mirrored: most
/// end soon, and accesses to mirrored memory are expensive.
constexpr int64_t kPatienceNs = 50'000'000;
constexpr int64_t kShortestNapNs = 20'000;
/// On a card, a synchronous copy of more than this many bytes from pageable memory first waits for its stream.
constexpr size_t kLargestUnordered = size_t{64} << 10;
constexpr int64_t kLongestNapNs = 500'000;

}  // namespace

CUresult awaitStream(Call& call, uint64_t stream) {
  cmd::StreamSync sync{};
  sync.stream = stream;
  cmd::StreamSyncReply reply{};
  return call.wait(sync, reply);
}

namespace {

/// The memory is accessible to the worker. When a waiting call returns, memory that the program can access directly is
/// complete, and the program may change the source.
CUresult within(Call& call, uint64_t to, uint64_t from, size_t bytes, uint64_t stream, Wait wait) {
  cmd::MemcpyDtoDAsyncV2 wire{};
  wire.hStream = stream;
  for (size_t at = 0; at < bytes; at += wire.ByteCount) {
    wire.dstDevice = to + at;
    wire.srcDevice = from + at;
    wire.ByteCount = bytes - at;
    if (Mirror::exists())
      for (const uint64_t each : {to + at, from + at})
        wire.ByteCount = call.remote().mapped.inOne(each, wire.ByteCount);
    if (const CUresult r = call.post(wire); r != CUDA_SUCCESS) return r;
  }
  const bool touchesHost = wait == Wait::kYes && (isSeenByHost(call, to) || isSeenByHost(call, from));
  return touchesHost ? awaitStream(call, stream) : CUDA_SUCCESS;
}

/// Also device memory that the program declares as host memory: with unified addressing, the address decides, as on a
/// card.
bool isOfWorker(const std::optional<MemoryRun>& run) { return run && run->isOfWorker(); }

CUresult shared(Call& call, uint64_t device, uint64_t host, size_t bytes, uint64_t stream, uint32_t direction,
                Wait wait) {
  cmd::CopyHostShared wire{};
  wire.deviceAddress = device;
  wire.hostAddress = host;
  wire.bytes = bytes;
  wire.stream = stream;
  wire.direction = direction;
  if (wait == Wait::kNo) return call.post(wire);
  Session::Answer answer;
  return call.waitFor(wire, answer);
}

/// A copy in a graph: this process's memory is read, or written, with each launch.
CUresult capture(Call& call, uint64_t device, uint64_t host, size_t bytes, uint64_t stream, uint32_t direction) {
  if (direction == 2)
    call.remote().graphs.allowLanding(host, bytes);
  else
    call.remote().graphs.allowReading(host, bytes);
  cmd::CaptureCopy wire{};
  wire.stream = stream;
  wire.deviceAddress = device;
  wire.hostAddress = host;
  wire.bytes = bytes;
  wire.direction = direction;
  return call.post(wire);
}

}  // namespace

namespace {

/// From the current contents of this process's memory. `isDone`: set if the copy is done before any later command, and
/// nothing before it is under way.
CUresult fromHere(Call& call, CUdeviceptr to, const void* from, size_t bytes, uint64_t stream, Wait wait,
                  bool* isDone = nullptr) {
  call.session().expectBulk(bytes);
  const auto run = call.remote().memory.find(to);
  cmd::CopyToDevice wire{};
  wire.address = to;
  wire.stream = stream;
  wire.total = bytes;
  if (wait == Wait::kYes) wire.completion = cmd::kBeforeOtherStreams;
  const auto* data = static_cast<const std::byte*>(from);
  const bool lends = bytes >= kLentBytes && call.session().graceSeconds() != 0;
  const auto whose = lends ? Session::Data::kLent : Session::Data::kCallers;
  std::optional<Handover::Use> lent;
  std::optional<DataScans::Scan> scan;
  if (lends) {
    lent.emplace(call.remote().mapped.handover(), call.remote().memory, from, bytes);
    scan.emplace(call.remote().scans, to, std::span(data, bytes), kPiece);
  }
  for (size_t at = 0; at < bytes; at += kPiece) {
    wire.offset = at;
    const std::span<const std::byte> piece(data + at, std::min(kPiece, bytes - at));
    if (!lends)
      if (const CUresult named = call.remote().mapped.reachNamed(CallSink(call), to + at, piece); named != CUDA_SUCCESS)
        return named;
    const CUresult r = call.postData(wire, piece, whose, bytes <= kPiece ? isDone : nullptr);
    if (r != CUDA_SUCCESS) return r;
  }
  if (lends) {
    if (!call.awaitTaken()) return static_cast<CUresult>(kSessionLost);
    const std::vector<uint64_t> named = scan->finish();
    lent.reset();
    // Kernels that may follow those addresses come after this call.
    if (const CUresult r = call.remote().mapped.reachEach(CallSink(call), named); r != CUDA_SUCCESS) return r;
  }
  if (call.remote().blocking) return call.awaitWork(stream);
  if (run && wait == Wait::kYes && isSeenByHost(call, to)) return awaitStream(call, stream);
  // The bytes have been sent, so the caller's memory is no longer needed. Only for an address that this process did not
  // allocate is it unknown whether the driver accepts it.
  return run || wait == Wait::kNo ? CUDA_SUCCESS : call.check();
}

/// From memory with pending landings: these bytes come from the worker's copy, and the rest from here.
CUresult fromLandings(Call& call, CUdeviceptr to, uint64_t from, size_t bytes, uint64_t stream, Wait wait) {
  Landings& landings = call.remote().landings;
  const Landings::Parts parts(landings, from, bytes);
  for (const Landings::Part& part : parts) {
    const CUdeviceptr address = to + (part.address - from);
    if (part.landing != 0 && part.isWhole) {
      const cmd::CopyFromLanding wire{.address = address,
                                      .bytes = part.bytes,
                                      .stream = stream,
                                      .hostAddress = part.address,
                                      .landing = part.landing,
                                      .landed = landings.over()};
      if (const CUresult r = call.post(wire); r != CUDA_SUCCESS) return r;
      continue;
    }
    if (part.landing != 0)
      if (const CUresult r = landings.await(CallSink(call), part.landing); r != CUDA_SUCCESS) return r;
    const CUresult r = fromHere(call, address, reinterpret_cast<const void*>(part.address), part.bytes, stream, wait);
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

/// Whether the program may still write to pinned memory before the stream reaches the copy, because streams wait for
/// words. A copy of landing bytes uses the landed bytes.
bool isReadLater(Call& call, const MemoryRun& source) {
  if (!call.remote().mirror.mayStreamWait()) return false;
  const Landings::Parts parts(call.remote().landings, source.address, source.bytes);
  return std::none_of(parts.begin(), parts.end(), [](const Landings::Part& part) { return part.landing != 0; });
}

/// Whether pending functions of the program may write there before the stream reaches the copy. Functions given before
/// the copy whose bytes land in the source have finished when these bytes have landed.
bool mayBeWritten(Call& call, uint64_t from, size_t bytes, uint64_t stream) {
  if (!CallbackThread::busy(call.streamContext(stream))) return false;
  const uint64_t given = HostFunctions::given();
  const Landings::Parts parts(call.remote().landings, from, bytes);
  return std::any_of(parts.begin(), parts.end(),
                     [&](const Landings::Part& part) { return part.landing == 0 || part.begun != given; });
}

/// Lets the worker access memory of this process that a call uses as device memory.
CUresult reachDevice(Call& call, CUdeviceptr address) {
  if (!call.remote().memory.mayBeLocal(address)) [[likely]]
    return CUDA_SUCCESS;
  const auto run = call.remote().memory.find(address);
  return run ? call.remote().mapped.reach(CallSink(call), *run) : CUDA_SUCCESS;
}

/// A copy from memory that is mirrored for it.
CUresult throughMirror(Call& call, CUdeviceptr to, const MemoryRun& source, uint64_t from, size_t bytes,
                       uint64_t stream, Wait wait) {
  if (const CUresult r = call.remote().mapped.reach(CallSink(call), source); r != CUDA_SUCCESS) return r;
  return within(call, to, from, bytes, stream, wait);
}

}  // namespace

CUresult awaitSource(Call& call, CUmemcpySrcAccessOrder order, CUdeviceptr source, uint64_t stream) {
  // The copy itself handles pinned memory.
  if (order != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || call.remote().memory.find(source)) return CUDA_SUCCESS;
  return awaitStream(call, stream);
}

CUresult awaitBriefly(Call& call, uint64_t stream, bool& isDone) {
  const int64_t end = monotonicNs() + kPatienceNs;
  for (int64_t nap = kShortestNapNs;; nap = std::min(2 * nap, kLongestNapNs)) {
    cmd::StreamQuery ask{};
    ask.hStream = stream;
    cmd::StreamQueryReply reply{};
    const CUresult r = call.wait(ask, reply);
    isDone = r == CUDA_SUCCESS;
    if (r != CUDA_ERROR_NOT_READY) return r;
    if (monotonicNs() > end) return CUDA_SUCCESS;
    const timespec pause{0, nap};
    ::nanosleep(&pause, nullptr);
  }
}

CUresult toDevice(Call& call, CUdeviceptr to, const void* from, size_t bytes, uint64_t stream, Wait wait) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (from == nullptr || !call.remote().memory.mayUse(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto host = reinterpret_cast<uint64_t>(from);
  // This comes first, because the source may be part of the same memory.
  if (const CUresult r = reachDevice(call, to); r != CUDA_SUCCESS) return r;
  const auto source = call.remote().memory.find(host, bytes);
  if (source && source->kind == MemoryKind::kPinnedShared) return shared(call, to, host, bytes, stream, 1, wait);
  if (isOfWorker(source)) return within(call, to, host, bytes, stream, wait);
  bool captured = false;
  if (const CUresult r = call.isCaptured(stream, captured); r != CUDA_SUCCESS) return r;
  if (captured) return capture(call, to, host, bytes, stream, 1);
  if (source && source->kind == MemoryKind::kPinnedLocal && isReadLater(call, *source))
    return throughMirror(call, to, *source, host, bytes, stream, wait);
  // Pinned memory is read when the stream reaches the copy, after functions of the program that may still write it. The
  // call must not wait for them: they may wait for the calling thread.
  if (source && source->kind == MemoryKind::kPinnedLocal && mayBeWritten(call, host, bytes, stream)) {
    bool isDone = false;
    if (const CUresult r = awaitBriefly(call, stream, isDone); r != CUDA_SUCCESS) return r;
    if (!isDone) return throughMirror(call, to, *source, host, bytes, stream, wait);
  }
  const bool hasLandings = call.remote().landings.any();
  // The legacy stream waits for streams that may be captured, which the worker's driver refuses.
  const bool mayBeRefused = CaptureState::anyOpen();
  if (wait == Wait::kNo || (!mayBeRefused && !endsWithCall(call, host, bytes)))
    return hasLandings ? fromLandings(call, to, host, bytes, stream, wait)
                       : fromHere(call, to, from, bytes, stream, wait);
  // The bytes have been sent when these return.
  bool isDone = false;
  bool* const mayEnd = mayBeRefused || isSeenByHost(call, to) ? nullptr : &isDone;
  if (const CUresult r = hasLandings ? fromLandings(call, to, host, bytes, stream, Wait::kNo)
                                     : fromHere(call, to, from, bytes, stream, Wait::kNo, mayEnd);
      r != CUDA_SUCCESS || isDone)
    return r;
  return awaitStream(call, stream);
}

namespace {

/// The worker keeps landing bytes in pinned memory until they are sent. A program that is faster than the link waits here,
/// except if they may not be sent before later calls of the program.
CUresult awaitRoom(Call& call, size_t bytes) {
  Landings& landings = call.remote().landings;
  for (uint64_t first; (first = landings.firstOver(bytes, kMostLandingBytes)) != 0;) {
    if (HostFunctions::anyPending() || call.remote().mirror.mayStreamWait()) return CUDA_SUCCESS;
    if (const CUresult r = landings.await(CallSink(call), first); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

/// A copy into this process's own memory. Nothing is done if the memory becomes mirrored in the meantime: then
/// `isMirrored` is set.
CUresult land(Call& call, uint64_t host, CUdeviceptr from, size_t bytes, uint64_t stream, bool& isMirrored) {
  Landings& landings = call.remote().landings;
  const Landings::Range range{host, bytes};
  // Such a copy may wait for words or functions that the stream waits for, directly or indirectly.
  const bool isHeld = HostFunctions::anyPending() || call.remote().mirror.mayStreamWait();
  uint64_t number = 0;
  isMirrored = !call.remote().mapped.handover().ifOwn(call.remote().memory, host, bytes, [&] {
    number = landings.begin(Landings::Source::kCopy, std::span(&range, 1), isHeld);
  });
  if (isMirrored) return CUDA_SUCCESS;
  if (!call.session().expectLanding()) {
    landings.end(number);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult r = call.post(cmd::LandFromDevice{.address = from,
                                                   .bytes = bytes,
                                                   .stream = stream,
                                                   .hostAddress = host,
                                                   .landing = number,
                                                   .landed = landings.over(),
                                                   .isHeld = isHeld});
  landings.markSent(number);
  if (r == static_cast<CUresult>(kSessionLost)) landings.end(number);
  return r;
}

}  // namespace

CUresult fromDevice(Call& call, void* to, CUdeviceptr from, size_t bytes, uint64_t stream, Wait wait) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (to == nullptr || !call.remote().memory.mayUse(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto host = reinterpret_cast<uint64_t>(to);
  // This comes first, because the destination may be part of the same memory.
  if (const CUresult r = reachDevice(call, from); r != CUDA_SUCCESS) return r;
  const auto pinned = call.remote().memory.find(host, bytes);
  if (pinned && pinned->kind == MemoryKind::kPinnedShared) return shared(call, from, host, bytes, stream, 2, wait);
  if (isOfWorker(pinned)) return within(call, host, from, bytes, stream, wait);
  // A partial overlap: the copy exceeds the allocation.
  if (!pinned && Mirror::exists() && call.remote().mirror.overlapsPages(host, bytes)) return CUDA_ERROR_INVALID_VALUE;
  bool captured = false;
  if (const CUresult r = call.isCaptured(stream, captured); r != CUDA_SUCCESS) return r;
  if (captured) return capture(call, from, host, bytes, stream, 2);
  call.session().expectBulk(bytes);
  const bool canLand = pinned && pinned->kind == MemoryKind::kPinnedLocal;
  if (canLand && wait == Wait::kNo && !call.remote().blocking) {
    for (size_t at = 0; at < bytes; at += kLandingBytes) {
      const size_t piece = std::min(kLandingBytes, bytes - at);
      if (const CUresult r = awaitRoom(call, piece); r != CUDA_SUCCESS) return r;
      bool isMirrored = false;
      if (const CUresult r = land(call, host + at, from + at, piece, stream, isMirrored); r != CUDA_SUCCESS) return r;
      if (isMirrored) return within(call, host + at, from + at, bytes - at, stream, wait);
    }
    return CUDA_SUCCESS;
  }
  const Handover::Use use(call.remote().mapped.handover(), call.remote().memory, to, bytes);
  if (canLand && !use.isOfOwn()) return within(call, host, from, bytes, stream, wait);
  const cmd::CopyFromDevice wire{.address = from, .bytes = bytes, .stream = stream};
  cmd::CopyFromDeviceReply reply{};
  Session::Answer answer;
  answer.body = std::as_writable_bytes(std::span(&reply, 1));
  answer.data = {static_cast<std::byte*>(to), bytes};
  if (const CUresult r = call.waitFor(wire, answer); r != CUDA_SUCCESS) return r;
  return answer.dataBytes == bytes ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

bool onDevice(Call& call, CUdeviceptr address) {
  const auto run = call.remote().memory.find(address);
  return run && run->isOfWorker();
}

bool isPinnedHere(Call& call, uint64_t address) {
  const auto run = call.remote().memory.find(address);
  return run && run->kind == MemoryKind::kPinnedLocal;
}

bool endsWithCall(Call& call, uint64_t from, size_t bytes) {
  return bytes > kLargestUnordered || isPinnedHere(call, from);
}

bool isSeenByHost(Call& call, uint64_t address) {
  const auto run = call.remote().memory.find(address);
  return !run || run->kind != MemoryKind::kDevice;
}

CUresult unified(Call& call, CUdeviceptr to, CUdeviceptr from, size_t bytes, uint64_t stream, Wait wait) {
  for (const CUdeviceptr each : {to, from})
    if (call.remote().memory.wasFreed(each) && !isMapped(each)) return CUDA_ERROR_INVALID_VALUE;
  const bool toIsDevice = onDevice(call, to);
  const bool fromIsDevice = onDevice(call, from);
  if (toIsDevice && fromIsDevice) return within(call, to, from, bytes, stream, wait);
  if (toIsDevice) return toDevice(call, to, reinterpret_cast<const void*>(from), bytes, stream, wait);
  if (fromIsDevice) return fromDevice(call, reinterpret_cast<void*>(to), from, bytes, stream, wait);
  // Between two addresses of this process, in stream order.
  bool isCaptured = false;
  if (const CUresult r = call.isCaptured(stream, isCaptured); r != CUDA_SUCCESS) return r;
  if (isCaptured) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = reinterpret_cast<const void*>(from);
    copy.dstHost = reinterpret_cast<void*>(to);
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = bytes;
    copy.srcHeight = copy.dstHeight = copy.Height = copy.Depth = 1;
    return api::captureCopy(call, stream, copy);
  }
  if (const CUresult r = awaitStream(call, stream); r != CUDA_SUCCESS) return r;
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}

namespace instead {
namespace {

template <typename C>
std::optional<CUresult> copyOf(Call& call, const C& copy, uint64_t stream, Wait wait) {
  const MemoryMap& memory = call.remote().memory;
  const uint64_t to = OwnAddress::of(copy.dstDevice), from = OwnAddress::of(copy.srcDevice);
  for (const uint64_t each : {to, from}) {
    if (!memory.mayBeLocal(each)) continue;
    if (const auto run = memory.find(each); run && run->kind == MemoryKind::kPinnedLocal)
      return unified(call, to, from, copy.ByteCount, stream, wait);
  }
  return std::nullopt;
}

}  // namespace

std::optional<CUresult> copyOfOwn(Call& call, const cmd::MemcpyDtoDV2& copy) {
  return copyOf(call, copy, copy.stream, Wait::kYes);
}
std::optional<CUresult> copyOfOwn(Call& call, const cmd::MemcpyDtoDAsyncV2& copy) {
  return copyOf(call, copy, copy.hStream, Wait::kNo);
}

}  // namespace instead

namespace api {

CUresult cuMemcpyHtoD_v2(Flavour flavour, CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) noexcept {
  Call call("cuMemcpyHtoD_v2", Needs::kCurrent);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(nullptr, flavour, stream); r != CUDA_SUCCESS) return r;
  return toDevice(call, dstDevice, srcHost, ByteCount, stream, Wait::kYes);
}

CUresult cuMemcpyHtoDAsync_v2(Flavour flavour, CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) noexcept {
  Call call("cuMemcpyHtoDAsync_v2", Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  return toDevice(call, dstDevice, srcHost, ByteCount, stream, Wait::kNo);
}

CUresult cuMemcpyDtoH_v2(Flavour flavour, void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) noexcept {
  Call call("cuMemcpyDtoH_v2", Needs::kCurrent);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(nullptr, flavour, stream); r != CUDA_SUCCESS) return r;
  return fromDevice(call, dstHost, srcDevice, ByteCount, stream, Wait::kYes);
}

CUresult cuMemcpyDtoHAsync_v2(Flavour flavour, void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) noexcept {
  Call call("cuMemcpyDtoHAsync_v2", Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  return fromDevice(call, dstHost, srcDevice, ByteCount, stream, Wait::kNo);
}

CUresult cuMemcpy(Flavour flavour, CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) noexcept {
  Call call("cuMemcpy", Needs::kCurrent);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(nullptr, flavour, stream); r != CUDA_SUCCESS) return r;
  return unified(call, dst, src, ByteCount, stream, Wait::kYes);
}

CUresult cuMemcpyAsync(Flavour flavour, CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) noexcept {
  Call call("cuMemcpyAsync", Needs::kAny);
  uint64_t stream = 0;
  if (const CUresult r = call.stream(hStream, flavour, stream); r != CUDA_SUCCESS) return r;
  return unified(call, dst, src, ByteCount, stream, Wait::kNo);
}

}  // namespace api
}  // namespace millpond::client
