// SPDX-License-Identifier: Apache-2.0
#include "worker/core/session_core.h"

#include "base/log.h"
#include "worker/device/program_calls.h"

namespace millpond::worker {
namespace {

/// Whether the output of kernels must precede the reply.
bool waitsForDevice(cmd::Op op) {
  return op == cmd::Op::kStreamSync || op == cmd::Op::kEventSync || op == cmd::Op::kContextSync ||
         op == cmd::Op::kCopyFromDevice;
}

/// Whether a command that names a stream gives it work for which a synchronization of the stream waits. On a card the
/// record of an event does not count.
bool givesWork(cmd::Op op) {
  switch (op) {
    case cmd::Op::kEventRecord:
    case cmd::Op::kEventRecordWithFlags:
    case cmd::Op::kStreamSync:
    case cmd::Op::kStreamQuery:
    case cmd::Op::kStreamCopyAttributes:
    case cmd::Op::kStreamGetAttribute:
    case cmd::Op::kStreamSetAttribute:
    case cmd::Op::kSynchronousCopy: return false;
    default: return true;
  }
}

}  // namespace

SessionCore::SessionCore(const Driver& driver, SessionDevices& devices, ServerLink link, DeviceOutput* output,
                         bool isResumed)
    : driver_(driver),
      devices_(devices),
      link_(std::move(link)),
      output_(output),
      isResumed_(isResumed),
      contexts_(driver),
      captures_(driver),
      marks_(driver, contexts_, handles_, captures_),
      synchronousCopies_(driver, contexts_, handles_, captures_, marks_),
      sanitizer_(driver) {
  for (const auto& each : devices_.all())
    contexts_.all().push_back({static_cast<uint16_t>(contexts_.size()), each.context, true, false, {}});
  link_.onLink([](const std::string& what) { log(LogLevel::Info, "%s", what.c_str()); });
}

void SessionCore::begin(const Request& request, uint64_t start, const std::shared_ptr<const void>& keeper) {
  ++position_;
  counters_.commands.store(position_, std::memory_order_relaxed);
  current_ = request;
  frame_ = {start, &keeper};
  // Only a driver that checks programs provides this second table.
  if (sanitizer_.isThere()) [[unlikely]]
    if (const ProgramCallsTable* calls = programCallsOf(driver_)) calls->command(request.thread, start);
  replyBody_.clear();
  isStale_ = false;
}

void SessionCore::resume(const Request& request) {
  current_ = request;
  replyBody_.clear();
}

bool SessionCore::stream(uint64_t wire, CUstream& out) {
  if (wire == 0) {
    if (givesWork(static_cast<cmd::Op>(current_.op))) {
      handles_.noteDefaultWork();
      if (handles_.hasOpen()) [[unlikely]]
        marks_.keepEnds(contexts_.bound());
      marks_.noteDefaultWork(contexts_.bound());
    }
    out = nullptr;
    return true;
  }
  HandleMap::Entry* entry = handles_.find(HandleKind::kStream, wire);
  if (!entry) return missing(wire);
  if (givesWork(static_cast<cmd::Op>(current_.op))) {
    if (entry->isBlocking && marks_.hasFreshDefault()) [[unlikely]]
      marks_.keepDefaultEnds();
    handles_.open(*entry);
    if (synchronousCopies_.isPending()) [[unlikely]]
      synchronousCopies_.order({static_cast<CUstream>(entry->object), entry->context, wire}, *entry);
  } else {
    handles_.touch(*entry);
  }
  out = static_cast<CUstream>(entry->object);
  // A stream that the driver failed to create must not become the default stream.
  return out != nullptr || missing(wire);
}

bool SessionCore::stream(uint64_t wire, Stream& out) {
  if (!stream(wire, out.handle)) return false;
  out.context = wire ? handles_.find(HandleKind::kStream, wire)->context : contexts_.bound();
  out.wire = wire;
  return true;
}

bool SessionCore::device(int32_t ordinal, CUdevice& out) {
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices_.all().size()) return false;
  out = devices_.all()[static_cast<size_t>(ordinal)].device;
  return true;
}

uint64_t SessionCore::wireOf(HandleKind kind, const void* object) {
  uint64_t wire = 0;
  if (object)
    handles_.each(kind, [&](const HandleMap::Entry& entry) {
      if (entry.object == object) wire = entry.wire;
    });
  return wire;
}

void SessionCore::answer(const Request& request, CUresult result) {
  if (request.request == 0) {
    if (result != CUDA_SUCCESS) latch(request, result);
    return;
  }
  counters_.waits.fetch_add(1, std::memory_order_relaxed);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
    log(LogLevel::Debug, "%s is answered with %d", cmd::opName(static_cast<cmd::Op>(request.op)),
        static_cast<int>(result));
  // If the reply reports that the device is done, the output must arrive before it.
  land();
  if (waitsForDevice(static_cast<cmd::Op>(request.op))) forwardOutput(request.context);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) forward(wire::OutputStream::kError);
  if (sizeof(wire::ReplyHeader) + wire::padded(replyBody_.size()) > wire::kMaxReplyBytes) {
    log(LogLevel::Warn, "the answer to %s has %zu bytes, and a reply at most %zu: it is refused",
        cmd::opName(static_cast<cmd::Op>(request.op)), replyBody_.size(), wire::kMaxReplyBytes);
    replyBody_.clear();
    result = CUDA_ERROR_NOT_SUPPORTED;
  }
  // Some replies, such as the compiler's log, also accompany a failure.
  if (link_.reply(wire::ReplyKind::kResult, request.op, request.request, static_cast<int32_t>(result), replyBody_))
    return;
  end({"the client reads no replies", true});
}

void SessionCore::forwardOutput(uint16_t context) {
  if (!output_ || context == 0 || counters_.launches.load(std::memory_order_relaxed) == 0) return;
  // The driver writes the output of kernels when a stream is synchronized, which takes no time if the stream has no work.
  const uint16_t before = contexts_.bound();
  if (!contexts_.use(context)) return;
  CUstream& quiet = contexts_.at(context).quiet;
  if (quiet || driver_.cuStreamCreate(&quiet, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
    driver_.cuStreamSynchronize(quiet);
  contexts_.use(before);
  forward(wire::OutputStream::kOutput);
}

void SessionCore::forward(wire::OutputStream stream) {
  if (!output_) return;
  output_->collect(stream, [this, stream](std::span<const std::byte> text) {
    const auto padding = static_cast<uint16_t>(wire::padded(text.size()) - text.size());
    return link_.reply(wire::ReplyKind::kOutput, padding, 0, static_cast<int32_t>(stream), text);
  });
}

void SessionCore::latch(const Request& request, CUresult result) {
  log(LogLevel::Info, "%s (command %llu) failed with %d", cmd::opName(static_cast<cmd::Op>(request.op)),
      static_cast<unsigned long long>(position_), static_cast<int>(result));
  if (const ProgramCallsTable* calls = sanitizer_.isThere() ? programCallsOf(driver_) : nullptr)
    calls->failed(cmd::opName(static_cast<cmd::Op>(request.op)), static_cast<int32_t>(result));
  forward(wire::OutputStream::kError);
  // The first failure of each context is kept until the client has taken it. Over shared memory the client reads it itself.
  if (!link_.remote() && !link_.memory().control().failures.keep(static_cast<int32_t>(result), request.context)) return;
  const wire::FailureReport report{position_, request.context, 0};
  if (!link_.reply(wire::ReplyKind::kFailure, request.op, 0, static_cast<int32_t>(result),
                   std::as_bytes(std::span(&report, 1))))
    end({"the client reads no replies", true});
}

CUresult SessionCore::violation(const std::string& what) {
  if (std::exchange(isStale_, false)) return CUDA_ERROR_INVALID_HANDLE;
  end({"protocol violation in command " + std::to_string(position_) + " (" +
           cmd::opName(static_cast<cmd::Op>(current_.op)) + "): " + what,
       false});
  return kDeferred;
}

}  // namespace millpond::worker
