// SPDX-License-Identifier: Apache-2.0
// Whether a session that is idle can be given up until it is needed again, without its program's noticing: when nothing is
// left of it here, so that a new one is the same.
#include <algorithm>
#include <array>

#include "worker/executor.h"

namespace millpond::worker {
namespace {

/// Commands of which nothing is left but what `holdsNothing` finds in the books. Of any other it is assumed that something
/// is: limits and settings of a context, what is shared with other sessions, graphs, functions of the client, and what the
/// program was told that is not so on every device of the model: how its devices reach each other, where the
/// multiprocessors lie.
constexpr cmd::Op kInBooks[] = {
    cmd::Op::kMarker, cmd::Op::kContextCreate, cmd::Op::kContextDestroy, cmd::Op::kContextReset,
    cmd::Op::kMemAlloc, cmd::Op::kMemFree, cmd::Op::kMemGetInfo,
    cmd::Op::kVmReserve, cmd::Op::kVmUnreserve, cmd::Op::kVmGranularity, cmd::Op::kVmCreate, cmd::Op::kVmRelease,
    cmd::Op::kVmMap, cmd::Op::kVmUnmap, cmd::Op::kVmSetAccess,
    cmd::Op::kPoolCreate, cmd::Op::kPoolDestroy, cmd::Op::kPoolSetThreshold, cmd::Op::kPoolResetHigh, cmd::Op::kPoolTrim,
    cmd::Op::kPoolUsage, cmd::Op::kPoolAlloc, cmd::Op::kPoolFree,
    cmd::Op::kHostAlloc, cmd::Op::kHostFree,
    cmd::Op::kCopyToDevice, cmd::Op::kCopyFromDevice, cmd::Op::kCopyHostShared, cmd::Op::kCopyBox, cmd::Op::kLandFromDevice,
    cmd::Op::kMemcpyDtoDV2, cmd::Op::kMemcpyDtoDAsyncV2,
    cmd::Op::kMemsetD8V2, cmd::Op::kMemsetD16V2, cmd::Op::kMemsetD32V2,
    cmd::Op::kMemsetD2D8V2, cmd::Op::kMemsetD2D16V2, cmd::Op::kMemsetD2D32V2,
    cmd::Op::kMemsetD8Async, cmd::Op::kMemsetD16Async, cmd::Op::kMemsetD32Async,
    cmd::Op::kMemsetD2D8Async, cmd::Op::kMemsetD2D16Async, cmd::Op::kMemsetD2D32Async,
    cmd::Op::kArrayCreate, cmd::Op::kArrayDestroy, cmd::Op::kArrayLevel, cmd::Op::kArrayRequirements,
    cmd::Op::kTextureCreate, cmd::Op::kTextureDestroy,
    cmd::Op::kImageOffer, cmd::Op::kImagePart, cmd::Op::kModuleLoad, cmd::Op::kModuleUnload, cmd::Op::kFunctionNames,
    cmd::Op::kLibraryGetModule, cmd::Op::kGetFunction, cmd::Op::kGetGlobal, cmd::Op::kModuleGetFunctionCount,
    cmd::Op::kLibraryGetKernelCount,
    cmd::Op::kLinkCreate, cmd::Op::kLinkAdd, cmd::Op::kLinkComplete, cmd::Op::kLinkRead, cmd::Op::kLinkDestroy,
    cmd::Op::kLaunch, cmd::Op::kLaunchLimits,
    cmd::Op::kOccupancyMaxActiveBlocksPerMultiprocessor, cmd::Op::kOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
    cmd::Op::kOccupancyAvailableDynamicSMemPerBlock,
    cmd::Op::kFuncGetAttribute, cmd::Op::kFuncSetAttribute, cmd::Op::kFuncSetCacheConfig,
    cmd::Op::kFuncSetSharedMemConfig, cmd::Op::kFuncLoad, cmd::Op::kFuncIsLoaded, cmd::Op::kKernelGetAttribute,
    cmd::Op::kKernelSetAttribute, cmd::Op::kKernelSetCacheConfig,
    cmd::Op::kTensorMapEncode, cmd::Op::kTensorMapReplaceAddress,
    cmd::Op::kStreamCreate, cmd::Op::kStreamCreateWithPriority, cmd::Op::kStreamDestroyV2, cmd::Op::kStreamSetAttribute,
    cmd::Op::kStreamGetAttribute, cmd::Op::kStreamCopyAttributes, cmd::Op::kStreamSync, cmd::Op::kStreamQuery,
    cmd::Op::kStreamWaitEvent, cmd::Op::kStreamWaitValue32V2, cmd::Op::kStreamWaitValue64V2,
    cmd::Op::kStreamWriteValue32V2, cmd::Op::kStreamWriteValue64V2, cmd::Op::kStreamBatchMemOpV2, cmd::Op::kContextSync,
    cmd::Op::kEventCreate, cmd::Op::kEventDestroyV2, cmd::Op::kEventRecord, cmd::Op::kEventRecordWithFlags,
    cmd::Op::kEventQuery, cmd::Op::kEventSync, cmd::Op::kEventElapsedTime, cmd::Op::kEventElapsedTimeV2,
    cmd::Op::kFlushGPUDirectRDMAWrites, cmd::Op::kDeviceGetExecAffinitySupport,
    cmd::Op::kDeviceGetTexture1DLinearMaxWidth, cmd::Op::kCtxGetLimit, cmd::Op::kCtxResetPersistingL2Cache,
    cmd::Op::kCtxGetExecAffinity, cmd::Op::kCaptureInfo,
};

constexpr auto kLeavesTrace = [] {
  std::array<bool, cmd::kOpLimit> leaves{};
  leaves.fill(true);
  for (const cmd::Op op : kInBooks) leaves[static_cast<size_t>(op)] = false;
  return leaves;
}();

}  // namespace

bool Executor::leavesTrace(cmd::Op op) { return kLeavesTrace[static_cast<size_t>(op)]; }

bool Executor::holdsNothing() const {
  const auto isUnused = [](const MemoryBudget& budget) { return budget.usedBytes() == 0; };
  const auto contexts = static_cast<size_t>(std::count_if(
      contexts_.begin(), contexts_.end(), [](const Context& context) { return context.handle != nullptr; }));
  return !hasTraces_ && contexts == devices_.all().size() && std::all_of(budgets_.begin(), budgets_.end(), isUnused) &&
         handles_.empty() && virtualMemory_.empty() && pools_.empty() && textures_.empty() && arrayBytes_.empty() &&
         hostRuns_.empty() && images_.empty() && links_.empty() && held_.empty() && retired_.empty() &&
         endings_.empty() && poolFrees_.empty() && callbackWaiters_.empty();
}

bool Executor::hasRead() {
  const SharedControl& control = link_.memory().control();
  return control.failure.load() == 0 &&
         (link_.remote() || std::all_of(std::begin(control.chunkBusy), std::end(control.chunkBusy),
                                        [](const auto& busy) { return busy.load() == 0; }));
}

bool Executor::isQuiet() {
  // Work of streams that are gone shows in the default one. A context that has failed stays with its program.
  const uint16_t before = boundContext_;
  bool quiet = true;
  for (uint16_t context = 1; quiet && context <= devices_.all().size(); ++context)
    quiet = useContext(context) && driver_.cuStreamQuery(nullptr) == CUDA_SUCCESS;
  useContext(before);
  return quiet;
}

bool Executor::parks(int64_t idleNs) {
  // Whoever goes on with this session has something to do.
  if (parking_.afterNs == 0 || (parking_.isResumed && position_ == 0)) return false;
  if (!link_.isParked() && (idleNs < parking_.afterNs || !holdsNothing() || !hasRead() || !isQuiet())) return false;
  if (!link_.park()) return false;
  ended_ = true;
  end_ = {"it was idle and held nothing: its program gets another one when it needs it", true, true};
  return true;
}

}  // namespace millpond::worker
