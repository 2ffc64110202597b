// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/engine/transfer.h"

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "softgpu/driver/driver.h"
#include "softgpu/driver/graphs/capture.h"
#include "softgpu/driver/queue/activities.h"

namespace millpond::softgpu {
namespace {

// Larger copies from memory that is not pinned are waited for instead of staged.
constexpr uint64_t kLargestStaged = 64 * 1024;
// From that size on the source of a copy from pinned memory is read in the order of the stream, always.
constexpr uint64_t kReadInOrder = 64 * 1024;
/// Transfers up to this many bytes are done before another thread would have woken up for them, which takes longer
/// where no core is idle.
uint64_t largestBrief() {
  static const uint64_t bytes = std::thread::hardware_concurrency() >= 4 ? 32 * 1024 : 256 * 1024;
  return bytes;
}

/// Bytes from the first to the last that an end touches; nothing when that does not fit into an address.
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

/// An end whose memory the driver knows, so that it can be checked again when the copy runs.
struct CheckedRange {
  uint64_t address;
  uint64_t bytes;
  Access access;

  bool isCovered(Memory& memory) const { return memory.space().covers(address, bytes, access); }
};

/// Finds out whether an end is known memory (`range`) or ordinary host memory (nothing). False for a wrong
/// address.
bool classify(const CopyEnd& end, uint64_t bytes, Access access, std::optional<CheckedRange>* range) {
  if (end.address == 0) return false;
  Memory& memory = Driver::instance().memory();
  const CheckedRange candidate{end.address, bytes, access};
  if (candidate.isCovered(memory)) {
    *range = candidate;
    return true;
  }
  if (end.place == Place::device) return false;
  if (end.place == Place::host) return true;
  return !memory.space().overlaps(end.address, bytes);
}

bool isHostMemory(uint64_t address) {
  const RegionPtr region = Driver::instance().memory().space().find(address);
  return !region || region->isHost();
}

/// As CUPTI calls it. What the driver does not know is ordinary memory of the host.
cupti::MemoryKind memoryKindOf(uint64_t address) {
  const RegionPtr region = Driver::instance().memory().space().find(address);
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
  Sanitizer* const sanitizer = Driver::instance().sanitizer();
  for (uint64_t slice = 0; slice < extent.depth; ++slice) {
    for (uint64_t row = 0; row < extent.height; ++row) {
      const uint64_t target = to.address + slice * to.sliceStride + row * to.rowStride;
      const uint64_t source = from.address + slice * from.sliceStride + row * from.rowStride;
      if (sanitizer) sanitizer->copied(target, source, extent.width);
      std::memmove(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), extent.width);
    }
  }
}

/// `read`: where the bytes lie by now; `copy`: as the program asked for it.
void copyRows(const CopyEnd& read, const Copy& copy) {
  const bool isNoted = Activities::instance().notes(cupti::Kind::kCopy);
  const uint64_t start = isNoted ? Activities::now() : 0;
  moveRows(read, copy.to, copy.extent);
  if (isNoted) noteCopy(start, copy);
}

/// A body for a queue that touches memory only if that is still what it was.
std::function<void()> checked(const ContextPtr& owner, const char* what, std::vector<CheckedRange> ranges,
                              std::function<void()> body) {
  return [context = owner, what, ranges = std::move(ranges), body = std::move(body)] {
    Memory& memory = Driver::instance().memory();
    const Quiescence::Use use(memory.quiescence());
    for (const CheckedRange& range : ranges) {
      if (range.isCovered(memory)) continue;
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

/// The driver's structure for a copy that was asked for by a call.
CUDA_MEMCPY3D paramsOf(const Copy& copy) {
  const auto type = [](Place place) {
    return place == Place::host     ? CU_MEMORYTYPE_HOST
           : place == Place::device ? CU_MEMORYTYPE_DEVICE
                                    : CU_MEMORYTYPE_UNIFIED;
  };
  const auto rows = [&](const CopyEnd& end) {
    return end.sliceStride && end.rowStride ? end.sliceStride / end.rowStride : copy.extent.height;
  };
  CUDA_MEMCPY3D params{};
  params.srcMemoryType = type(copy.from.place);
  params.srcHost = reinterpret_cast<const void*>(copy.from.place == Place::host ? copy.from.address : 0);
  params.srcDevice = copy.from.place == Place::host ? 0 : copy.from.address;
  params.srcPitch = copy.from.rowStride ? copy.from.rowStride : copy.extent.width;
  params.srcHeight = rows(copy.from);
  params.dstMemoryType = type(copy.to.place);
  params.dstHost = reinterpret_cast<void*>(copy.to.place == Place::host ? copy.to.address : 0);
  params.dstDevice = copy.to.place == Place::host ? 0 : copy.to.address;
  params.dstPitch = copy.to.rowStride ? copy.to.rowStride : copy.extent.width;
  params.dstHeight = rows(copy.to);
  params.WidthInBytes = copy.extent.width;
  params.Height = copy.extent.height;
  params.Depth = copy.extent.depth;
  return params;
}

// `bytes` is the span of memory that the body works on.
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
    if (Sanitizer* const sanitizer = Driver::instance().sanitizer())
      sanitizer->filled(address, fill.width * fill.elementBytes);
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

}  // namespace

namespace {

/// A copy whose ends have been looked at.
struct CheckedCopy {
  uint64_t bytes = 0;  ///< span of the source
  std::optional<CheckedRange> from;
  std::optional<CheckedRange> to;

  std::vector<CheckedRange> ranges() const {
    std::vector<CheckedRange> known;
    if (from) known.push_back(*from);
    if (to) known.push_back(*to);
    return known;
  }
};

CUresult check(const Copy& copy, CheckedCopy* checkedCopy) {
  const std::optional<uint64_t> fromBytes = spanOf(copy.from, copy.extent);
  const std::optional<uint64_t> toBytes = spanOf(copy.to, copy.extent);
  if (Sanitizer* const sanitizer = Driver::instance().sanitizer(); sanitizer && fromBytes && toBytes) {
    sanitizer->checkTransfer(copy.from.address, *fromBytes, false);
    sanitizer->checkTransfer(copy.to.address, *toBytes, true);
  }
  if (!fromBytes || !toBytes || !classify(copy.from, *fromBytes, Access::read, &checkedCopy->from) ||
      !classify(copy.to, *toBytes, Access::write, &checkedCopy->to)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  checkedCopy->bytes = *fromBytes;
  return CUDA_SUCCESS;
}

CUresult check(const Fill& fill, uint64_t* bytes, std::optional<CheckedRange>* range) {
  if (fill.elementBytes != 1 && fill.elementBytes != 2 && fill.elementBytes != 4) return CUDA_ERROR_INVALID_VALUE;
  if (fill.address % fill.elementBytes != 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t width;
  if (__builtin_mul_overflow(fill.width, uint64_t{fill.elementBytes}, &width)) return CUDA_ERROR_INVALID_VALUE;
  if (fill.height > 1 && (fill.rowStride < width || fill.rowStride % fill.elementBytes != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CopyEnd end{Place::device, fill.address, fill.rowStride, 0};
  const std::optional<uint64_t> span = spanOf(end, {width, fill.height, 1});
  if (Sanitizer* const sanitizer = Driver::instance().sanitizer(); sanitizer && span)
    sanitizer->checkTransfer(fill.address, *span, true);
  if (!span || !classify(end, *span, Access::write, range)) return CUDA_ERROR_INVALID_VALUE;
  *bytes = *span;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult prepareCopy(const ContextPtr& context, const Copy& copy, PreparedTransfer* prepared) {
  if (copy.extent.isEmpty()) return CUDA_SUCCESS;
  CheckedCopy ends;
  if (CUresult result = check(copy, &ends)) return result;
  prepared->kind = kindOf(ends.bytes);
  prepared->body = checked(context, "copy", ends.ranges(), [copy] { copyRows(copy.from, copy); });
  return CUDA_SUCCESS;
}

CUresult prepareFill(const ContextPtr& context, const Fill& fill, PreparedTransfer* prepared) {
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  uint64_t bytes = 0;
  std::optional<CheckedRange> range;
  if (CUresult result = check(fill, &bytes, &range)) return result;
  prepared->kind = kindOf(bytes);
  prepared->body = checked(context, "fill", {*range}, [fill] { fillRows(fill); });
  return CUDA_SUCCESS;
}

Fill fillOf(const CUDA_MEMSET_NODE_PARAMS& params) {
  return {params.dst, params.pitch, params.value, params.elementSize, params.width, params.height};
}

CUresult enqueueCopy(const StreamTarget& stream, const Copy& copy, Return when) {
  if (copy.extent.isEmpty()) return CUDA_SUCCESS;
  CheckedCopy ends;
  if (CUresult result = check(copy, &ends)) return result;
  bool captured = false;
  if (CUresult result =
          captureWork(stream, CopyWork{paramsOf(copy), stream.context->handle(), stream.context, copy}, &captured))
    return result;
  if (captured) return CUDA_SUCCESS;
  const auto& [fromBytes, from, to] = ends;
  std::vector<CheckedRange> ranges = ends.ranges();

  // As an H200 does, docs/decisions/0036: between memories of the host every call waits; the source of a short copy is read
  // at the call where the stream has no work of its own.
  const bool isToHost = isHostMemory(copy.to.address);
  const bool isWithinHost = isToHost && isHostMemory(copy.from.address);
  const bool readsAtCall =
      from ? fromBytes < kReadInOrder && isHostMemory(copy.from.address) && !stream.context->isAtWork(stream.queue)
           : fromBytes <= kLargestStaged;
  if (when == Return::whenQueued && to && !isToHost && readsAtCall) {
    const auto* bytes = reinterpret_cast<const std::byte*>(copy.from.address);
    auto staged = std::make_shared<const std::vector<std::byte>>(bytes, bytes + fromBytes);
    auto body = [staged, copy] {
      CopyEnd end = copy.from;
      end.address = reinterpret_cast<uint64_t>(staged->data());
      copyRows(end, copy);
    };
    return enqueue(stream, fromBytes, checked(stream.context, "copy", std::move(ranges), std::move(body)), false);
  }
  const bool touchesUnpinned = !from || !to;
  const bool touchesHost = touchesUnpinned || isHostMemory(copy.from.address) || isHostMemory(copy.to.address);
  const bool waits = isWithinHost || (when == Return::whenDone ? touchesHost : touchesUnpinned);
  auto body = [copy] { copyRows(copy.from, copy); };
  return enqueue(stream, fromBytes, checked(stream.context, "copy", std::move(ranges), std::move(body)), waits);
}

CUresult enqueueFill(const StreamTarget& stream, const Fill& fill, Return when) {
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  uint64_t bytes = 0;
  std::optional<CheckedRange> range;
  if (CUresult result = check(fill, &bytes, &range)) return result;
  const CUDA_MEMSET_NODE_PARAMS params{fill.address,      fill.rowStride, fill.value,
                                       fill.elementBytes, fill.width,     fill.height};
  bool captured = false;
  if (CUresult result = captureWork(stream, FillWork{params, stream.context}, &captured)) return result;
  if (captured) return CUDA_SUCCESS;
  const bool waits = when == Return::whenDone && isHostMemory(fill.address);
  return enqueue(stream, bytes, checked(stream.context, "fill", {*range}, [fill] { fillRows(fill); }), waits);
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

}  // namespace

CUresult enqueueWrite(const StreamTarget& stream, const Word& word) {
  CheckedRange range{};
  if (CUresult result = rangeOf(word, Access::write, &range)) return result;
  auto body = checked(stream.context, "write", {range}, [word] {
    if (Sanitizer* const sanitizer = Driver::instance().sanitizer()) sanitizer->filled(word.address, word.bytes);
    if (word.bytes == 4)
      __atomic_store_n(reinterpret_cast<uint32_t*>(word.address), static_cast<uint32_t>(word.value), __ATOMIC_SEQ_CST);
    else
      __atomic_store_n(reinterpret_cast<uint64_t*>(word.address), word.value, __ATOMIC_SEQ_CST);
  });
  return enqueue(stream, word.bytes, std::move(body), false);
}

CUresult enqueueWaitFor(const StreamTarget& stream, const Word& word, unsigned flags) {
  CheckedRange range{};
  if (CUresult result = rangeOf(word, Access::read, &range)) return result;
  auto satisfied = std::make_shared<bool>(false);
  // Each look takes the memory for a moment only: what it waits for is written meanwhile.
  auto look = checked(stream.context, "wait", {range}, [word, flags, satisfied] {
    const uint64_t now = word.bytes == 4 ? __atomic_load_n(reinterpret_cast<uint32_t*>(word.address), __ATOMIC_SEQ_CST)
                                         : __atomic_load_n(reinterpret_cast<uint64_t*>(word.address), __ATOMIC_SEQ_CST);
    *satisfied = holds(now, word, flags);
  });
  auto body = [look = std::move(look), satisfied, context = stream.context] {
    for (;;) {
      look();
      if (*satisfied || context->isCancelled()) return;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  };
  stream.context->enqueue(stream.queue, Operation::Kind::host, std::move(body));
  return CUDA_SUCCESS;
}

}  // namespace millpond::softgpu
