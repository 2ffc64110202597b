// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/exec/locate.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {
namespace {

constexpr uint64_t kOffsetMask = (uint64_t{1} << kWindowShift) - 1;

bool fault(const Instruction* i, Context& context, FaultKind kind, uint32_t lane, uint64_t address, bool isWrite) {
  raiseFault(i, context, kind, {lane, address, uint32_t{i->access.bytes} * i->access.count, isWrite});
  return false;
}

/// Whether [address, address + bytes) is in memory of the device; queries the map if the cache does not know.
bool isAccessible(Context& context, uint64_t address, uint32_t bytes, bool isWrite) {
  const AccessRange& range = context.ranges[0];
  if (address >= range.begin && address < range.end && range.end - address >= bytes && (range.isWritable || !isWrite))
      [[likely]] {
    return true;
  }
  return findRange(context, address, bytes, isWrite);
}

template <typename A>
uint64_t addressOf(const A* base, uint32_t lane, uint64_t offset) {
  return static_cast<A>(base[lane] + static_cast<A>(offset));
}

std::byte* hostPointer(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

/// One lane's access to device memory, or null after a fault.
std::byte* locateGlobal(const Instruction* i, Context& context, uint32_t lane, uint64_t address, uint32_t bytes,
                        bool isWrite) {
  if (!isAccessible(context, address, bytes, isWrite)) {
    bool isConst = i->access.flags & kIsConstAccess;
    fault(i, context, isConst ? FaultKind::kConstOutOfRange : FaultKind::kIllegalAddress, lane, address, isWrite);
    return nullptr;
  }
  return hostPointer(address);
}
std::byte* locateShared(const Instruction* i, Context& context, uint32_t lane, uint64_t offset, uint32_t bytes,
                        bool isWrite) {
  if (offset > context.sharedBytes || context.sharedBytes - offset < bytes) {
    fault(i, context, FaultKind::kSharedOutOfRange, lane, offset, isWrite);
    return nullptr;
  }
  return context.shared + offset;
}
std::byte* locateLocal(const Instruction* i, Context& context, uint32_t lane, uint64_t offset, uint32_t bytes,
                       bool isWrite) {
  if (offset > context.localBytes || context.localBytes - offset < bytes) {
    fault(i, context, FaultKind::kLocalOutOfRange, lane, offset, isWrite);
    return nullptr;
  }
  return context.local + size_t{lane} * context.localBytes + offset;
}

template <Space kSpace>
std::byte* locateLane(const Instruction* i, Context& context, uint32_t lane, uint64_t address, uint32_t bytes,
                      bool isWrite) {
  if constexpr (kSpace == Space::kShared) return locateShared(i, context, lane, address, bytes, isWrite);
  if constexpr (kSpace == Space::kLocal || kSpace == Space::kParam) {
    return locateLocal(i, context, lane, address, bytes, isWrite);
  }
  if constexpr (kSpace == Space::kGeneric) {
    uint64_t window = address & ~kOffsetMask;
    if (window == kSharedWindow) return locateShared(i, context, lane, address & kOffsetMask, bytes, isWrite);
    if (window == kLocalWindow) return locateLocal(i, context, lane, address & kOffsetMask, bytes, isWrite);
  }
  return locateGlobal(i, context, lane, address, bytes, isWrite);
}

/// All lanes are active and access adjacent places or a single place: detects that without checking each one. Leaves
/// the shape kScattered otherwise, or if there may be a fault to report.
template <Space kSpace, typename A>
void locateTogether(const Instruction* i, Context& context, const A* base, uint32_t bytes, bool isWrite, Lanes& lanes) {
  uint64_t offset = static_cast<uint64_t>(i->immediate);
  A step = static_cast<A>(base[1] - base[0]);
  if (step != 0 && step != bytes) return;
  if (step == 0 && isWrite) return;
  A first = base[0];
  A difference = 0;
  for (uint32_t l = 0; l < 32; ++l) {
    difference |= static_cast<A>(base[l] - static_cast<A>(first + static_cast<A>(static_cast<A>(l) * step)));
  }
  if (difference != 0) return;
  uint64_t address = addressOf(base, 0, offset);
  uint32_t total = step ? bytes * 32 : bytes;
  if (address & (bytes - 1)) return;
  if constexpr (sizeof(A) == 4) {
    if (address + total > uint64_t{1} << 32) return;
  }
  constexpr bool kIsGeneric = kSpace == Space::kGeneric;
  bool isShared = kSpace == Space::kShared;
  if constexpr (kIsGeneric) {
    uint64_t window = address & ~kOffsetMask;
    if (window == kLocalWindow) return;
    if (window == kSharedWindow) {
      isShared = true;
      address &= kOffsetMask;
    }
  }
  if (isShared) {
    if (address > context.sharedBytes || context.sharedBytes - address < total) return;
    lanes.base = context.shared + address;
  } else {
    if (!isAccessible(context, address, total, isWrite)) return;
    lanes.base = hostPointer(address);
  }
  lanes.shape = step ? Lanes::Shape::kContiguous : Lanes::Shape::kUniform;
}

/// Whether all addresses are at least `bytes` before the end of a memory of `size`.
bool areBelow(const uint64_t* address, uint64_t size, uint32_t bytes) {
  if (size < bytes) return false;
  uint64_t limit = size - bytes;
  uint64_t largest = 0;
  for (uint32_t l = 0; l < 32; ++l) largest = address[l] > largest ? address[l] : largest;
  return largest <= limit;
}

/// Finds the memory of all 32 addresses if all of them are valid; otherwise a slower check determines what is wrong.
template <Space kSpace>
bool locateAll(Context& context, const uint64_t* address, uint32_t bytes, bool isWrite, std::byte** out) {
  uint64_t all = 0;
  uint64_t common = ~uint64_t{0};
  for (uint32_t l = 0; l < 32; ++l) {
    all |= address[l];
    common &= address[l];
  }
  if (all & (bytes - 1)) return false;
  if constexpr (kSpace == Space::kLocal) {
    if (!areBelow(address, context.localBytes, bytes)) return false;
    MILLPOND_LANES (l) out[l] = context.local + size_t{l} * context.localBytes + address[l];
    return true;
  }
  constexpr bool kIsGeneric = kSpace == Space::kGeneric;
  bool isShared = kSpace == Space::kShared;
  uint64_t window = 0;
  if (kIsGeneric && (all & ~kOffsetMask)) {
    if ((all & ~kOffsetMask) != kSharedWindow || (common & ~kOffsetMask) != kSharedWindow) return false;
    isShared = true;
    window = kSharedWindow;
  }
  if (isShared) {
    alignas(64) uint64_t offset[32];
    MILLPOND_LANES (l) offset[l] = address[l] - window;
    if (!areBelow(offset, context.sharedBytes, bytes)) return false;
    MILLPOND_LANES (l) out[l] = context.shared + offset[l];
    return true;
  }
  const AccessRange& range = context.ranges[0];
  if (isWrite && !range.isWritable) return false;
  alignas(64) uint64_t offset[32];
  uint64_t begin = range.begin;
  MILLPOND_LANES (l) offset[l] = address[l] - begin;
  if (!areBelow(offset, range.end - begin, bytes)) return false;
  MILLPOND_LANES (l) out[l] = hostPointer(address[l]);
  return true;
}

/// Lane by lane, with the fault of the first lane that has one.
template <Space kSpace>
bool locateEach(const Instruction* i, Context& context, uint32_t mask, const uint64_t* address, uint32_t bytes,
                bool isWrite, std::byte** out) {
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint32_t l = lowestLane(rest);
    std::byte* pointer = locateLane<kSpace>(i, context, l, address[l], bytes, isWrite);
    if (!pointer) return false;
    if (address[l] & (bytes - 1)) return fault(i, context, FaultKind::kMisalignedAddress, l, address[l], isWrite);
    out[l] = pointer;
  }
  return true;
}

}  // namespace

template <Space kSpace, typename A>
bool locate(const Instruction* i, Context& context, uint32_t mask, bool isWrite, Lanes& lanes) {
  lanes.mask = mask;
  lanes.shape = Lanes::Shape::kScattered;
  uint32_t bytes = uint32_t{i->access.bytes} * i->access.count;
  if constexpr (kSpace == Space::kParam) {
    // A fixed place of the frame, whose memory exists as long as the frame.
    std::byte* at = context.local + context.localBase + i->immediate;
    MILLPOND_LANES (l) lanes.lane[l] = at + size_t{l} * context.localBytes;
    return true;
  } else {
    const A* base = slot<A>(context, i->op[kAddressOperand]);
    if constexpr (kSpace != Space::kLocal) {
      if (mask == kAllLanes) {
        locateTogether<kSpace, A>(i, context, base, bytes, isWrite, lanes);
        if (lanes.shape != Lanes::Shape::kScattered) return true;
      }
    }
    // Inactive lanes use the address of the first active one.
    A offset = static_cast<A>(static_cast<uint64_t>(i->immediate));
    A first = static_cast<A>(base[lowestLane(mask)] + offset);
    alignas(64) uint64_t address[32];
    MILLPOND_LANES (l) {
      A here = static_cast<A>(base[l] + offset);
      address[l] = mask & kLaneBit[l] ? here : first;
    }
    if (locateAll<kSpace>(context, address, bytes, isWrite, lanes.lane)) [[likely]]
      return true;
    return locateEach<kSpace>(i, context, mask, address, bytes, isWrite, lanes.lane);
  }
}

template bool locate<Space::kGeneric, uint64_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
template bool locate<Space::kGlobal, uint64_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
template bool locate<Space::kConst, uint64_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
template bool locate<Space::kShared, uint32_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
template bool locate<Space::kShared, uint64_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
template bool locate<Space::kLocal, uint32_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
template bool locate<Space::kLocal, uint64_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
template bool locate<Space::kParam, uint64_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);

Locator selectLocator(Space space, uint32_t addressBits) {
  if (addressBits == 32) {
    return space == Space::kShared  ? &locate<Space::kShared, uint32_t>
           : space == Space::kLocal ? &locate<Space::kLocal, uint32_t>
                                    : nullptr;
  }
  switch (space) {
    case Space::kGeneric: return &locate<Space::kGeneric, uint64_t>;
    case Space::kGlobal: return &locate<Space::kGlobal, uint64_t>;
    case Space::kConst: return &locate<Space::kConst, uint64_t>;
    case Space::kShared: return &locate<Space::kShared, uint64_t>;
    case Space::kLocal: return &locate<Space::kLocal, uint64_t>;
    default: return &locate<Space::kParam, uint64_t>;
  }
}

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
