// SPDX-License-Identifier: Apache-2.0
// From the addresses of an access to the host's memory, with every check.
#pragma once

#include "softgpu/ptx/exec/lanes.h"
#include "softgpu/ptx/exec/selectors.h"
#include "softgpu/ptx/fault_kind.h"

namespace millpond::softgpu::ptx::MILLPOND_EXEC {

/// Operand with the address of a load, store or atomic.
inline constexpr uint32_t kAddressOperand = 4;

/// Finds the memory of an access to `space` through addresses of type A; false after a fault.
template <Space kSpace, typename A>
bool locate(const Instruction* i, Context& context, uint32_t mask, bool isWrite, Lanes& lanes);

extern template bool locate<Space::kGeneric, uint64_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
extern template bool locate<Space::kGlobal, uint64_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
extern template bool locate<Space::kConst, uint64_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
extern template bool locate<Space::kShared, uint32_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
extern template bool locate<Space::kShared, uint64_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
extern template bool locate<Space::kLocal, uint32_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
extern template bool locate<Space::kLocal, uint64_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);
extern template bool locate<Space::kParam, uint64_t>(const Instruction*, Context&, uint32_t, bool, Lanes&);

}  // namespace millpond::softgpu::ptx::MILLPOND_EXEC
