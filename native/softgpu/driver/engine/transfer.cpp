// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/engine/transfer.h"

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "softgpu/driver/memory/device_memory.h"
#include "softgpu/driver/queue/activities.h"
#include "softgpu/driver/sanitizer/sanitizer.h"

namespace millpond::softgpu {
namespace {

// Larger copies from memory that is not pinned are waited for instead of staged.
constexpr uint64_t kLargestStaged = 64 * 1024;
// From this size on, the source of a copy from pinned memory is always read in stream order.
constexpr uint64_t kReadInOrder = 64 * 1024;
/// Transfers up to this many bytes are done before another thread would have woken up for them, which takes longer
/// where no core is idle.
uint64_t largestBrief() {
  static const uint64_t bytes = std::thread::hardware_concurrency() >= 4 ? 32 * 1024 : 256 * 1024;
  return bytes;
}

/// Bytes from the first to the last that an end accesses; none if the sum exceeds an address.
std::optional<uint64_t> spanOf(const CopyEnd& end, const Extent& extent) {
  const auto add = [](uint64_t a, uint64_t count, uint64_t stride, uint64_t* sum) {
    uint64_t product;
    return !__builtin_mul_overflow(count, stride, &product) && !__builtin_add_overflow(a, product, sum);
  };
  uint64_t bytes = extent.width;
  if (!add(bytes, extent.height - 1, end.rowStride, &bytes)) return std::nullopt;
  if (!add(bytes, extent.depth - 1, end.sliceStride, &bytes)) return std::nullopt;
  if (bytes > UINT64_MAX - end.address) return std::nullopt;
  return bytes;
}

bool isCovered(const CheckedRange& range) {
  return DeviceMemory::instance().memory().space().covers(range.address, range.bytes, range.access);
}

/// Determines whether an end is known memory (`range`) or ordinary host memory (none). False for an invalid address.
bool classify(const CopyEnd& end, uint64_t bytes, Access access, std::optional<CheckedRange>* range) {
  if (end.address == 0) return false;
  const CheckedRange candidate{end.address, bytes, access};
  if (isCovered(candidate)) {
    *range = candidate;
    return true;
  }
  if (end.place == Place::device) return false;
  if (end.place == Place::host) return true;
  return !DeviceMemory::instance().memory().space().overlaps(end.address, bytes);
}

bool isHostMemory(uint64_t address) {
  const RegionPtr region = DeviceMemory::instance().memory().space().find(address);
  return !region || region->isHost();
}

/// CUPTI's name of it. Memory unknown to the driver is ordinary host memory.
cupti::MemoryKind memoryKindOf(uint64_t address) {
  const RegionPtr region = DeviceMemory::instance().memory().space().find(address);
  if (!region) return cupti::MemoryKind::kPageable;
  return region->isHost() ? cupti::MemoryKind::kPinned : cupti::MemoryKind::kDevice;
}

void noteCopy(uint64_t start, const Copy& copy) {
  const cupti::MemoryKind from = memoryKindOf(copy.from.address), to = memoryKindOf(copy.to.address);
  const bool isFromDevice = from == cupti::MemoryKind::kDevice, isToDevice = to == cupti::MemoryKind::kDevice;
  const auto kind = isFromDevice ? (isToDevice ? cupti::CopyKind::kDeviceToDevice : cupti::CopyKind::kDeviceToHost)
                                 : (isToDevice ? cupti::CopyKind::kHostToDevice : cupti::CopyKind::kHostToHost);
  Activities::instance().copy(start, kind, from, to, copy.extent.width * copy.extent.height * copy.extent.depth);
}

void moveRows(const CopyEnd& from, const CopyEnd& to, const Extent& extent) {
  Sanitizer* const sanitizer = Sanitizer::instance();
  for (uint64_t slice = 0; slice < extent.depth; ++slice) {
    for (uint64_t row = 0; row < extent.height; ++row) {
      const uint64_t target = to.address + slice * to.sliceStride + row * to.rowStride;
      const uint64_t source = from.address + slice * from.sliceStride + row * from.rowStride;
      if (sanitizer) sanitizer->copied(target, source, extent.width);
      std::memmove(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), extent.width);
    }
  }
}

/// `read`: where the bytes are by now; `copy`: as requested by the program.
void copyRows(const CopyEnd& read, const Copy& copy) {
  const bool isNoted = Activities::instance().notes(cupti::Kind::kCopy);
  const uint64_t start = isNoted ? Activities::now() : 0;
  moveRows(read, copy.to, copy.extent);
  if (isNoted) noteCopy(start, copy);
}

/// A body for a queue that accesses memory only if it is still the same allocation.
std::function<void()> checked(const ContextPtr& owner, const char* what, std::vector<CheckedRange> ranges,
                              std::function<void()> body) {
  return [context = owner, what, ranges = std::move(ranges), body = std::move(body)] {
    const Quiescence::Use use(DeviceMemory::instance().memory().quiescence());
    for (const CheckedRange& range : ranges) {
      if (isCovered(range)) continue;
      context->fail(CUDA_ERROR_ILLEGAL_ADDRESS,
                    std::string("a queued ") + what + " found its memory freed or unmapped");
      return;
    }
    body();
  };
}

Operation::Kind kindOf(uint64_t bytes) {
  return bytes <= largestBrief() ? Operation::Kind::brief : Operation::Kind::work;
}

// `bytes` is the span of memory on which the body works.
CUresult enqueue(const StreamTarget& stream, uint64_t bytes, std::function<void()> body, bool waits) {
  if (waits) return stream.context->run(stream.queue, std::move(body));
  stream.context->enqueue(stream.queue, kindOf(bytes), std::move(body));
  return CUDA_SUCCESS;
}

template <typename T>
void fillRow(uint64_t address, T value, uint64_t count) {
  T* row = reinterpret_cast<T*>(address);
  for (uint64_t i = 0; i < count; ++i) row[i] = value;
}

void setRows(const Fill& fill) {
  for (uint64_t row = 0; row < fill.height; ++row) {
    const uint64_t address = fill.address + row * fill.rowStride;
    if (Sanitizer* const sanitizer = Sanitizer::instance()) sanitizer->filled(address, fill.width * fill.elementBytes);
    switch (fill.elementBytes) {
      case 1: std::memset(reinterpret_cast<void*>(address), static_cast<int>(fill.value & 0xFF), fill.width); break;
      case 2: fillRow(address, static_cast<uint16_t>(fill.value), fill.width); break;
      default: fillRow(address, fill.value, fill.width); break;
    }
  }
}

void fillRows(const Fill& fill) {
  const bool isNoted = Activities::instance().notes(cupti::Kind::kFill);
  const uint64_t start = isNoted ? Activities::now() : 0;
  setRows(fill);
  if (isNoted) Activities::instance().fill(start, fill.value, fill.width * fill.elementBytes * fill.height);
}

std::vector<CheckedRange> rangesOf(const CheckedCopy& copy) {
  std::vector<CheckedRange> known;
  if (copy.from) known.push_back(*copy.from);
  if (copy.to) known.push_back(*copy.to);
  return known;
}

}  // namespace

CUresult checkCopy(const Copy& copy, CheckedCopy* checkedCopy) {
  const std::optional<uint64_t> fromBytes = spanOf(copy.from, copy.extent);
  const std::optional<uint64_t> toBytes = spanOf(copy.to, copy.extent);
  if (Sanitizer* const sanitizer = Sanitizer::instance(); sanitizer && fromBytes && toBytes) {
    sanitizer->checkTransfer(copy.from.address, *fromBytes, false);
    sanitizer->checkTransfer(copy.to.address, *toBytes, true);
  }
  if (!fromBytes || !toBytes || !classify(copy.from, *fromBytes, Access::read, &checkedCopy->from) ||
      !classify(copy.to, *toBytes, Access::write, &checkedCopy->to)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  checkedCopy->copy = copy;
  checkedCopy->bytes = *fromBytes;
  return CUDA_SUCCESS;
}

CUresult checkFill(const Fill& fill, CheckedFill* checkedFill) {
  if (fill.elementBytes != 1 && fill.elementBytes != 2 && fill.elementBytes != 4) return CUDA_ERROR_INVALID_VALUE;
  if (fill.address % fill.elementBytes != 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t width;
  if (__builtin_mul_overflow(fill.width, uint64_t{fill.elementBytes}, &width)) return CUDA_ERROR_INVALID_VALUE;
  if (fill.height > 1 && (fill.rowStride < width || fill.rowStride % fill.elementBytes != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CopyEnd end{Place::device, fill.address, fill.rowStride, 0};
  const std::optional<uint64_t> span = spanOf(end, {width, fill.height, 1});
  if (Sanitizer* const sanitizer = Sanitizer::instance(); sanitizer && span)
    sanitizer->checkTransfer(fill.address, *span, true);
  std::optional<CheckedRange> range;
  if (!span || !classify(end, *span, Access::write, &range)) return CUDA_ERROR_INVALID_VALUE;
  *checkedFill = {fill, *span, *range};
  return CUDA_SUCCESS;
}

CUresult prepareCopy(const ContextPtr& context, const Copy& copy, PreparedTransfer* prepared) {
  if (copy.extent.isEmpty()) return CUDA_SUCCESS;
  CheckedCopy ends;
  if (CUresult result = checkCopy(copy, &ends)) return result;
  prepared->kind = kindOf(ends.bytes);
  prepared->body = checked(context, "copy", rangesOf(ends), [copy] { copyRows(copy.from, copy); });
  return CUDA_SUCCESS;
}

CUresult prepareFill(const ContextPtr& context, const Fill& fill, PreparedTransfer* prepared) {
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  CheckedFill target;
  if (CUresult result = checkFill(fill, &target)) return result;
  prepared->kind = kindOf(target.bytes);
  prepared->body = checked(context, "fill", {target.range}, [fill] { fillRows(fill); });
  return CUDA_SUCCESS;
}

Fill fillOf(const CUDA_MEMSET_NODE_PARAMS& params) {
  return {params.dst, params.pitch, params.value, params.elementSize, params.width, params.height};
}

CUresult enqueueChecked(const StreamTarget& stream, const CheckedCopy& ends, Return when) {
  const auto& [copy, fromBytes, from, to] = ends;
  std::vector<CheckedRange> ranges = rangesOf(ends);

  // As an H200 does (docs/decisions/0036): a copy from host to host is always synchronous, and the source of a short copy is
  // read during the call if the stream has no work.
  const bool isToHost = isHostMemory(copy.to.address);
  const bool isWithinHost = isToHost && isHostMemory(copy.from.address);
  const bool readsAtCall =
      from ? fromBytes < kReadInOrder && isHostMemory(copy.from.address) && !stream.context->isAtWork(stream.queue)
           : fromBytes <= kLargestStaged;
  if (when == Return::whenQueued && to && !isToHost && readsAtCall) {
    const auto* bytes = reinterpret_cast<const std::byte*>(copy.from.address);
    auto staged = std::make_shared<const std::vector<std::byte>>(bytes, bytes + fromBytes);
    auto body = [staged, copy = copy] {
      CopyEnd end = copy.from;
      end.address = reinterpret_cast<uint64_t>(staged->data());
      copyRows(end, copy);
    };
    return enqueue(stream, fromBytes, checked(stream.context, "copy", std::move(ranges), std::move(body)), false);
  }
  const bool touchesUnpinned = !from || !to;
  const bool touchesHost = touchesUnpinned || isHostMemory(copy.from.address) || isHostMemory(copy.to.address);
  const bool waits = isWithinHost || (when == Return::whenDone ? touchesHost : touchesUnpinned);
  auto body = [copy = copy] { copyRows(copy.from, copy); };
  return enqueue(stream, fromBytes, checked(stream.context, "copy", std::move(ranges), std::move(body)), waits);
}

CUresult enqueueChecked(const StreamTarget& stream, const CheckedFill& target, Return when) {
  const bool waits = when == Return::whenDone && isHostMemory(target.fill.address);
  auto body = checked(stream.context, "fill", {target.range}, [fill = target.fill] { fillRows(fill); });
  return enqueue(stream, target.bytes, std::move(body), waits);
}

namespace {

bool holds(uint64_t now, const Word& word, unsigned flags) {
  // Differences count as signed, so that counters may wrap around.
  const auto atLeast = [&] {
    return word.bytes == 4 ? static_cast<int32_t>(static_cast<uint32_t>(now) - static_cast<uint32_t>(word.value)) >= 0
                           : static_cast<int64_t>(now - word.value) >= 0;
  };
  const uint64_t all = word.bytes == 4 ? UINT32_MAX : UINT64_MAX;
  switch (flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ: return atLeast();
    case CU_STREAM_WAIT_VALUE_EQ: return now == (word.value & all);
    case CU_STREAM_WAIT_VALUE_AND: return (now & word.value) != 0;
    default: return (~(now | word.value) & all) != 0;
  }
}

CUresult rangeOf(const Word& word, Access access, CheckedRange* range) {
  std::optional<CheckedRange> found;
  if (word.address % word.bytes != 0 || !classify({Place::device, word.address, 0, 0}, word.bytes, access, &found))
    return CUDA_ERROR_INVALID_VALUE;
  *range = *found;
  return CUDA_SUCCESS;
}

CUresult writeBody(const ContextPtr& context, const Word& word, std::function<void()>* body) {
  CheckedRange range{};
  if (CUresult result = rangeOf(word, Access::write, &range)) return result;
  *body = checked(context, "write", {range}, [word] {
    if (Sanitizer* const sanitizer = Sanitizer::instance()) sanitizer->filled(word.address, word.bytes);
    if (word.bytes == 4)
      __atomic_store_n(reinterpret_cast<uint32_t*>(word.address), static_cast<uint32_t>(word.value), __ATOMIC_SEQ_CST);
    else
      __atomic_store_n(reinterpret_cast<uint64_t*>(word.address), word.value, __ATOMIC_SEQ_CST);
  });
  return CUDA_SUCCESS;
}

CUresult waitBody(const ContextPtr& context, const Word& word, unsigned flags, std::function<void()>* body) {
  CheckedRange range{};
  if (CUresult result = rangeOf(word, Access::read, &range)) return result;
  auto satisfied = std::make_shared<bool>(false);
  // Each check locks the memory only briefly, because the awaited value is written in the meantime.
  auto look = checked(context, "wait", {range}, [word, flags, satisfied] {
    const uint64_t now = word.bytes == 4 ? __atomic_load_n(reinterpret_cast<uint32_t*>(word.address), __ATOMIC_SEQ_CST)
                                         : __atomic_load_n(reinterpret_cast<uint64_t*>(word.address), __ATOMIC_SEQ_CST);
    *satisfied = holds(now, word, flags);
  });
  *body = [look = std::move(look), satisfied, context] {
    *satisfied = false;  // a graph may run it again
    for (;;) {
      look();
      if (*satisfied || context->isCancelled()) return;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  };
  return CUDA_SUCCESS;
}

constexpr unsigned kWaitFlags = 3u | CU_STREAM_WAIT_VALUE_FLUSH;

/// An operation on a word: its body, which may be none, and whether it waits.
CUresult wordBody(const ContextPtr& context, const CUstreamBatchMemOpParams& op, std::function<void()>* body,
                  bool* waits) {
  const unsigned waitFlags = op.waitValue.flags;
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: {
      if (waitFlags & ~kWaitFlags) return CUDA_ERROR_INVALID_VALUE;
      if (waitFlags & CU_STREAM_WAIT_VALUE_FLUSH) return CUDA_ERROR_NOT_SUPPORTED;  // as the device's attribute says
      *waits = true;
      const bool isLong = op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
      const uint64_t awaited = isLong ? op.waitValue.value64 : op.waitValue.value;
      return waitBody(context, {op.waitValue.address, awaited, isLong ? 8u : 4u}, waitFlags, body);
    }
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64: {
      if (op.writeValue.flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) return CUDA_ERROR_INVALID_VALUE;
      const bool isLong = op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
      const uint64_t written = isLong ? op.writeValue.value64 : op.writeValue.value;
      return writeBody(context, {op.writeValue.address, written, isLong ? 8u : 4u}, body);
    }
    case CU_STREAM_MEM_OP_BARRIER: return CUDA_SUCCESS;  // operations of a stream see earlier ones in any case
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult prepareWords(const ContextPtr& context, std::span<const CUstreamBatchMemOpParams> operations,
                      PreparedTransfer* prepared) {
  std::vector<std::function<void()>> bodies;
  bool waits = false;
  for (const CUstreamBatchMemOpParams& each : operations) {
    std::function<void()> body;
    if (CUresult result = wordBody(context, each, &body, &waits)) return result;
    if (body) bodies.push_back(std::move(body));
  }
  if (bodies.empty()) return CUDA_SUCCESS;
  // Operations that wait may block for any length of time, like a program's functions.
  prepared->kind = waits ? Operation::Kind::host : Operation::Kind::brief;
  prepared->body = [context, bodies = std::move(bodies)] {
    for (const auto& each : bodies)
      if (!context->isCancelled()) each();
  };
  return CUDA_SUCCESS;
}

}  // namespace millpond::softgpu
