// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/exec/selectors.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {

extern const Selectors kSelectors;
const Selectors kSelectors = {
    &selectInteger,       &selectDot,     &selectCarry,   &selectVideo,  &selectBit,       &selectPredicate,
    &selectFloating,      &selectTest,    &selectCompare, &selectBySign, &selectConvert,   &selectPackConvert,
    &selectTf32Convert,   &selectExtend,  &selectLoad,    &selectStore,  &selectLoadMover, &selectStoreMover,
    &selectLocator,       &selectAtomic,  &selectShuffle, &selectVote,   &selectReduce,    &selectMatch,
    &selectBarrier,       &selectControl, &selectPack,    &selectUnpack, &selectMatrix,    &selectCopy,
    &selectMemoryBarrier,
};

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
