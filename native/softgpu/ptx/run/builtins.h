// SPDX-License-Identifier: Apache-2.0
// Functions that a device's runtime provides and compilers call as .extern: printf, assert, malloc, free, and
// what sets a condition of a graph.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "softgpu/ptx/run/context.h"

namespace millpond::softgpu::ptx {

enum class Builtin : uint8_t { kPrint, kAssertFail, kAllocate, kRelease, kSetCondition };

struct BuiltinFunction {
  std::string_view name;
  Builtin which;
  std::span<const uint32_t> parameterBytes;
  uint32_t returnBytes;  // 0: returns nothing
};

/// The function of that name; null: there is none.
const BuiltinFunction* findBuiltin(std::string_view name);

}  // namespace millpond::softgpu::ptx
