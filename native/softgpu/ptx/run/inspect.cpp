// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/run/inspect.h"

#include <cstring>

#include "softgpu/ptx/operations.h"
#include "softgpu/ptx/run/block.h"
#include "softgpu/ptx/run/lane_set.h"
#include "softgpu/ptx/written_bytes.h"

namespace millpond::softgpu::ptx {
namespace {

constexpr uint32_t kBarrierOperand = 1;
constexpr uint32_t kThreadsOperand = 2;
constexpr uint32_t kAddressOperand = 4;
constexpr uint32_t kMembersOperand = 5;
constexpr uint32_t kMostBytes = 32;
constexpr uint64_t kInWindow = (uint64_t{1} << kWindowShift) - 1;

const std::byte* slotOf(const Context& context, uint32_t operand, uint32_t lane, uint32_t bytes) {
  return context.bases[operand >> 31] + (operand & ~kConstant) + size_t{lane} * bytes;
}

uint32_t activeLanes(const Instruction* i, const Context& context) {
  if (i->guard == kNoOperand) return context.mask;
  uint32_t guard = 0;
  std::memcpy(&guard, slotOf(context, i->guard & ~kNegatedGuard, 0, 4), sizeof(guard));
  return context.mask & (i->guard & kNegatedGuard ? ~guard : guard);
}

AccessPlace placeIn(Block& block, uint32_t thread, const Instruction* instruction, const FunctionCode& function) {
  AccessPlace out;
  const Dim3& shape = block.grid().launch.block;
  out.thread[0] = thread % shape.x;
  out.thread[1] = thread / shape.x % shape.y;
  out.thread[2] = thread / shape.x / shape.y;
  out.line = instruction->line;
  out.function = function.name;
  if (const SourceMark* mark = block.grid().module->code().sourceOf(instruction->line)) {
    out.file = mark->file;
    out.fileLine = mark->fileLine;
  }
  return out;
}

Finding findingIn(Block& block, Finding::Kind kind, AccessPlace place) {
  Finding out;
  out.kind = kind;
  out.kernel = block.grid().info->name;
  std::memcpy(out.block, block.position(), sizeof(out.block));
  out.access = place;
  return out;
}

uint32_t firstThread(const BarrierWatch::Arrival& arrival) {
  return arrival.warp * kWarpSize + static_cast<uint32_t>(__builtin_ctz(arrival.lanes));
}

AccessPlace placeOf(Block& block, const BarrierWatch::Arrival& arrival) {
  return placeIn(block, firstThread(arrival), arrival.at, *arrival.function);
}

/// One instruction's accesses, lane by lane.
class AccessCheck {
 public:
  AccessCheck(const Instruction* at, Context& context)
      : at_(at),
        context_(context),
        block_(*context.block),
        form_(CheckForm::unpack(at->form)),
        bytes_(uint32_t{at->access.bytes} * at->access.count) {}

  /// Lanes whose access the device would refuse.
  uint32_t run() {
    uint32_t fatal = 0;
    forLanes(activeLanes(at_, context_), [&](uint32_t l) { fatal |= check(l, addressOf(l)) ? 0 : uint32_t{1} << l; });
    return fatal;
  }

 private:
  uint64_t addressOf(uint32_t lane) const {
    uint64_t base = 0;
    const uint32_t width = form_.isWide ? 8 : 4;
    std::memcpy(&base, slotOf(context_, at_->op[kAddressOperand], lane, width), width);
    const uint64_t sum = base + static_cast<uint64_t>(at_->immediate);
    return form_.isWide ? sum : static_cast<uint32_t>(sum);
  }

  bool check(uint32_t lane, uint64_t address) {
    Space space = form_.space;
    if (space == Space::kGeneric) {
      const uint64_t window = address & ~kInWindow;
      space = window == kSharedWindow ? Space::kShared : window == kLocalWindow ? Space::kLocal : Space::kGlobal;
      if (space != Space::kGlobal) address &= kInWindow;
    }
    if (space == Space::kShared) return checkShared(lane, address);
    if (space == Space::kLocal) return checkLocal(lane, address);
    return checkDevice(lane, address);
  }

  bool checkShared(uint32_t lane, uint64_t offset) {
    if (offset > context_.sharedBytes || context_.sharedBytes - offset < bytes_)
      return report(lane, kSharedName, offset, FaultKind::kSharedOutOfRange, true);
    if (isMisaligned(offset)) return report(lane, kSharedName, offset, FaultKind::kMisalignedAddress, true);
    if (RaceDetector* races = block_.races()) {
      order(*races, lane, offset);
      checkRace(*races, lane, static_cast<uint32_t>(offset));
    }
    return true;
  }

  bool checkLocal(uint32_t lane, uint64_t offset) {
    const auto isBeyond = [&](uint64_t size) { return offset > size || size - offset < bytes_; };
    if (isBeyond(context_.localBytes)) return report(lane, kLocalName, offset, FaultKind::kLocalOutOfRange, true);
    if (isMisaligned(offset)) return report(lane, kLocalName, offset, FaultKind::kMisalignedAddress, true);
    // Local memory beyond the frames of the current calls; the device would not detect it.
    if (offset < context_.stackEnd[lane] && isBeyond(context_.warp->localTop()))
      return report(lane, kLocalName, offset, FaultKind::kLocalOutOfRange, false);
    return true;
  }

  bool checkDevice(uint32_t lane, uint64_t address) {
    const bool isConst = at_->access.flags & kIsConstAccess;
    const std::string_view space = isConst ? kConstName : kGlobalName;
    const Inspector::Range* range = block_.inspected(address, bytes_, form_.isWrite);
    if (!range) {
      const bool isFatal = !block_.findRange(address, bytes_, form_.isWrite);
      const FaultKind kind = isConst ? FaultKind::kConstOutOfRange : FaultKind::kIllegalAddress;
      if (!report(lane, space, address, kind, isFatal)) return false;
    }
    if (isMisaligned(address)) return report(lane, space, address, FaultKind::kMisalignedAddress, true);
    if (range && range->written) checkWritten(*range->written, lane, address, address - range->begin);
    if (RaceDetector* races = block_.races()) order(*races, lane, address);
    return true;
  }

  void checkWritten(WrittenBytes& written, uint32_t lane, uint64_t address, uint64_t offset) {
    if (form_.isRead) {
      if (const auto hole = written.firstUnwritten(offset, bytes_)) {
        Finding finding = findingOf(lane, Finding::Kind::kUninitialised);
        finding.space = kGlobalName;
        finding.address = address + (*hole - offset);
        block_.grid().launch.inspector->found(finding);
      }
    }
    if (form_.isWrite) written.mark(offset, bytes_);
  }

  bool isMisaligned(uint64_t address) const { return address & (bytes_ - 1); }

  uint32_t threadOf(uint32_t lane) const { return context_.warp->index() * kWarpSize + lane; }

  void order(RaceDetector& races, uint32_t lane, uint64_t address) {
    if (!form_.isAtomic) return;
    races.synchronise(threadOf(lane), address, {form_.isRead, form_.isWrite, form_.acquires, form_.releases});
  }

  void checkRace(RaceDetector& races, uint32_t lane, uint32_t offset) {
    std::byte* memory = context_.shared + offset;
    std::byte written[kMostBytes];
    const bool isStore = form_.isWrite && !form_.isRead;
    if (isStore) gather(lane, written);
    const RaceDetector::Access access{
        threadOf(lane), offset, bytes_, form_.isWrite, form_.isAtomic, isStore ? written : nullptr, memory};
    const auto race = races.access(access, races.siteOf(at_, &context_.warp->function()));
    if (race) report(lane, *race);
    // The store itself writes the value again. Later lanes compare with it.
    if (isStore) std::memcpy(memory, written, bytes_);
  }

  void gather(uint32_t lane, std::byte* out) const {
    const uint32_t element = at_->access.bytes;
    for (uint32_t k = 0; k < at_->access.count; ++k)
      std::memcpy(out + k * element, slotOf(context_, at_->op[k], lane, form_.registerBytes), element);
  }

  Finding findingOf(uint32_t lane, Finding::Kind kind = Finding::Kind::kAccess) const {
    Finding out = findingIn(block_, kind, placeIn(block_, threadOf(lane), at_, context_.warp->function()));
    out.access.isWrite = form_.isWrite;
    out.access.isAtomic = form_.isAtomic;
    out.bytes = bytes_;
    return out;
  }

  /// Whether the access is performed all the same.
  bool report(uint32_t lane, std::string_view space, uint64_t address, FaultKind kind, bool isFatal) {
    Finding finding = findingOf(lane);
    finding.space = space;
    finding.fault = kind;
    finding.isFatal = isFatal;
    finding.address = address;
    block_.grid().launch.inspector->found(finding);
    if (!isFatal) return true;
    Fault fault;
    fault.kind = kind;
    fault.block = {finding.block[0], finding.block[1], finding.block[2]};
    fault.thread = {finding.access.thread[0], finding.access.thread[1], finding.access.thread[2]};
    fault.address = address;
    fault.bytes = bytes_;
    fault.isWrite = form_.isWrite;
    fault.line = at_->line;
    fault.function = finding.access.function;
    fault.isReported = true;
    block_.grid().note(std::move(fault));
    return false;
  }

  void report(uint32_t lane, const RaceDetector::Race& race) {
    Finding finding = findingOf(lane);
    finding.kind = !form_.isWrite ? Finding::Kind::kReadAfterWrite
                   : race.isWrite ? Finding::Kind::kWriteAfterWrite
                                  : Finding::Kind::kWriteAfterRead;
    finding.address = race.offset;
    finding.other = placeIn(block_, race.thread, race.site.instruction, *race.site.function);
    finding.other.isWrite = race.isWrite;
    finding.other.isAtomic = race.isAtomic;
    if (const SharedPlace* place = block_.grid().module->code().sharedAt(*block_.grid().kernel, race.offset)) {
      finding.variable = place->name;
      finding.variableOffset = race.offset - place->offset;
    }
    block_.grid().launch.inspector->found(finding);
  }

  const Instruction* at_;
  Context& context_;
  Block& block_;
  CheckForm form_;
  uint32_t bytes_;
};

}  // namespace

const Instruction* checkAccess(const Instruction* at, Context& context) {
  if (!context.block->grid().launch.inspector) return at + 1;
  const uint32_t fatal = AccessCheck(at, context).run();
  return fatal ? exitLanes(at, context, fatal) : at + 1;
}

const Instruction* noteWarpArrival(const Instruction* at, Context& context) {
  if (RaceDetector* races = context.block->races()) races->arriveInWarp(context.warp->index(), context.mask);
  return at + 1;
}

const Instruction* noteWarpLeaving(const Instruction* at, Context& context) {
  if (RaceDetector* races = context.block->races()) {
    uint32_t members[kWarpSize];
    std::memcpy(members, slotOf(context, at->op[kMembersOperand], 0, 4), sizeof(members));
    races->leaveInWarp(context.warp->index(), context.mask, members);
  }
  return at + 1;
}

const Instruction* noteFence(const Instruction* at, Context& context) {
  const uint32_t lanes = activeLanes(at, context);
  if (RaceDetector* races = context.block->races(); races && lanes) races->fence(context.warp->index(), lanes);
  return at + 1;
}

const Instruction* noteBarrier(const Instruction* at, Context& context) {
  BarrierWatch* watch = context.block->barriers();
  if (!watch) return at + 1;
  uint32_t id[kWarpSize];
  std::memcpy(id, slotOf(context, at->op[kBarrierOperand], 0, 4), sizeof(id));
  const bool isOfBlock = at->op[kThreadsOperand] == kNoOperand;
  watch->arrive(id[__builtin_ctz(context.mask)],
                {context.warp->index(), context.mask, at, &context.warp->function(), isOfBlock});
  return at + 1;
}

const Instruction* checkMembers(const Instruction* at, Context& context) {
  if (!context.block->barriers()) return at + 1;
  uint32_t members[kWarpSize];
  std::memcpy(members, slotOf(context, at->op[kMembersOperand], 0, 4), sizeof(members));
  Block& block = *context.block;
  forLanes(context.mask, [&](uint32_t l) {
    if (members[l] >> l & 1) return;
    const AccessPlace place = placeIn(block, context.warp->index() * kWarpSize + l, at, context.warp->function());
    block.grid().launch.inspector->found(findingIn(block, Finding::Kind::kNotAMember, place));
  });
  return at + 1;
}

void reportBarrier(Block& block, const BarrierWatch::Outcome& outcome) {
  if (outcome.divergence) {
    Finding finding = findingIn(block, Finding::Kind::kDivergentBarrier, placeOf(block, outcome.divergence->second));
    finding.other = placeOf(block, outcome.divergence->first);
    block.grid().launch.inspector->found(finding);
  }
  if (outcome.missed) {
    Finding finding = findingIn(block, Finding::Kind::kMissedBarrier, placeOf(block, *outcome.missed));
    finding.threads = block.endedThreads();
    block.grid().launch.inspector->found(finding);
  }
}

}  // namespace millpond::softgpu::ptx
