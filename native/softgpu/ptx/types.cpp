// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/types.h"

#include <array>
#include <utility>

namespace millpond::softgpu::ptx {

std::optional<Type> typeNamed(std::string_view modifier) {
  static constexpr std::array<std::pair<std::string_view, Type>, 19> kTypes{{
      {".pred", Type::kPred}, {".b8", Type::kB8},         {".b16", Type::kB16},   {".b32", Type::kB32},
      {".b64", Type::kB64},   {".u8", Type::kU8},         {".u16", Type::kU16},   {".u32", Type::kU32},
      {".u64", Type::kU64},   {".s8", Type::kS8},         {".s16", Type::kS16},   {".s32", Type::kS32},
      {".s64", Type::kS64},   {".f16", Type::kF16},       {".bf16", Type::kBf16}, {".f16x2", Type::kF16x2},
      {".f32", Type::kF32},   {".bf16x2", Type::kBf16x2}, {".f64", Type::kF64},
  }};
  for (const auto& [name, type] : kTypes) {
    if (name == modifier) return type;
  }
  return std::nullopt;
}

}  // namespace millpond::softgpu::ptx
