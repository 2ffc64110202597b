// SPDX-License-Identifier: Apache-2.0
// Copies and fills, of bytes in up to three dimensions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/memory/address_space.h"
#include "softgpu/driver/model/stream.h"

namespace millpond::softgpu {

/// The location that a call declares for an address. `unified`: on the device or on the host, according to the address
/// itself.
enum class Place { device, host, unified };

/// One end of a copy. Strides are in bytes and matter only if there is more than one row or slice.
struct CopyEnd {
  Place place = Place::unified;
  uint64_t address = 0;  // of the first byte
  uint64_t rowStride = 0;
  uint64_t sliceStride = 0;
};

struct Extent {
  uint64_t width = 0;  // bytes
  uint64_t height = 1;
  uint64_t depth = 1;
  bool isEmpty() const { return width == 0 || height == 0 || depth == 0; }
};

struct Copy {
  CopyEnd from;
  CopyEnd to;
  Extent extent;
};

/// A validated transfer: the function that performs it in its turn, and how it is to be run.
struct PreparedTransfer {
  std::function<void()> body;
  Operation::Kind kind = Operation::Kind::work;
};
/// For copies in graphs: unpinned memory is read and written when the copy runs.
CUresult prepareCopy(const ContextPtr& context, const Copy& copy, PreparedTransfer* prepared);

/// When a copy that accesses host memory returns. A copy from device to device never waits.
enum class Return {
  whenDone,   // the synchronous calls
  whenQueued  // the asynchronous ones, as far as pinned memory allows; memory that is not pinned is read
              // before the return, and written before it
};

/// An end in memory that the driver knows, so that it can be checked again when the copy runs.
struct CheckedRange {
  uint64_t address = 0;
  uint64_t bytes = 0;
  Access access = Access::read;
};
/// A copy whose ends have been resolved.
struct CheckedCopy {
  Copy copy;
  uint64_t bytes = 0;                ///< span of the source
  std::optional<CheckedRange> from;  ///< nothing: ordinary memory of the host
  std::optional<CheckedRange> to;    ///< as `from`
};
/// CUDA_ERROR_INVALID_VALUE if an end is not memory of its declared location. `copy` must not be empty.
CUresult checkCopy(const Copy& copy, CheckedCopy* checkedCopy);
/// If memory was freed since the check, the context fails.
CUresult enqueueChecked(const StreamTarget& stream, const CheckedCopy& ends, Return when);

/// A fill with elements of 1, 2 or 4 bytes.
struct Fill {
  uint64_t address = 0;
  uint64_t rowStride = 0;  // bytes
  uint32_t value = 0;
  uint32_t elementBytes = 1;
  uint64_t width = 0;  // elements
  uint64_t height = 1;
};

CUresult prepareFill(const ContextPtr& context, const Fill& fill, PreparedTransfer* prepared);
Fill fillOf(const CUDA_MEMSET_NODE_PARAMS& params);

/// A word of 4 or 8 bytes that a stream writes, or waits for.
struct Word {
  uint64_t address = 0;
  uint64_t value = 0;
  uint32_t bytes = 4;
};
/// Writes of words and waits for them, one after the other. A wait ends when the comparison that its flags
/// (CUstreamWaitValue_flags) specify is true, or when its context has failed. Without operations there is no body.
CUresult prepareWords(const ContextPtr& context, std::span<const CUstreamBatchMemOpParams> operations,
                      PreparedTransfer* prepared);

/// A fill whose memory has been resolved.
struct CheckedFill {
  Fill fill;
  uint64_t bytes = 0;  ///< span of the memory
  CheckedRange range;
};
/// `fill` must not be empty.
CUresult checkFill(const Fill& fill, CheckedFill* checkedFill);
/// Waits only for fills of host memory, and only if `when` says so.
CUresult enqueueChecked(const StreamTarget& stream, const CheckedFill& target, Return when);

}  // namespace millpond::softgpu
